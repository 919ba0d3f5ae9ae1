"""Options of the whole test suite."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine makes any example slow once; speed is asserted nowhere.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--real-sglang",
        type=Path,
        metavar="DIR",
        help="environment that tests/servers/sglang/install.sh built; without it those tests are skipped",
    )
    parser.addoption(
        "--kills",
        type=int,
        nargs=2,
        default=(3, 1),
        metavar="N",
        help="rounds of test_random_kills.py: in process, and on Ray",
    )
    parser.addoption(
        "--kills-seed",
        type=int,
        default=int.from_bytes(os.urandom(3)),
        metavar="N",
        help="their moments: that of the first round as a failure names it, to play it again",
    )


# In CI a skipped test is a hole, unless it is one of these.
MAY_SKIP_IN_CI = {
    "needs --real-sglang DIR": "the real SGLang takes 3 GB and minutes to install; `make test-sglang` runs these",
    "may not make network namespaces": "the kernel of a CI machine may forbid them, even to root",
    "one core cannot be kept off": "a CI machine may have one core",
}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not os.environ.get("CI"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [report.longrepr[2] for report in reporter.stats.get("skipped", [])]
    holes = [reason for reason in skipped if not any(known in reason for known in MAY_SKIP_IN_CI)]
    if holes:
        reporter.write_line(f"skipped in CI without a listed reason: {sorted(set(holes))}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _own_prompt_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the fits of another, or of the user."""
    monkeypatch.setenv("LOADGEN_CACHE_DIR", str(tmp_path / "prompt-cache"))
