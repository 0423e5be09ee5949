"""What a person does about an error of the system: a disk without room, a process without descriptors, files that are
another user's, and a disk that is broken are four different things to mend."""

from __future__ import annotations

import errno

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM})


def remedy_of(error: OSError) -> str:
    """What is to be done, as the end of a sentence: without a full stop."""
    if error.errno in _FULL:
        return "make room on the disk"
    if error.errno in _NO_DESCRIPTORS:
        return "allow this process more open files (ulimit -n, LimitNOFILE)"
    if error.errno in _NOT_ALLOWED:
        return "give this user the right to every file in it (chown -R)"
    return "mend the disk"


def told(error: OSError) -> str:
    """The cause, as it stands in brackets or behind a colon."""
    return error.strerror or str(error)
