"""Facts of this host, and the versions that made a run."""

import importlib.metadata
import os
import platform
import socket
from typing import Any

import psutil

from cluster.host_checks import HostFacts
from cluster.roles import WorkerFacts
from loadgen.calibration import cpu_model

_VERSIONS = ("loadgen", "ray", "aiohttp", "uvloop", "pyarrow", "pydantic", "numpy")


def environment() -> dict[str, Any]:
    """Versions and host facts, for `environment.json`."""
    return {
        "host": socket.gethostname(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cpus": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS},
    }


def head_row(
    session: str, workers: WorkerFacts | None, facts: HostFacts, *, uses_ray: bool
) -> dict[str, Any]:
    """This host's row of `hosts`."""
    return {
        "host": socket.gethostname(),
        "role": "head",
        "session": session,
        "cpus": psutil.cpu_count() or 0,
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "ray": importlib.metadata.version("ray") if uses_ray else None,
        "load_average": os.getloadavg()[0],
        "worker_niceness": workers.niceness if workers else None,
        "max_open_files": workers.max_open_files if workers else None,
        "ephemeral_ports": facts.ephemeral_ports,
        "listen_backlog": facts.listen_backlog,
        "cpu_governor": ", ".join(facts.cpu_governors) or None,
        "clock_source": facts.clock_source,
        "kernel_stamps": facts.kernel_stamps,
        "memory_available_bytes": facts.memory_available_bytes,
        "disk_free_bytes": facts.disk_free_bytes,
    }
