"""Requested against reported: the three states of an axis, and the effective request limit."""

import json
from pathlib import Path

from cluster.proof import max_running_requests, prove_axes
from loadgen.spec import Axis

AXES = {
    "budget": Axis(flag="--speculative-num-draft-tokens"),
    "window": Axis(flag="--speculative-dflash-draft-window-size", read_back="speculative_draft_window_size"),
    "topk": Axis(env="SGLANG_DDTREE_MAX_TOPK"),
    "metrics": Axis(flag="--enable-metrics"),
}


def test_a_flag_reads_back_under_its_python_name():
    info = {"speculative_num_draft_tokens": 8}
    assert prove_axes(AXES, {"budget": 8}, info) == {"budget": "verified"}
    assert prove_axes(AXES, {"budget": "8"}, info) == {"budget": "verified"}
    assert prove_axes(AXES, {"budget": 16}, info) == {"budget": "mismatch"}


def test_a_resolved_null_is_a_mismatch_and_an_absent_key_is_unverifiable():
    assert prove_axes(AXES, {"window": 2048}, {"speculative_draft_window_size": None}) == {
        "window": "mismatch"
    }
    assert prove_axes(AXES, {"window": 2048}, {"other": 1}) == {"window": "unverifiable"}
    assert prove_axes(AXES, {"window": 2048}, None) == {"window": "unverifiable"}


def test_environment_variables_are_proved_only_where_the_server_shows_them():
    assert prove_axes(AXES, {"topk": 4}, {}) == {"topk": "unverifiable"}
    assert prove_axes(AXES, {"topk": 4}, {"env_vars": {"SGLANG_DDTREE_MAX_TOPK": "4"}}) == {
        "topk": "verified"
    }
    assert prove_axes(AXES, {"topk": 4}, {"env_vars": {"SGLANG_DDTREE_MAX_TOPK": "6"}}) == {
        "topk": "mismatch"
    }


def test_switches_and_values_that_were_not_given():
    assert prove_axes(AXES, {"metrics": True, "budget": None}, {"enable_metrics": True}) == {
        "metrics": "verified"
    }
    assert prove_axes(AXES, {"metrics": False}, {"enable_metrics": True}) == {"metrics": "mismatch"}


def test_the_effective_limit_counts_over_the_resolved_one():
    assert max_running_requests({"max_running_requests": 64}) == 64
    states = [{"effective_max_running_requests_per_dp": 9}, {"effective_max_running_requests_per_dp": 9}]
    assert max_running_requests({"max_running_requests": 64, "internal_states": states}) == 18
    assert max_running_requests({"max_running_requests": 64, "internal_states": [{}]}) == 64
    assert max_running_requests({}) is None
    assert max_running_requests(None) is None


def test_a_real_servers_report_proves_its_ngram_settings():
    path = Path(__file__).parent / "fixtures" / "server_info_ngram.json"
    info = json.loads(path.read_text(encoding="utf-8"))
    assert prove_axes(AXES, {"budget": 8}, info) == {"budget": "verified"}
    assert max_running_requests(info) == 8
