"""The rules of a log that may have been compacted. The newest record of each key is there at its offset, or a newer
record of the key that was not acknowledged. If the newest record of a key is a tombstone, the key may have no record,
and then it has no older one either."""

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
    """Returns the mistake in a sentence, or None. `found`: key and value by offset. Retention may have deleted the
    records before `start`. `may_be_deleted` is true of a record after which there may be a tombstone that was not
    acknowledged."""
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
