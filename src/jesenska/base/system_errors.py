"""Causes and remedies of errors of the operating system. A full disk, too many open files, missing rights and a broken
disk each have a different remedy."""

from __future__ import annotations

import errno
import os

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM})
#: The remedy for a process that has reached its limit of open files.
MORE_DESCRIPTORS = "allow this process more open files (ulimit -n, LimitNOFILE)"


def remedy_of(error: OSError) -> str:
    """Returns the remedy for the error, as the end of a sentence without a full stop."""
    if error.errno in _FULL:
        return "make room on the disk"
    if error.errno in _NO_DESCRIPTORS:
        return MORE_DESCRIPTORS
    if error.errno in _NOT_ALLOWED:
        return "give this user the right to every file in it (chown -R)"
    return "mend the disk"


def is_out_of_descriptors(error: OSError) -> bool:
    """Returns true if the process, or the machine, has reached its limit of open files."""
    return error.errno in _NO_DESCRIPTORS


def has_descriptors(count: int) -> bool:
    """Returns true if `count` more files can be opened now. It is for libraries that do not report why they could not
    open a file."""
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
    """Returns true if a later attempt may succeed without a repair: the disk was full, or too many files were open."""
    return error.errno in _FULL | _NO_DESCRIPTORS


def cause_of(error: OSError) -> str:
    """Returns the cause of the error, as text to be put in brackets or after a colon."""
    return error.strerror or str(error)
