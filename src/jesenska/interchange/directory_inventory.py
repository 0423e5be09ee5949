"""Reads an inventory from a broker's log directories: the partitions with their offsets and epochs. The directories
are not changed. A log that was not closed cleanly is recovered by the broker's next start, not here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jesenska.base.errors import CorruptMessageError, JesenskaError, UnsupportedForMessageFormatError
from jesenska.base.identifiers import TopicPartition
from jesenska.interchange.inventory import NO_EPOCH, Inventory, Replica
from jesenska.interchange.kafka_directories import KafkaDirectory, all_partitions, broker_of, cluster_of
from jesenska.interchange.mapped_file import content_of
from jesenska.log.disk.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, OffsetCheckpoint
from jesenska.log.disk.epochs_file import read_leader_epochs
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.recovery import scan_batches
from jesenska.log.segments.producer_snapshots import snapshot_offsets
from jesenska.log.segments.producer_state import decode_snapshot
from jesenska.log.segments.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from jesenska.records.batch import iter_headers
from jesenska.records.codec import BatchScan
from jesenska.records.decode import decode_batch
from jesenska.records.header import BatchHeader
from jesenska.transactions.records import TRANSACTIONS_TOPIC, read_record

_NO_PRODUCER_ID = -1
#: The distance in bytes between two index entries in a scan of batches. It is very large, because no index is needed
#: here.
_INDEX_INTERVAL_BYTES = 1 << 30


def take(
    directories: Sequence[KafkaDirectory], files: FileLayer, progress: Callable[[str], None] = lambda text: None
) -> Inventory:
    """Returns the inventory of one broker's log directories. Raises JesenskaError if the directories do not belong to
    the same broker, or if a log cannot be read."""
    broker_id, cluster_id = broker_of(directories, None), cluster_of(directories)
    if cluster_id is None:
        raise JesenskaError(
            f"{directories[0].path} names no cluster (cluster.id in meta.properties): name a directory of a broker "
            f"since 0.10.1."
        )
    all_partitions(directories)  # raises an error if a partition is there twice
    replicas: dict[TopicPartition, Replica] = {}
    compacted: set[str] = set()
    producer_id = _NO_PRODUCER_ID
    for directory in directories:
        starts = OffsetCheckpoint(directory.path / LOG_START_OFFSETS, files).read()
        compacted.update(
            at.topic
            for at in OffsetCheckpoint(directory.path / CLEANER_OFFSETS, files).read()
            if at in directory.partitions
        )
        for at, topic_id in directory.partitions.items():
            path = directory.path / f"{at.topic}-{at.partition}"
            try:
                found = _LogFacts(path, files)
                if at.topic == TRANSACTIONS_TOPIC:
                    producer_id = max(producer_id, _newest_of_transactions(path, found.segments))
            except (UnsupportedForMessageFormatError, CorruptMessageError, OSError) as error:
                raise JesenskaError(
                    f"The log in {path} cannot be read ({error}): start its broker once to mend it, or move the "
                    f"directory away."
                ) from error
            start = min(max(found.start, starts.get(at, 0)), found.end)
            replicas[at] = Replica(
                topic_id, start, found.end, found.last_epoch, max(found.last_epoch, found.newest_epoch)
            )
            producer_id = max(producer_id, found.producer_id)
            progress(f"{len(replicas)} partitions looked at")
    return Inventory(cluster_id, broker_id, replicas, producer_id, frozenset(compacted))


class _LogFacts:
    """The facts about one partition's log, read from its files. Only the newest segment is read batch by batch, up to
    the last batch that is complete and readable."""

    def __init__(self, directory: Path, files: FileLayer) -> None:
        self.segments = sorted(
            int(number)
            for name in files.names(directory)
            if name.endswith(LOG_SUFFIX) and (number := name.removesuffix(LOG_SUFFIX)).isdigit()
        )
        #: `start` is the base offset of the first segment, and `end` is the offset after the last batch.
        self.start = self.end = 0
        #: `last_epoch` is the leader epoch of the last batch, `newest_epoch` the newest leader epoch that the log's
        #: files contain.
        self.last_epoch = NO_EPOCH
        self.producer_id = _newest_of_snapshots(directory, files)
        table = read_leader_epochs(directory, files)
        epochs = [] if table is None else table.entries()
        self.newest_epoch = max((epoch for epoch, _ in epochs), default=NO_EPOCH)
        if self.segments:
            self.start = self.segments[0]
            self._read_last(directory / file_name(self.segments[-1], LOG_SUFFIX), self.segments[-1], files)
        if self.last_epoch == NO_EPOCH:
            self.last_epoch = max((epoch for epoch, offset in epochs if offset < self.end), default=NO_EPOCH)

    def _read_last(self, path: Path, base_offset: int, files: FileLayer) -> None:
        scan = BatchScan(base_offset, _INDEX_INTERVAL_BYTES, NO_EPOCH)
        newest = [self.last_epoch]

        def take_epochs() -> None:
            newest.extend(epoch for epoch, _ in scan.take_epochs())

        descriptor = files.open(path, 0)
        try:
            size = files.size(descriptor)
            result = scan_batches(files, descriptor, size, scan, take_epochs)
            self.end = max(base_offset, result.next_offset)
        finally:
            files.close(descriptor)
        self.last_epoch = max(newest)
        for _, header in _whole_batches(content_of(path)):
            self.producer_id = max(self.producer_id, header.producer_id)


def _whole_batches(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of a segment's batches, up to the first incomplete or unreadable batch."""
    try:
        yield from iter_headers(data)
    except (CorruptMessageError, UnsupportedForMessageFormatError):
        return  # the broker's next start cuts off everything after the last good batch


def _newest_of_snapshots(directory: Path, files: FileLayer) -> int:
    offsets = snapshot_offsets(directory, files)
    newest = _NO_PRODUCER_ID
    for offset in offsets:
        try:
            entries = decode_snapshot(files.read_file(directory / file_name(offset, SNAPSHOT_SUFFIX)), 0)
        except CorruptMessageError:
            continue  # torn by a crash: the broker's next start ignores it, too
        newest = max([newest, *(entry.producer_id for entry in entries)])
    return newest


def _newest_of_transactions(directory: Path, segments: Sequence[int]) -> int:
    """Returns the newest producer id in the records of __transaction_state. The id of a transactional producer that
    has not written any record appears only there."""
    newest = _NO_PRODUCER_ID
    for offset in segments:
        data = content_of(directory / file_name(offset, LOG_SUFFIX))
        for position, header in _whole_batches(data):
            for record in decode_batch(data, position, verify=False, header=header):
                said = None if record.key is None else read_record(record.key, record.value)
                if said is not None and said.value is not None:
                    value = said.value
                    newest = max(newest, value.producer_id, value.previous_producer_id, value.next_producer_id)
    return newest
