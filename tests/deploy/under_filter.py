"""Runs a command under the system calls that a unit refuses, as systemd would have it run.

For tests: `python -m tests.deploy.under_filter kill|refuse COMMAND...`. x86-64 alone.
"""

import ctypes
import os
import struct
import sys

# Of systemd's @resources and @privileged those that libraries are known to try; by number.
CALLS = {
    "mbind": 237, "sched_setaffinity": 203, "setpriority": 141, "setrlimit": 160,
    "set_mempolicy": 238, "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279,
    "sched_setparam": 142, "sched_setscheduler": 144, "sched_setattr": 314,
    "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "chroot": 161,
}  # fmt: skip
KILL, REFUSE, ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER_MODE = 22, 38, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def main(words: list[str]) -> None:
    """Sets the filter and becomes the command."""
    action = {"kill": KILL, "refuse": REFUSE}[words[0]]
    steps = [(LOAD, 0, 0, 0)]
    for number in CALLS.values():
        steps += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, action)]
    steps.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in steps))
    program = _Program(len(steps), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "the filter was refused")
    os.execv(words[1], words[1:])  # noqa: S606 - the test names the command


if __name__ == "__main__":
    main(sys.argv[1:])
