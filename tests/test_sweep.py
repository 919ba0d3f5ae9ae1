"""The sweep's state machine: what happens when a server or a cell fails, in a few lines each."""

from cluster.sweep import PlatformSweep, RecordFailure, RunCell, StartServer, StopServer
from loadgen.plan import Cell, Execution, Life


def life(config: str, cells: int) -> Life:
    executions = tuple(
        Execution(Cell(f"p.{config}.c{n}", "load", "p", config, "text", 60, 32, 0.0, n + 1), 0)
        for n in range(cells)
    )
    return Life("p", config, {}, (), {}, executions)


def test_lives_run_one_after_the_other_and_each_server_is_stopped():
    one, two = life("one", 2), life("two", 1)
    sweep = PlatformSweep([one, two])
    assert sweep.begin() == [StartServer(one)]
    assert sweep.server_ready() == [RunCell(one, one.executions[0], is_second_attempt=False)]
    assert sweep.cell_ended() == [RunCell(one, one.executions[1], is_second_attempt=False)]
    assert sweep.cell_ended() == [StopServer()]
    assert sweep.server_stopped() == [StartServer(two)]
    assert sweep.server_ready() == [RunCell(two, two.executions[0], is_second_attempt=False)]
    assert sweep.cell_ended() == [StopServer()]
    assert sweep.server_stopped() == []
    assert sweep.is_finished


def test_what_is_done_is_not_run_and_a_life_with_nothing_left_is_not_started():
    one, two = life("one", 1), life("two", 2)
    sweep = PlatformSweep([one, two], done=[one.executions[0].key, two.executions[0].key])
    assert sweep.begin() == [StartServer(two)]
    assert sweep.server_ready() == [RunCell(two, two.executions[1], is_second_attempt=False)]


def test_a_server_that_does_not_start_fails_its_cells_and_the_next_life_begins():
    one, two = life("one", 2), life("two", 1)
    sweep = PlatformSweep([one, two])
    sweep.begin()
    assert sweep.server_failed("out of memory") == [
        RecordFailure(one, one.executions[0], "out of memory"),
        RecordFailure(one, one.executions[1], "out of memory"),
        StartServer(two),
    ]


def test_a_death_restarts_the_server_for_the_same_cell_once():
    one = life("one", 2)
    first, second = one.executions
    sweep = PlatformSweep([one])
    sweep.begin()
    sweep.server_ready()
    assert sweep.server_died("killed") == [StartServer(one)]
    assert sweep.server_ready() == [RunCell(one, first, is_second_attempt=True)]
    assert sweep.server_died("killed again") == [RecordFailure(one, first, "killed again"), StartServer(one)]
    assert sweep.server_ready() == [RunCell(one, second, is_second_attempt=False)]


def test_a_second_death_in_the_last_cell_ends_the_life_without_another_start():
    one = life("one", 1)
    sweep = PlatformSweep([one])
    sweep.begin()
    sweep.server_ready()
    sweep.server_died("killed")
    sweep.server_ready()
    assert sweep.server_died("killed") == [RecordFailure(one, one.executions[0], "killed")]
    assert sweep.is_finished
