"""A thread gets its core and gives it back; stolen time is that of its own cores."""

import os
import socket
import threading
from pathlib import Path

import pytest

from loadgen.errors import RunFailed
from loadgen.load.place import Ticks, core_ticks, on_core, this_place


def test_a_thread_is_alone_on_its_core_and_the_rest_of_the_process_is_not() -> None:
    cores = os.sched_getaffinity(0)
    core = max(cores)
    with on_core(core):
        place = this_place(is_pinned=True)
        assert (place.cores, place.pid, place.host) == ((core,), os.getpid(), socket.gethostname())
        assert os.sched_getaffinity(0) == {core}
        others: list[set[int]] = []
    thread = threading.Thread(target=lambda: others.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    assert others == [cores]
    assert os.sched_getaffinity(0) == cores


def test_without_a_core_it_stays_where_it_is_and_a_core_that_is_none_is_an_error() -> None:
    cores = os.sched_getaffinity(0)
    with on_core(None):
        assert os.sched_getaffinity(0) == cores
    with pytest.raises(RunFailed, match="may not use core 100000 of its host"), on_core(100_000):
        pass
    assert os.sched_getaffinity(0) == cores


def test_stolen_time_is_read_of_the_threads_own_cores(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    stat = tmp_path / "stat"
    stat.write_text(
        f"cpu  900 0 0 0 0 0 0 99 0 0\ncpu{core} 10 1 20 60 2 3 4 50 7 8\ncpu99999 9 9 9 9 9 9 9 9 9 9\nintr 1\n"
    )
    with on_core(core):
        assert core_ticks(stat) == Ticks(total=150, stolen=50)
        stat.write_text(f"cpu{core} 40 1 20 90 2 3 4 90 7 8\n")
        later = core_ticks(stat)
        assert later == Ticks(total=250, stolen=90)
    assert Ticks(150, 50).stolen_share(later) == pytest.approx(0.4)
    assert Ticks(150, 50).stolen_share(Ticks(150, 50)) is None


def test_a_system_that_does_not_say_is_unknown(tmp_path: Path) -> None:
    assert core_ticks(tmp_path / "none") is None
    (tmp_path / "stat").write_text("cpu  1 2 3\nintr 5\n")
    assert core_ticks(tmp_path / "stat") is None
    assert core_ticks() is not None, "this system says it"
