"""The error of a query that has ended because a disk is full. Spark's own error names neither the disk nor a
remedy."""

from __future__ import annotations

import os
import shutil
from errno import EDQUOT, ENOSPC
from pathlib import Path

from jesenska.pipeline.streams.errors import StreamsError

_WORDS = tuple(os.strerror(number) for number in (ENOSPC, EDQUOT))
#: The possible size of a checkpoint file. If a disk has less free space, it is the full disk.
_ROOM_BYTES = 1024 * 1024


def of_a_full_disk(text: str, directory: Path) -> StreamsError | None:
    """Returns an error that names the full disk, if Spark's error text says that a disk is full. Otherwise returns
    None. `directory` contains the application's checkpoints and stores."""
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
