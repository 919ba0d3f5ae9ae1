"""Whatever dies at whatever moment, a run opens, reports and resumes, and no process of it is left.

A few rounds each time; `make kills` plays 200 with the roles in process and 20 on Ray. A failure names its seed.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kills import TARGETS, Rig, Round, rig

_LOCAL = [kind for kind in TARGETS if not TARGETS[kind] or not TARGETS[kind].startswith("ray::")]
_RAY = list(TARGETS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    local, on_ray = metafunc.config.getoption("--kills")
    seed = metafunc.config.getoption("--kills-seed")
    if "local_round" in metafunc.fixturenames:
        metafunc.parametrize("local_round", _rounds(local, _LOCAL, seed), ids=_name)
    if "ray_round" in metafunc.fixturenames:
        metafunc.parametrize("ray_round", _rounds(on_ray, _RAY, seed), ids=_name)


def _rounds(count: int, kinds: list[str], seed: int) -> list[tuple[str, int]]:
    """Every kind in turn, in an order of chance, each with a seed of its own."""
    order = random.Random(seed).sample(kinds, len(kinds))
    return [(order[number % len(order)], seed + number) for number in range(count)]


def _name(of: tuple[str, int]) -> str:
    return f"{of[0]}-{of[1]}"


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("undisturbed"), "--local") as whole:
        yield whole


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("undisturbed")) as whole:
        yield whole


def test_with_the_roles_in_process(
    in_process: Rig,
    local_round: tuple[str, int],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    kind, seed = local_round
    record_property("round", Round(in_process, tmp_path, kind, random.Random(seed)).play())


def test_with_the_roles_on_ray(
    on_ray: Rig, ray_round: tuple[str, int], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kind, seed = ray_round
    record_property("round", Round(on_ray, tmp_path, kind, random.Random(seed)).play())
