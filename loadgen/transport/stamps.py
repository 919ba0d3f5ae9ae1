"""The kernel's receive stamps of TCP reads (Linux, SO_TIMESTAMPING; Documentation/networking/timestamping.rst).

A read through `recvmsg` carries, as ancillary data, the CLOCK_REALTIME at which the kernel took the last segment of
what was read from the wire. It is right however late this process wakes up.
"""

import socket
import sys

_SO_TIMESTAMPING = 37
_RX_SOFTWARE = 1 << 3
_SOFTWARE = 1 << 4
# A control message with three timespecs: software, (deprecated), hardware.
ANCILLARY_BYTES = 128
STAMP_BYTES = 16


def ask_for_stamps(sock: socket.socket) -> bool:
    """Turns receive stamps on for `sock`; False where the system has none."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
    except OSError:
        return False
    return True
