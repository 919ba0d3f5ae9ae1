"""Flags and what they come to: SGLang's spellings, overrides, warnings, refusals."""

import pytest

from loadgen.sim import settings
from loadgen.sim.settings import Settings
from loadgen.sim.timing import Speculation

DRAFT = "--speculative-draft-model-path d"


def resolve(line: str, **env: str) -> Settings:
    return settings.from_argv(line.split(), env)


def test_plain() -> None:
    plain = resolve("")
    assert plain.speculation is None
    assert plain.warnings == ()
    assert plain.model == "simulated/kimi-k2.6"
    assert plain.args["max_running_requests"] > 48
    assert resolve("").seed != resolve("").seed  # drawn at start: a marker of one life
    assert resolve("--random-seed 5").seed == 5


def test_spellings_of_one_flag() -> None:
    for flag in ("--tp", "--tp-size", "--tensor-parallel-size", "--tensor-par"):
        assert resolve(f"{flag} 4").args["tp_size"] == 4
    for flag in ("--speculative-draft-window-size", "--speculative-dflash-draft-window-size"):
        line = f"--speculative-algorithm dflash {DRAFT} {flag} 64"
        assert resolve(line).args["speculative_draft_window_size"] == 64


def test_dflash_forces_topk_to_1_and_48_running_requests_with_a_warning_each() -> None:
    got = resolve(
        f"--speculative-algorithm DFLASH {DRAFT} --speculative-eagle-topk 4 --speculative-num-draft-tokens 12"
    )
    assert [got.args[key] for key in ("speculative_eagle_topk", "max_running_requests")] == [1, 48]
    assert got.args["speculative_dflash_block_size"] == 12
    assert got.speculation == Speculation(11, 11, 1, None)
    assert len(got.warnings) == 2
    assert "speculative_eagle_topk=4 to 1" in got.warnings[0]
    assert "reset to 48" in got.warnings[1]
    assert resolve(f"--speculative-algorithm DFLASH {DRAFT} --max-running-requests 64").warnings == ()


def test_ddtree_takes_its_budget_from_a_flag_and_its_topk_from_the_environment() -> None:
    line = f"--speculative-algorithm DDTREE {DRAFT} --speculative-ddtree-budget 16 --speculative-draft-window-size 512"
    got = resolve(line, SGLANG_DDTREE_MAX_TOPK="3", OTHER="x")
    assert got.speculation == Speculation(16, 7, 3, 512)
    assert got.args["speculative_num_draft_tokens"] == 17
    assert got.env_vars is None
    shown = resolve(line, SGLANG_EXPOSE_OWN_ENV_VARS="1", SGLANG_DDTREE_MAX_TOPK="3", OTHER="x").env_vars
    assert shown == {"SGLANG_EXPOSE_OWN_ENV_VARS": "1", "SGLANG_DDTREE_MAX_TOPK": "3"}
    default = resolve(f"--speculative-algorithm DDTREE {DRAFT}")
    assert default.speculation == Speculation(7, 7, 6, None)
    assert (
        resolve(f"--speculative-algorithm DDTREE {DRAFT} --speculative-ddtree-budget 2").speculation.depth
        == 2
    )


def test_the_other_algorithms() -> None:
    eagle = resolve(f"--speculative-algorithm EAGLE3 {DRAFT} --speculative-num-steps 5 --speculative-eagle-topk 8 "
                    "--speculative-num-draft-tokens 32")  # fmt: skip
    assert (eagle.speculation.drafts, eagle.speculation.depth, eagle.speculation.topk) == (31, 5, 8)
    assert resolve("--speculative-algorithm NEXTN").args["speculative_algorithm"] == "EAGLE"
    ngram = resolve(
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8 --speculative-ngram-max-bfs-breadth 1"
    )
    assert [ngram.args[f"speculative_{key}"] for key in ("num_steps", "eagle_topk", "num_draft_tokens")] == [
        8,
        1,
        8,
    ]
    assert (
        "no effect" in resolve("--speculative-algorithm NGRAM --speculative-draft-window-size 9").warnings[0]
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--speculative-algorithm MAGIC", "Unknown speculative algorithm name: MAGIC"),
        (
            "--speculative-algorithm DFLASH",
            "DFLASH speculative decoding requires setting --speculative-draft-model-path",
        ),
        (
            f"--speculative-algorithm DFLASH {DRAFT} --speculative-draft-window-size 4",
            "must be >= --speculative-dflash",
        ),
        (f"--speculative-algorithm DFLASH {DRAFT} --speculative-draft-window-size 0", "must be positive"),
        (
            f"--speculative-algorithm DFLASH {DRAFT} --speculative-dflash-block-size 8 --speculative-num-draft-tokens 9",
            "they differ",
        ),
        (f"--speculative-algorithm DFLASH {DRAFT} --speculative-dflash-block-size -1", "to be positive"),
        (f"--speculative-algorithm DFLASH {DRAFT} --speculative-dflash-block-size 1", "at least 2"),
    ],
)
def test_what_sglang_refuses(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(line)


def test_a_topk_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="SGLANG_DDTREE_MAX_TOPK"):
        resolve(f"--speculative-algorithm DDTREE {DRAFT}", SGLANG_DDTREE_MAX_TOPK="many")


@pytest.mark.parametrize(
    "line", ["--nonsense", "--speculative-n 3", "--time-scale 0", "--port x", "--profile tpu"]
)
def test_what_argparse_refuses(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        resolve(line)
    assert exit_.value.code == 2
    assert "error: " in capsys.readouterr().err
