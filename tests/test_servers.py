"""A server's life against real processes: what is started is proved, recorded, and gone at the end."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest
from cluster_fixtures import a_life, living, new_run, ours, program, said_at_start, server_of, the_row
from scripted_server import closed_port
from sim_fixtures import SimServer

from cluster.processes import is_port_open
from cluster.server_process import ServerFailed
from cluster.servers import PlatformServer
from loadgen.spec import Axis, Platform


def failing(server: PlatformServer) -> str:
    """The reason why a start fails. Nothing of it is left."""
    with pytest.raises(ServerFailed) as failure:
        asyncio.run(server.start(a_life()))
    row = the_row(server)
    assert (row["state"], row["failure"]) == ("failed", str(failure.value))
    assert not living(row["server_id"])
    assert server.live is None
    return str(failure.value)


def test_the_simulator_starts_is_proved_and_stops(tmp_path):
    command = ["loadgen", "sim", "--port", "{port}", "--time-scale", "40", "--sim-startup-s", "0"]
    axes = {
        "limit": Axis(flag="--max-running-requests"),
        "window": Axis(flag="--speculative-draft-window-size"),
    }
    server = PlatformServer(ours(command), axes, new_run(tmp_path))
    life = a_life(axes={"limit": 7}, flags=("--max-running-requests", "7"))

    async def work() -> None:
        live = await server.start(life)
        assert (live.simulated, live.time_scale, live.max_running_requests) == (True, 40, 7)
        assert live.proof == {"limit": "verified"}
        assert await server.answers()
        row = the_row(server)
        assert (row["state"], row["pid"], row["stopped_unix_ns"]) == ("ready", live.pid, None)
        assert psutil.Process(live.pid).is_running()
        await server.stop()
        await server.stop()

    asyncio.run(work())
    row = the_row(server)
    assert (row["state"], row["exit_code"], row["failure"], row["log_tail"]) == ("stopped", 0, None, None)
    assert row["ready_s"] > 0
    assert row["stopped_unix_ns"] > row["started_unix_ns"]
    assert json.loads(row["server_info"])["max_running_requests"] == 7
    assert not living(row["server_id"])


def test_command_and_environment_reach_the_process_and_secrets_do_not_reach_the_row(tmp_path):
    platform = ours(
        [*program(tmp_path), "--api-key", "sk-flag", "{host}:{port}"],
        env={"HF_TOKEN": "hf-secret", "PLAIN": "seen", "TOPK": "1"},
    )
    server = PlatformServer(platform, {}, new_run(tmp_path))

    async def work() -> None:
        await server.start(a_life(flags=("--budget", "8"), env={"TOPK": "4"}))
        await server.stop()

    asyncio.run(work())
    said, row = said_at_start(server), the_row(server)
    address = platform.server.endpoint.removeprefix("http://")
    assert said["argv"] == ["--api-key", "sk-flag", address, "--budget", "8"]
    assert said["env"].items() >= {"HF_TOKEN": "hf-secret", "PLAIN": "seen", "TOPK": "4"}.items()
    assert row["command"][-5:] == ["--api-key", "***", address, "--budget", "8"]
    assert json.loads(row["env"]) == {"HF_TOKEN": "***", "PLAIN": "seen", "TOPK": "4"}


def test_a_program_that_ends_at_once_leaves_its_reason_without_secrets_and_controls(tmp_path):
    server = server_of(tmp_path, "exit", env={"SOME_SECRET": "sk-hidden"})
    assert failing(server) == "it ended before it was ready (exit code 1)"
    row = the_row(server)
    assert row["exit_code"] == 1
    assert "OutOfMemoryError: no room[31m; key ***; api_key=***" in row["log_tail"]
    assert "sk-" not in str(row)


def test_a_program_that_is_none(tmp_path):
    run = new_run(tmp_path)
    plain = tmp_path / "notes.txt"
    plain.write_text("no program")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELFno program")
    broken.chmod(0o700)
    reasons = []
    for command in (["no-such-program-xyz"], [str(plain)], [str(broken)], [sys.executable, "nul\0"]):
        server = PlatformServer(ours(command), {}, run)
        with pytest.raises(ServerFailed) as failure:
            asyncio.run(server.start(a_life()))
        reasons.append(str(failure.value))
    assert "no-such-program-xyz: no such program" in reasons[0]
    assert "may not be executed" in reasons[1]
    assert "Exec format error" in reasons[2]
    assert "null byte" in reasons[3]
    rows = run.read("servers").to_pylist()
    assert [row["state"] for row in rows] == ["failed"] * 4
    assert {row["pid"] for row in rows} == {None}


def test_a_program_that_is_never_ready_is_named_with_what_it_said_at_last(tmp_path):
    server = server_of(tmp_path, "silent", ready_timeout_s=1.0)
    reason = failing(server)
    assert reason.startswith("it was not ready within 1 s (ready_timeout_s); at last: http://127.0.0.1:")
    assert "cannot be reached" in reason


def test_a_server_that_lists_its_model_while_it_loads_is_waited_for(tmp_path):
    server = server_of(tmp_path, "loading")

    async def work() -> None:
        live = await server.start(a_life())
        assert (live.model, live.simulated, live.time_scale) == ("m", False, 1.0)
        await server.stop()

    asyncio.run(work())
    assert the_row(server)["state"] == "stopped"


@pytest.mark.parametrize(
    ("word", "said"), [("locked", "401: a key, please"), ("dumb", "(400): no chat template")]
)
def test_a_server_that_refuses_is_not_waited_for(tmp_path, word, said):
    assert said in failing(server_of(tmp_path, word, ready_timeout_s=600.0))


def test_a_port_that_another_holds_before_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        reason = failing(server_of(tmp_path, port=port))
    assert reason.startswith(f"port {port} is still in use by pid ")


def test_a_port_that_another_process_answers_is_not_taken_for_the_server(tmp_path):
    """The stranger comes after the look at the port; ours loads meanwhile."""
    server = server_of(tmp_path, "silent")
    port = server.platform.server.endpoint.rpartition(":")[2]
    words = [word.replace("{port}", port) for word in program(tmp_path)]

    async def work() -> str:
        starting = asyncio.create_task(server.start(a_life()))
        while server._process is None:
            await asyncio.sleep(0.01)
        stranger = await asyncio.create_subprocess_exec(
            *words, "--api-key", "sk-x", stdout=asyncio.subprocess.DEVNULL
        )
        await server._process.exited
        assert stranger.returncode is None, "a stranger's server was ended"
        stranger.kill()  # the end of ours waits for the port
        await stranger.wait()
        with pytest.raises(ServerFailed) as failure:
            await starting
        return str(failure.value)

    reason = asyncio.run(work())
    assert f"port {port} is answered by pid " in reason
    assert "not by the server just started" in reason
    assert "sk-x" not in reason
    assert not living(the_row(server)["server_id"])


@pytest.mark.parametrize("leader_goes", [False, True])
def test_a_child_that_left_its_parent_and_session_is_ours_and_is_ended(tmp_path, leader_goes):
    server = server_of(tmp_path, "daemon")

    async def work() -> str | None:
        await server.start(a_life())
        server_id = server.live.server_id
        assert len(living(server_id)) == 2
        death = None
        if leader_goes:
            os.kill(server.live.pid, signal.SIGUSR1)
            death = await server.died()
            await server.bury(death)
        await server.stop()
        assert not living(server_id)
        return death

    death = asyncio.run(work())
    assert death == ("the server died (exit code 0)" if leader_goes else None)
    assert the_row(server)["state"] == ("died" if leader_goes else "stopped")
    assert not is_port_open("127.0.0.1", int(server.platform.server.endpoint.rpartition(":")[2]))


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    server = server_of(tmp_path, "stubborn", stop_timeout_s=0.5)

    async def work() -> None:
        await server.start(a_life())
        await server.stop()

    asyncio.run(work())
    row = the_row(server)
    assert (row["state"], row["exit_code"]) == ("stopped", -9)
    assert not living(row["server_id"])


def test_a_stop_that_is_interrupted_is_finished_by_the_next(tmp_path):
    """Ctrl-C while a server drains: the task that stops it is cancelled, and what is left is the hurried stop."""
    server = server_of(tmp_path, "stubborn", stop_timeout_s=60.0)

    async def work() -> None:
        await server.start(a_life())
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.3)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await server.stop(hurried=True)

    asyncio.run(work())
    row = the_row(server)
    assert (row["state"], row["exit_code"]) == ("stopped", -9)
    assert not living(row["server_id"])


def test_a_start_that_is_interrupted_leaves_no_process_and_one_row(tmp_path):
    server = server_of(tmp_path, "silent")

    async def work() -> None:
        starting = asyncio.create_task(server.start(a_life()))
        while server._process is None:
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await server.stop(hurried=True)

    asyncio.run(work())
    row = the_row(server)
    assert (row["state"], row["failure"]) == ("failed", "interrupted before it was ready")
    assert not living(row["server_id"])


def test_a_disk_that_is_full_when_the_server_is_ready_does_not_leave_it_running(tmp_path):
    server = server_of(tmp_path)
    (tmp_path / "run" / "servers").rename(tmp_path / "gone")

    async def work() -> str:
        with pytest.raises(OSError):
            await server.start(a_life())
        server_id = server.live.server_id
        with pytest.raises(OSError):
            await server.stop(hurried=True)
        return server_id

    assert not living(asyncio.run(work()))


def test_a_death_is_told_and_buried_with_the_log(tmp_path):
    server = server_of(tmp_path)

    async def work() -> str:
        live = await server.start(a_life())
        psutil.Process(live.pid).kill()
        reason = await server.died()
        assert not await server.answers()
        await server.bury(reason)
        assert server.live is None
        return reason

    assert asyncio.run(work()) == "the server died (killed by signal 9)"
    row = the_row(server)
    assert (row["state"], row["exit_code"], row["failure"]) == (
        "died",
        -9,
        "the server died (killed by signal 9)",
    )
    assert '"argv"' in row["log_tail"]


def test_a_server_that_died_before_its_stop_is_not_called_stopped(tmp_path):
    server = server_of(tmp_path)

    async def work() -> None:
        live = await server.start(a_life())
        psutil.Process(live.pid).kill()
        await server.died()
        await server.stop()

    asyncio.run(work())
    assert the_row(server)["state"] == "died"


def test_an_external_server_is_never_touched(tmp_path):
    with SimServer("--time-scale", "20") as sim:
        endpoint = f"http://127.0.0.1:{sim.port}"
        platform = Platform.model_validate(
            {"name": "box", "server": {"control": "external", "endpoint": endpoint}}
        )
        server = PlatformServer(platform, {}, new_run(tmp_path))

        async def work() -> None:
            live = await server.start(a_life())
            assert (live.pid, live.time_scale) == (None, 20)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.died(), 0.1)
            await server.stop(hurried=True)
            await server.stop()
            assert await server.answers()

        asyncio.run(work())
        assert sim.process.poll() is None
    row = the_row(server)
    assert (row["state"], row["control"], row["pid"], row["log_path"]) == ("ready", "external", None, None)


def several(*ports: int) -> Platform:
    endpoints = [{"url": f"http://127.0.0.1:{port}", "weight": at + 1} for at, port in enumerate(ports)]
    return Platform.model_validate({"name": "box", "server": {"control": "external", "endpoints": endpoints}})


def test_several_external_servers_are_one_platform(tmp_path):
    slots = ("--max-running-requests", "8")
    with SimServer(*slots) as sim, SimServer(*slots) as other:
        server = PlatformServer(several(sim.port, other.port), {}, new_run(tmp_path))
        live = asyncio.run(server.start(a_life()))
        assert [(target.endpoint, target.weight) for target in live.targets] == [
            (f"http://127.0.0.1:{sim.port}", 1),
            (f"http://127.0.0.1:{other.port}", 2),
        ]
        assert live.max_running_requests == 16
        assert asyncio.run(server.answers())
        other.process.kill()
        other.process.wait()
        assert not asyncio.run(server.answers())
    assert the_row(server)["endpoint"] == f"http://127.0.0.1:{sim.port} http://127.0.0.1:{other.port}"


def test_servers_with_two_models_or_clocks_are_no_platform(tmp_path):
    with (
        SimServer("--served-model-name", "m") as sim,
        SimServer("--served-model-name", "n") as other,
        SimServer("--served-model-name", "m", "--time-scale", "2") as fast,
    ):
        (tmp_path / "b").mkdir()
        server = PlatformServer(several(sim.port, other.port), {}, new_run(tmp_path))
        assert failing(server) == f"http://127.0.0.1:{other.port} serves n, the first endpoint m"
        server = PlatformServer(several(sim.port, fast.port), {}, new_run(tmp_path / "b"))
        assert "simulated, or at a clock, otherwise" in failing(server)


def test_an_external_server_that_is_gone_is_a_failure_at_once(tmp_path):
    endpoint = f"http://127.0.0.1:{closed_port()}"
    platform = Platform.model_validate(
        {"name": "box", "server": {"control": "external", "endpoint": endpoint}}
    )
    server = PlatformServer(platform, {}, new_run(tmp_path))
    assert "cannot be reached" in failing(server)


def test_logs_of_two_lives_do_not_overwrite_each_other(tmp_path):
    server = server_of(tmp_path)

    async def work() -> None:
        for _ in range(2):
            await server.start(a_life())
            await server.stop()

    asyncio.run(work())
    rows = server._run.read("servers").to_pylist()
    assert len({row["log_path"] for row in rows}) == len({row["pid"] for row in rows}) == 2
    assert all((Path(server._run.path) / row["log_path"]).stat().st_size for row in rows)
