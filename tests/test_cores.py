"""Each load worker has a core that nothing else of the run may use, where there are enough."""

import os
import subprocess
import sys

import pytest

from cluster.cores import kept_off, reserve_cores


def test_workers_have_the_highest_cores_and_something_is_left_for_the_rest() -> None:
    assert reserve_cores(["a"], 1, {0, 1}) == {"a": (1,)}
    assert reserve_cores(["a", "b"], 2, range(3, 8)) == {"a": (4, 5), "b": (6, 7)}
    assert reserve_cores(["a", "b"], 2, range(4)) == {}
    assert reserve_cores([], 1, range(4)) == {}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be kept off")
def test_what_a_run_starts_is_kept_off_reserved_cores_and_may_use_them_afterwards() -> None:
    before = os.sched_getaffinity(0)
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    with kept_off({"a": (max(before),)}):
        child = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
        assert os.sched_getaffinity(0) == before - {max(before)}
    assert child.stdout.strip() == str(sorted(before - {max(before)}))
    assert os.sched_getaffinity(0) == before
    with kept_off({}):
        assert os.sched_getaffinity(0) == before
