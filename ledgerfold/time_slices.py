"""The length of a thread's time slices (Linux from 6.12 on).

A thread with a shorter slice than the running one interrupts it as soon as it can run; its share of
the processor stays the same. Threads and processes that are started later inherit the slice.
`set_time_slice(100_000)` sets 0.1 ms, the shortest; `set_time_slice(0)` returns to the system's.
Source: sched_setattr(2), `sched_runtime`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

# The call's number, by machine: the C library has no function for it before glibc 2.41.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")


def set_time_slice(slice_ns: int) -> None:
    """Sets the slice of the calling thread. 0: the system's.

    Does nothing where the kernel cannot do it, or if the operator chose another scheduling policy.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, attributes, 0)
