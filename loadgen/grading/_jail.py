"""Layers of containment for a program's process, each tried by doing it. Runs in the child, so it imports little.

`Namespaces` must come before the fork of the program's process, `lock` in that process before its code.
"""

import ctypes
import math
import os
import resource
import signal
import sys
from typing import Any

from loadgen.grading import _seccomp

_CLONE_NEW = {
    "mount": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000,
}  # fmt: skip
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 8192, 16384, 1 << 18
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_NOBODY = 65534
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin")

libc = ctypes.CDLL(None, use_errno=True)


def guard_self() -> None:
    """For the guard process: other processes of the user may not read it, and orphans of the program become its own."""
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def enter_namespaces(root: str, hidden: str, box_bytes: int) -> None:
    """Own user, pid, network, ipc and uts namespaces, and a file system of read-only system directories, a memory disk
    of `box_bytes` and nothing else. `root`: an empty directory to build it on; `hidden`: a directory kept out.
    The pid namespace begins with the next fork. Raises OSError where the kernel refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    _check(libc.unshare(sum(_CLONE_NEW.values())), "unshare")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{_NOBODY} {uid} 1")
    _write("/proc/self/gid_map", f"{_NOBODY} {gid} 1")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={box_bytes},nr_inodes=4096,mode=755")
    for path in _system_paths():
        _bind_read_only(path, root + path)
    if os.path.isdir(root + hidden):  # noqa: PTH112 - pathlib is not worth its import in each child
        _mount("tmpfs", root + hidden, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4096,mode=555")
    for name in ("/tmp", "/box"):  # noqa: S108 - inside the new root
        os.mkdir(root + name)  # noqa: PTH102 - as above
    os.chdir(root)
    _mount(".", "/", None, _MS_MOVE)
    os.chroot(".")
    os.chdir("/box")


def lock(limits: dict[str, Any], *, in_namespaces: bool) -> str | None:
    """For the program's process: resource limits, no privileges, the system call filter. Returns why there is no filter."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(10)
    _set_limits(limits, in_namespaces=in_namespaces)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    try:
        _seccomp.install(libc)
    except OSError as error:
        return error.strerror
    return None


def _set_limits(limits: dict[str, Any], *, in_namespaces: bool) -> None:
    cpu_s = max(1, math.ceil(limits["cpu_s"]))
    _limit(resource.RLIMIT_CPU, cpu_s)
    _limit(resource.RLIMIT_AS, limits["memory_bytes"] + limits["own_bytes"])
    _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _limit(resource.RLIMIT_NOFILE, limits["open_files"])
    _limit(resource.RLIMIT_CORE, 0)
    if (
        in_namespaces
    ):  # elsewhere it would count all processes of the user; it never binds for the host's root
        _limit(resource.RLIMIT_NPROC, limits["processes"])


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def own_bytes() -> int:
    """Address space of this process now, which the limit comes on top of."""
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - as above
        return int(statm.read().split()[0]) * resource.getpagesize()


def kill_descendants() -> None:
    """Kills and reaps all that is left below this process (a subreaper), until there is nothing."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as listing:  # noqa: PTH123 - as above
            for pid in listing.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _system_paths() -> list[str]:
    wanted = [*_SYSTEM, sys.base_prefix, sys.base_exec_prefix, "/etc/ld.so.cache", *_DEVICES]
    kept: list[str] = []
    for path in wanted:
        if os.path.exists(path) and not any(path == k or path.startswith(k + "/") for k in kept):  # noqa: PTH110 - as above
            kept.append(path)
    return kept


def _bind_read_only(source: str, target: str) -> None:
    if os.path.isdir(source):  # noqa: PTH112 - as above
        os.makedirs(target, exist_ok=True)  # noqa: PTH103 - as above
    else:
        os.makedirs(target.rpartition("/")[0], exist_ok=True)  # noqa: PTH103 - as above
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    _mount(source, target, None, _MS_BIND | _MS_REC)
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = libc.syscall(
        _SYS_MOUNT_SETATTR,
        _AT_FDCWD,
        target.encode(),
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )
    _check(result, f"mount_setattr {source}")


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _prctl(option: int, value: int) -> None:
    _check(libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - as above
        file.write(text)
