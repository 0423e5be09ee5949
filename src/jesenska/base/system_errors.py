"""Remedies for errors of the system: a full disk, a process without descriptors, files of another user, and a broken
disk are mended in four different ways."""

from __future__ import annotations

import errno
import os

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM})
#: The remedy for a process that has no descriptors left.
MORE_DESCRIPTORS = "allow this process more open files (ulimit -n, LimitNOFILE)"


def remedy_of(error: OSError) -> str:
    """The remedy, as the end of a sentence: without a full stop."""
    if error.errno in _FULL:
        return "make room on the disk"
    if error.errno in _NO_DESCRIPTORS:
        return MORE_DESCRIPTORS
    if error.errno in _NOT_ALLOWED:
        return "give this user the right to every file in it (chown -R)"
    return "mend the disk"


def is_out_of_descriptors(error: OSError) -> bool:
    """True if the process, or the machine, has as many open files as it may have."""
    return error.errno in _NO_DESCRIPTORS


def has_descriptors(count: int) -> bool:
    """True if so many more files could be opened now: for libraries that do not say why they could open none."""
    opened = []
    try:
        for _ in range(count):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - what was opened before an error is closed
    except OSError as error:
        return not is_out_of_descriptors(error)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def is_passing(error: OSError) -> bool:
    """True if there may be room, or descriptors, again in a moment: nothing is broken."""
    return error.errno in _FULL | _NO_DESCRIPTORS


def cause_of(error: OSError) -> str:
    """The cause, as text in brackets or after a colon."""
    return error.strerror or str(error)
