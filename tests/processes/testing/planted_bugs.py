"""Mistakes that are made on purpose, for a simulation to find.

`JESENSKA_PURE=1 python -m tests.processes.testing.planted_bugs NAME [FIRST [SEEDS]]` prints the first seed that fails,
and why. Exit code 1 if none of so many does, 2 if one fails with other words than it should."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from jesenska.base.errors import ErrorCode
from jesenska.broker.stages import tree
from jesenska.client.membership.membership import Membership
from jesenska.client.producer import Producer
from jesenska.coordination.loader import Loader
from jesenska.coordination.operations import Append, Appended
from jesenska.coordination.runtime import Runtime
from jesenska.groups.offsets.group_offsets import GroupOffsets
from jesenska.log.compaction.cleaning import _CleanedFile
from jesenska.log.partition import leader_appends
from jesenska.log.partition.recovery import LogLoader
from jesenska.log.segments.producer_state import ProducerState
from jesenska.records.pure._pcompaction import KeyOffsets, _BriefReader
from jesenska.replication.replicas import Replicas
from jesenska.testing.simulation.machine.disk import SimulatedFiles
from jesenska.testing.simulation.schedule import simulation
from tests.processes.testing.planted_search import failure_of, first_and_seeds, first_failure

_LATE_SECONDS = 0.3


def answered_before_it_is_written() -> None:
    """The bytes of a segment reach the file some time after the answer."""
    write = SimulatedFiles.write_all

    def write_now(path: str, data: bytes, position: int) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        os.pwrite(descriptor, data, position)
        os.close(descriptor)

    def write_later(self: SimulatedFiles, descriptor: int, data: Any, position: int) -> None:
        loop = asyncio._get_running_loop()
        if loop is not None and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            kept, path = bytes(data), os.readlink(f"/proc/self/fd/{descriptor}")
            loop.call_later(_LATE_SECONDS, write_now, path, kept, position)
        else:
            write(self, descriptor, data, position)

    SimulatedFiles.write_all = write_later  # type: ignore[assignment, method-assign]


def answered_before_it_is_synced() -> None:
    """The answer does not wait for flush.messages=1."""
    leader_appends.waits_for_sync = lambda log, result: False


def sent_again_and_written_twice() -> None:
    """A batch that is already in the log is treated as a new one."""
    check = ProducerState.check

    def check_less(self: ProducerState, header: Any) -> None:
        check(self, header)

    ProducerState.check = check_less  # type: ignore[method-assign]


def producers_are_forgotten_at_a_restart() -> None:
    """A batch that was written before a restart and is sent again after it is treated as a new one."""
    LogLoader.load_producers = lambda self, *arguments: None  # type: ignore[method-assign]


def a_commit_is_answered_before_it_is_appended() -> None:
    append = Runtime._append

    def answer_first(self: Runtime[Any], hosted: Any, effect: Append, now_ms: int) -> Any:
        self._loop.call_later(_LATE_SECONDS, append, self, hosted, effect, now_ms)
        return Appended(effect.number)

    Runtime._append = answer_first  # type: ignore[assignment, method-assign]


def commits_are_replayed_backwards() -> None:
    replay, run = Loader._replay, Loader.run
    kept: dict[Loader, list[Any]] = {}

    async def run_backwards(self: Loader) -> None:
        kept[self] = []
        await run(self)
        for record in reversed(kept.pop(self)):
            replay(self, record)

    Loader._replay = lambda self, record: kept[self].append(record)  # type: ignore[method-assign]
    Loader.run = run_backwards  # type: ignore[method-assign]


def a_torn_tail_is_kept() -> None:
    """At a start, recovery does not check the content of the disk."""
    LogLoader._recover = lambda self, segments, epochs: segments  # type: ignore[method-assign]


def the_high_watermark_goes_back() -> None:
    Replicas.next_high_watermark = lambda self, current, end, now_ms: end - 5 * (end % 50 == 0)  # type: ignore[assignment, method-assign]


def a_partition_has_two_owners() -> None:
    share_out = Membership._share_out

    def share_out_twice(self: Membership, protocol: str, members: Any) -> Any:
        shared = share_out(self, protocol, members)
        everything = sorted({key for keys in shared.values() for key in keys})
        return {member: [*keys, *(key for key in everything[:1] if key not in keys)] for member, keys in shared.items()}

    Membership._share_out = share_out_twice  # type: ignore[method-assign]


def any_generation_may_commit() -> None:
    GroupOffsets._refuse_commit = lambda self, event, now: ErrorCode.NONE  # type: ignore[method-assign]


def written_out_of_order() -> None:
    """A producer sends the records that it has collected for a partition in reverse order, without sequence numbers,
    by which the broker could refuse them."""
    start = Producer._start_sending

    def start_backwards(self: Producer) -> None:
        self.idempotent = False
        for queue in self._queues.values():
            if len(queue.queue) > 1 and not queue.busy:
                queue.queue.rotate(1)
        start(self)

    Producer._start_sending = start_backwards  # type: ignore[method-assign]


def what_is_compacted_is_not_synced() -> None:
    _CleanedFile.sync = lambda self, modified_ms: self.segment.file.close()  # type: ignore[method-assign]


def a_tombstone_deletes_nothing() -> None:
    """A tombstone is removed when its time is over, and the records before it stay."""

    def add_values(self: KeyOffsets, body: Any, count: int, base_offset: int, from_offset: int) -> int:
        reader = _BriefReader(bytes(body))
        for _ in range(count):
            record = reader.brief()
            if record.key is not None and not record.is_tombstone and base_offset + record.offset_delta >= from_offset:
                self._offsets[record.key] = base_offset + record.offset_delta
        return count

    KeyOffsets.add_records = add_values  # type: ignore[method-assign]


def metadata_of_no_bytes_are_taken_for_new_ones() -> None:
    """An empty metadata file is started from scratch beside directories that hold partitions."""
    tree.refuse_empty_tree = lambda *arguments, **more: None  # type: ignore[attr-defined]


#: Each mistake, and words that the simulation must report for it.
BUGS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    plant.__name__: (plant, words)
    for plant, words in (
        (answered_before_it_is_written, ("acknowledged",)),
        (answered_before_it_is_synced, ("acknowledged",)),
        (sent_again_and_written_twice, ("stands at offset",)),
        (producers_are_forgotten_at_a_restart, ("stands at offset",)),
        (
            a_commit_is_answered_before_it_is_appended,
            ("has committed offset", "is not given the offsets", "reads offset"),
        ),
        (commits_are_replayed_backwards, ("has committed offset", "is not given the offsets", "reads offset")),
        (a_torn_tail_is_kept, ("does not start", "acknowledged")),
        (the_high_watermark_goes_back, ("the high watermark of",)),
        (a_partition_has_two_owners, ("belongs to",)),
        (any_generation_may_commit, ("has committed offset", "is not given the offsets", "reads offset")),
        (written_out_of_order, ("stands behind its record", "stands at offset")),
        (what_is_compacted_is_not_synced, ("has lost the newest", "is damaged", "has committed offset")),
        (a_tombstone_deletes_nothing, ("which was deleted at",)),
        (metadata_of_no_bytes_are_taken_for_new_ones, ("starts with a metadata file of no bytes",)),
    )
}


def search(name: str, first: int, seeds: int) -> int:
    """Makes the mistake and searches for a seed that finds it. Returns the exit code."""
    plant, words = BUGS[name]
    plant()
    return first_failure(simulation, words, first, seeds)


def main() -> int:
    logging.disable(logging.CRITICAL)
    assert failure_of(simulation(1)) is None, "the broker has a mistake already"
    return search(sys.argv[1], *first_and_seeds())


if __name__ == "__main__":
    sys.exit(main())
