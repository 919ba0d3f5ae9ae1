"""Makes sure that a run can begin: external servers answer, and the ports of ours are free."""

from functools import partial

from cluster import processes
from cluster.commands import address, key_of
from loadgen.endpoint import open_endpoint
from loadgen.errors import RunFailed
from loadgen.spec import Clients, ExternalServer, Platform

_GRACE_S = 3.0
_PORT_S = 30.0


async def preflight(platform: Platform) -> list[str]:
    """Stops what dead head nodes left for the platform's port, and says so, a line for each. Raises RunFailed."""
    server = platform.server
    if server.api_key_env and not key_of(server):
        raise RunFailed(
            f"{server.endpoint}: the variable {server.api_key_env} (api_key_env) is not set; export it"
        )
    if isinstance(server, ExternalServer):
        for target in server.targets:
            async with open_endpoint(target.url, key_of(server)) as endpoint:
                await endpoint.models()
        return []
    host, port = address(server.endpoint)
    try:
        stopped = await _stop_orphans(port)
        is_busy = not await processes.port_closed(host, port, _PORT_S if stopped else 0)
    except OSError as error:
        raise RunFailed(
            f"platform {platform.name}: {host} is no address to start a server on ({error})"
        ) from error
    if is_busy:
        holder = processes.listener(port)
        who = processes.describe(holder) if holder else "a process that we may not see"
        raise RunFailed(
            f"platform {platform.name}: port {port} is in use by {who}; stop it, change the endpoint, "
            "or use control: external to measure it as it is"
        )
    return stopped


def check_cores(clients: Clients, platforms: int, cores: int) -> bool:
    """Whether load workers would share cores: each needs one, and the coordinator another. Raises RunFailed for a
    config that does not allow it.
    """
    workers = platforms * clients.most_workers
    if cores > workers:
        return False
    if not clients.allow_shared_cores:
        raise RunFailed(
            f"{workers} load worker(s) and the coordinator need {workers + 1} cores, this host has {cores}: lower "
            "clients.workers_per_platform, or set clients.allow_shared_cores: true (the cells are marked then)"
        )
    return True


async def _stop_orphans(port: int) -> list[str]:
    said = []
    for life, process in processes.orphans(port).items():
        who = processes.describe(process)
        find = partial(processes.members, life, processes.session(process.pid))
        await processes.stop_all(find, _GRACE_S)
        said.append(f"{life} was left running by a loadgen that is dead; stopped ({who})")
    return said
