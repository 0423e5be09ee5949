"""What must be true of a log that compaction may have been at: the newest record of each key is there at its offset,
or a newer one of the key that nobody was told of; of a key whose newest record is a tombstone there may be nothing,
and then nothing older either."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from tests.processes.crash.disk_workload import SentRecord


def wrong_with_newest(
    found: Mapping[int, tuple[bytes | None, bytes | None]],
    acknowledged: Mapping[int, SentRecord],
    start: int,
    may_be_deleted: Callable[[SentRecord], bool],
) -> str | None:
    """What is wrong, in a sentence; None for nothing. `found`: key and value by offset. Retention may have taken what
    is before `start`. `may_be_deleted` is true of a record behind which there may be a tombstone that nobody was told
    of."""
    newest: dict[bytes, int] = {}
    for offset in sorted(acknowledged):
        newest[acknowledged[offset].key or b""] = offset
    present: dict[bytes, list[int]] = defaultdict(list)
    for offset in sorted(found):
        present[found[offset][0] or b""].append(offset)
    for key, offset in newest.items():
        offsets, record = present[key], acknowledged[offset]
        if offset < start or offset in found or (offsets and offsets[-1] > offset):
            continue
        if record.value is not None and not may_be_deleted(record):
            return f"the newest record of {key!r} at {offset} is lost; {offsets} of the key are there"
        if offsets:
            return f"{key!r} was deleted at {offset} or later, and what it was at {offsets[-1]} is back"
    return None
