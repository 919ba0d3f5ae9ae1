"""The system call filter of a program's process: no new process, no exec, no socket, nothing done to other processes.

A deny list (x86-64 only): the rest of the kernel stays reachable. Runs in the child, so it imports little.
"""

import ctypes
import errno
import os
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF: ld abs, jeq, jge, jset, ret
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000  # SECCOMP_RET_*
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16  # struct seccomp_data
_PR_SET_SECCOMP, _FILTER_MODE = 22, 2

_CLONE, _CLONE3 = 56, 435
# Allowed on the process itself only (0 means itself for prlimit64, and the process group for kill).
_ON_SELF = {"kill": 62, "tgkill": 234, "prlimit64": 302}
_DENIED = {
    "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "socket": 41,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "tkill": 200,
    "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "pidfd_open": 434, "pidfd_send_signal": 424, "pidfd_getfd": 438,
    "setpriority": 141, "sched_setaffinity": 203, "personality": 135,
    "unshare": 272, "setns": 308, "chroot": 161, "pivot_root": 155, "mount": 165, "umount2": 166, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsmount": 432, "mount_setattr": 442, "open_by_handle_at": 304,
    "memfd_create": 319, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "userfaultfd": 323,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "bpf": 321, "perf_event_open": 298,
    "add_key": 248, "request_key": 249, "keyctl": 250, "swapon": 167, "reboot": 169, "kexec_load": 246,
    "init_module": 175, "finit_module": 313,
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(libc: ctypes.CDLL) -> None:
    """Puts the filter on this process for good. Needs no_new_privs; raises OSError where it is not possible."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, f"no filter for {os.uname().machine}")
    code = _program(os.getpid())
    program = _Program(len(code) // 8, code)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp filter refused")


def _program(own_pid: int) -> bytes:
    refused = _ERRNO | errno.EPERM
    lines = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, _ARCH_X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *_if_then(_AT_LEAST, _X32_BIT, _KILL),
        *_if_then(_EQUAL, _CLONE3, _ERRNO | errno.ENOSYS),  # the C library then uses clone
        *(line for number in _DENIED.values() for line in _if_then(_EQUAL, number, refused)),
        (_EQUAL, 0, 3, _CLONE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, refused),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for name, number in _ON_SELF.items():
        also = 0 if name == "prlimit64" else own_pid
        lines += [
            (_EQUAL, 0, 5, number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
            (_EQUAL, 2, 0, own_pid),
            (_EQUAL, 1, 0, also),
            (_RETURN, 0, 0, refused),
            (_RETURN, 0, 0, _ALLOW),
        ]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _if_then(test: int, value: int, result: int) -> list[tuple[int, int, int, int]]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, result)]
