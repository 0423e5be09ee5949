"""The error of a query that has ended because a disk is full: Spark names neither the disk nor a remedy."""

from __future__ import annotations

import os
import shutil
from errno import EDQUOT, ENOSPC
from pathlib import Path

from jesenska.pipeline.streams.errors import StreamsError

_WORDS = tuple(os.strerror(number) for number in (ENOSPC, EDQUOT))
#: The size that a file of a checkpoint may have: a disk with less free space is the full one.
_ROOM_BYTES = 1024 * 1024


def of_a_full_disk(text: str, directory: Path) -> StreamsError | None:
    """Returns the error for Spark's text, one sentence; None if no disk is full. `directory` has the application's
    checkpoints and stores."""
    if not any(words in text for words in _WORDS):
        return None
    try:
        is_ours = shutil.disk_usage(directory).free < _ROOM_BYTES
    except OSError:
        is_ours = False
    which = f"of {directory} (state.dir)" if is_ours else "of Spark's own files (spark.local.dir, java.io.tmpdir)"
    return StreamsError(
        f"the disk {which} is full: make room on it, and start the application again; it goes on where it stopped."
    )
