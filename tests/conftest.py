"""Options of the whole test suite."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--real-sglang",
        type=Path,
        metavar="DIR",
        help="environment that tests/servers/sglang/install.sh built; without it those tests are skipped",
    )
