"""Which server is started how, and what is measured on it in which order."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.config import parse_sweep
from loadgen.errors import BadInput
from loadgen.plan import Plan, make_plan, plan_document, search_step

SWEEP = """\
name: t
seed: 3
platforms:
  - name: pcie
    gpu: {kind: RTX, count: 8, interconnect: PCIe}
    server: {control: process, endpoint: "http://127.0.0.1:1", command: [x]}
  - name: nvlink
    hourly_price: 9.5
    server: {control: process, endpoint: "http://127.0.0.1:2", command: [x]}
axes:
  budget: {flag: --budget}
  topk: {env: TOPK}
  both: {flag: --both, env: BOTH}
server_configs:
  - name: base
  - name: tree
    fixed: {topk: 4}
    grid: {budget: [8, 16], both: [true, false, null]}
workloads:
  - context_tokens: [100, 200]
    output_tokens: 10
load:
  concurrency: [1, 4]
  warmup_requests_per_stream: 1
  measure_requests_per_stream: 2
  warmup_max_s: 5
  measure_min_s: 3
  measure_max_s: 7
  drain_max_s: 11
repeats: 2
grading: {problems: classic}
"""


def planned(text: str = SWEEP, only_platform: str | None = None) -> Plan:
    return make_plan(parse_sweep(text, "c.yaml"), only_platform)


def test_server_configs_are_outermost_and_repeats_go_round_the_cells() -> None:
    life = planned().lives["pcie"][0]
    assert [(e.cell.cell_id, e.repeat) for e in life.executions] == [
        ("pcie.base.eval", 0),
        *((f"pcie.base.text.ctx{context}.c{c}", repeat)
          for repeat in (0, 1) for context in (100, 200) for c in (1, 4)),
    ]  # fmt: skip


def test_each_combination_of_the_grid_is_one_life() -> None:
    lives = planned().lives
    assert list(lives) == ["pcie", "nvlink"]
    assert [life.config for life in lives["nvlink"]] == [
        "base",
        *(f"tree-budget{budget}-both{both}" for budget in (8, 16) for both in ("On", "Off", "Unset")),
    ]


def test_axis_values_become_flags_and_environment() -> None:
    lives = {life.config: life for life in planned().lives["pcie"]}
    assert (lives["base"].flags, lives["base"].env) == ((), {})
    on, off, unset = (lives[f"tree-budget8-both{word}"] for word in ("On", "Off", "Unset"))
    assert (on.flags, on.env) == (("--budget", "8", "--both"), {"TOPK": "4", "BOTH": "1"})
    assert (off.flags, off.env) == (("--budget", "8"), {"TOPK": "4", "BOTH": "0"})
    assert (unset.flags, unset.env) == (("--budget", "8"), {"TOPK": "4"})
    assert unset.axes == {"topk": 4, "budget": 8, "both": None}


def test_an_axis_with_one_value_does_not_lengthen_names() -> None:
    lives = planned(SWEEP.replace("[8, 16]", "[8]")).lives["pcie"]
    assert [life.config for life in lives] == ["base", "tree-bothOn", "tree-bothOff", "tree-bothUnset"]


def test_cells_carry_what_their_requests_need() -> None:
    text = SWEEP.replace("output_tokens: 10", "output_tokens: 10\n    temperature: 0.5\n    thinking: false")
    cell = planned(text).lives["pcie"][0].executions[1].cell
    assert (cell.kind, cell.context_tokens, cell.max_tokens, cell.concurrency) == ("load", 100, 10, 1)
    assert (cell.temperature, cell.thinking, cell.ignore_eos, cell.prompts.source) == (
        0.5,
        False,
        True,
        "builtin",
    )
    exam = planned(text).lives["pcie"][0].executions[0].cell
    assert (exam.kind, exam.context_tokens, exam.max_tokens, exam.temperature) == ("eval", None, 8192, 0)


def test_one_platform_can_be_planned_alone() -> None:
    assert list(planned(only_platform="nvlink").lives) == ["nvlink"]
    with pytest.raises(
        BadInput, match="--platform x: the config has no such platform; use one of: pcie, nvlink"
    ):
        planned(only_platform="x")


def test_the_estimate_bounds_what_is_sent() -> None:
    estimate = planned().estimate
    executions = 2 * 7 * 8  # platforms x lives x (contexts x concurrencies x repeats)
    assert estimate.cells == executions + 2 * 7
    assert estimate.starts == 14
    assert estimate.requests == 2 * 7 * 2 * 2 * (1 + 4) * (1 + 2 + 1)
    assert estimate.output_tokens == estimate.requests * 10
    assert estimate.prompt_tokens == estimate.requests * 150
    assert estimate.shortest_s == 56 * 3
    assert estimate.longest_s == 56 * (5 + 7 + 11)


def test_the_plan_as_json_names_each_execution_once() -> None:
    sweep = parse_sweep(SWEEP, "c.yaml")
    document = json.loads(json.dumps(plan_document(sweep, make_plan(sweep))))
    keys = [(cell["cell_id"], cell["repeat"]) for cell in document["cells"]]
    assert len(keys) == len(set(keys)) == 2 * 7 * 9
    assert document["platforms"]["pcie"]["gpu_count"] == 8
    assert document["platforms"]["nvlink"] == {
        "gpu_kind": None,
        "gpu_count": None,
        "interconnect": None,
        "hourly_price": 9.5,
        "control": "process",
        "endpoint": "http://127.0.0.1:2",
        "endpoints": ["http://127.0.0.1:2"],
    }
    assert document["cells"][-1]["axes"] == {"topk": 4, "budget": 16, "both": None}


def test_an_external_server_takes_one_config_only() -> None:
    external = SWEEP.replace(
        'control: process, endpoint: "http://127.0.0.1:2", command: [x]',
        'control: external, endpoint: "http://127.0.0.1:2"',
    )
    with pytest.raises(BadInput, match=r"platform nvlink: its server is external .* has 7 combinations"):
        planned(external)
    assert list(planned(external, only_platform="pcie").lives) == ["pcie"]


def test_an_unknown_problem_set_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"^grading\.problems: "):
        planned(SWEEP.replace("classic", "nonesuch"))


@pytest.mark.parametrize("values", ["[0.5, 0_5x, '0.5']", "[a-b, a_b]", "[true, 'On']", "[null, Unset]"])
def test_combinations_that_would_share_a_name_are_refused(values: str) -> None:
    with pytest.raises(BadInput, match="2 combinations would be called tree-budget") as caught:
        planned(SWEEP.replace("[8, 16]", values).replace(", both: [true, false, null]", ""))
    assert len(str(caught.value).splitlines()) == 1


def test_a_config_named_like_a_combination_is_refused() -> None:
    with pytest.raises(BadInput, match="2 combinations would be called tree-budget8-bothOn on pcie"):
        planned(SWEEP.replace("name: base", "name: tree-budget8-bothOn"))


def test_ids_that_no_file_name_can_hold_are_refused() -> None:
    with pytest.raises(BadInput, match="is too long for a file name"):
        planned(SWEEP.replace("[8, 16]", f"[8, '/models/{'x' * 200}']"))


VALUES = st.lists(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 99), st.text("ab./-_é", max_size=4)), min_size=1
)


@settings(max_examples=40)
@given(VALUES)
def test_planned_ids_are_distinct_file_names_or_refused(values: list[object]) -> None:
    try:
        plan = planned(SWEEP.replace("[8, 16]", json.dumps(values)))
    except BadInput:
        return
    keys = [execution.key for _, execution in plan.executions()]
    assert len(set(keys)) == len(keys)
    assert not any("/" in cell_id or cell_id.startswith((".", "_")) for cell_id, _ in keys)


LOADS = """\
concurrency: saturate
  saturate: {start: 2, max: 64}
  rate: [0.5, 12]
  arrivals: constant
  warmup_min_requests: 4"""


def test_open_loops_and_a_search_are_cells_beside_each_other() -> None:
    text = SWEEP.replace("concurrency: [1, 4]", LOADS).replace("[100, 200]", "100")
    cells = [execution.cell for execution in planned(text).lives["pcie"][0].executions[1:4]]
    assert [cell.cell_id.removeprefix("pcie.base.text.ctx100.") for cell in cells] == ["c2", "r0.5", "r12"]
    assert [(cell.concurrency, cell.rate, cell.arrivals) for cell in cells] == [
        (2, None, None),
        (None, 0.5, "constant"),
        (None, 12.0, "constant"),
    ]
    assert [cell.is_search_step for cell in cells] == [True, False, False]
    assert [cell.is_open_loop for cell in cells] == [False, True, True]


def test_the_estimate_of_an_open_loop_is_its_rate_over_the_least_time_and_a_search_is_bounded() -> None:
    text = SWEEP.replace("concurrency: [1, 4]", LOADS).replace("[100, 200]", "100").replace("repeats: 2", "")
    estimate = planned(text, "pcie").estimate
    assert estimate.requests == 7 * (2 * 4 + (4 + 8) + (4 + 36))  # rate 0.5: the least count; 12: 3 s of it
    assert estimate.longest_s == 7 * (2 + 6 + 4) * (5 + 7 + 11)  # two rates, six doublings, four halvings


def test_a_trace_is_one_cell_named_after_its_file() -> None:
    text = SWEEP.replace("concurrency: [1, 4]", "arrivals: {trace: /data/conv 1.jsonl, unit: ms}")
    cell = planned(text).lives["pcie"][0].executions[1].cell
    assert cell.cell_id == "pcie.base.text.ctx100.trace-conv_1"
    assert (cell.concurrency, cell.rate, cell.arrivals) == (None, None, "trace-conv 1")


def test_a_step_of_a_search_is_its_first_with_other_streams() -> None:
    first = planned().lives["pcie"][0].executions[1]
    step = search_step(first, 48)
    assert step.key == ("pcie.base.text.ctx100.c48", 0)
    assert (step.cell.concurrency, step.cell.context_tokens) == (48, 100)
