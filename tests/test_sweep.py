"""The sweep's state machine: what happens when a server or a cell fails, in a few lines each."""

from collections.abc import Callable

from cluster.sweep import (
    Bounds,
    Instruction,
    PlatformSweep,
    RecordFailure,
    RecordVerdict,
    RunCell,
    StartServer,
    StopServer,
)
from loadgen.plan import Cell, Execution, Life
from loadgen.saturation import Limit, Step
from loadgen.spec import Saturate


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


def searching(repeats: int = 1) -> Life:
    first = Cell("p.one.text.ctx60.c1", "load", "p", "one", "text", 60, 32, 0.0, 1, is_search_step=True)
    return Life("p", "one", {}, (), {}, tuple(Execution(first, repeat) for repeat in range(repeats)))


def run_search(sweep: PlatformSweep, rate: Callable[[int], float]) -> tuple[list[str], list[Instruction]]:
    """The cells run from a ready server on, and what is told at the end."""
    ran: list[str] = []
    told = sweep.server_ready()
    while isinstance(told[-1], RunCell):
        cell = told[-1].execution.cell
        ran.append(cell.cell_id.rpartition(".")[2])
        told = sweep.cell_ended(Step(cell.concurrency or 0, rate(cell.concurrency or 0)))
    return ran, told


def test_a_search_decides_its_next_cell_from_the_last_and_ends_with_a_verdict():
    sweep = PlatformSweep([searching()])
    sweep.begin()
    ran, told = run_search(sweep, lambda streams: min(streams, 4))
    assert ran == ["c1", "c2", "c4", "c8", "c3"]
    verdict, stop = told
    assert isinstance(verdict, RecordVerdict)
    assert stop == StopServer()
    assert (verdict.execution.key, verdict.verdict.limit) == (("p.one.text.ctx60.c4", 0), Limit.SERVER)


def test_a_search_that_was_interrupted_goes_on_from_what_is_committed():
    life = searching()
    steps = {(f"p.one.text.ctx60.c{n}", 0): Step(n, min(n, 4)) for n in (1, 2, 4)}
    sweep = PlatformSweep([life], done=list(steps), steps=steps)
    assert sweep.begin() == [StartServer(life)]
    ran, _ = run_search(sweep, lambda streams: min(streams, 4))
    assert ran == ["c8", "c3"]


def test_a_search_that_had_ended_starts_no_server_and_says_its_verdict_again():
    steps = {(f"p.one.text.ctx60.c{n}", 0): Step(n, min(n, 4)) for n in (1, 2, 3, 4, 8)}
    sweep = PlatformSweep([searching()], done=list(steps), steps=steps)
    (verdict,) = sweep.begin()
    assert isinstance(verdict, RecordVerdict)
    assert sweep.is_finished


def test_each_repeat_is_a_search_of_its_own():
    sweep = PlatformSweep([searching(repeats=2)], bounds=Bounds(Saturate(max=2)))
    sweep.begin()
    sweep.server_ready()
    sweep.cell_ended(Step(1, 1.0))
    verdict, again = sweep.cell_ended(Step(2, 2.0))
    assert isinstance(verdict, RecordVerdict)
    assert isinstance(again, RunCell)
    assert again.execution.key == ("p.one.text.ctx60.c1", 1)


def test_a_server_that_dies_twice_under_a_step_ends_the_search_there():
    life = searching()
    sweep = PlatformSweep([life])
    sweep.begin()
    sweep.server_ready()
    sweep.cell_ended(Step(1, 1.0))
    assert sweep.server_died("killed") == [StartServer(life)]
    (again,) = sweep.server_ready()
    assert isinstance(again, RunCell)
    assert again.is_second_attempt
    failure, verdict = sweep.server_died("killed")
    assert isinstance(failure, RecordFailure)
    assert isinstance(verdict, RecordVerdict)
    assert failure.execution == verdict.execution
    assert verdict.verdict.limit == Limit.UNKNOWN
    assert sweep.is_finished


def test_a_cell_that_measured_the_client_runs_again_with_more_workers_while_there_are_more():
    cell = Cell("p.one.c64", "load", "p", "one", "text", 60, 32, 0.0, 64)
    life_of_it = Life("p", "one", {}, (), {}, (Execution(cell, 0), Execution(cell, 1)))
    sweep = PlatformSweep([life_of_it], bounds=Bounds(workers=1, most_workers=3))
    sweep.begin()
    workers = []
    (order,) = sweep.server_ready()
    while isinstance(order, RunCell) and sweep.may_add_workers:
        workers.append(order.workers)
        assert not order.is_second_attempt
        (order,) = sweep.client_limited()
    assert isinstance(order, RunCell)
    assert (workers, order.workers) == ([1, 2], 3)
    (following,) = sweep.cell_ended()
    assert isinstance(following, RunCell)
    assert following.workers == 1


def test_more_workers_than_streams_are_of_no_use():
    cell = Cell("p.one.c1", "load", "p", "one", "text", 60, 32, 0.0, 1)
    sweep = PlatformSweep(
        [Life("p", "one", {}, (), {}, (Execution(cell, 0),))], bounds=Bounds(most_workers=8)
    )
    sweep.begin()
    sweep.server_ready()
    assert not sweep.may_add_workers


def test_a_search_keeps_the_workers_that_a_step_needed():
    sweep = PlatformSweep([searching()], bounds=Bounds(Saturate(start=1, max=8), 1, 4))
    sweep.begin()
    sweep.server_ready()
    sweep.cell_ended(Step(1, 1.0))
    sweep.client_limited()
    (order,) = sweep.cell_ended(Step(2, 2.0))
    assert isinstance(order, RunCell)
    assert (order.execution.cell.concurrency, order.workers) == (4, 2)
