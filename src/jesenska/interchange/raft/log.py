"""Reads the metadata log of an Apache Kafka node in KRaft mode from its directory: the newest complete snapshot, and
the records of the log after it.

    __cluster_metadata-0/00000000000000000125-0000000001.checkpoint    the state before offset 125, of epoch 1
    __cluster_metadata-0/00000000000000000000.log                      records, as in any log

Both files consist of batches. Records of a metadata transaction are used only if the transaction's end is in the log.
Data after the last complete batch of the log was never acknowledged. A node does not store the offset up to which the
quorum has committed. So all complete batches are read, as the node itself would do if it became the leader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from jesenska.base.errors import CorruptMessageError, JesenskaError, KafkaError
from jesenska.interchange.mapped_file import content_of
from jesenska.interchange.raft.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    LeaderChangeMessage,
    MetadataRecord,
    SnapshotFooterRecord,
    UnknownRecordError,
    VotersRecord,
    read_control,
    read_record,
)
from jesenska.log.segments.segment import LOG_SUFFIX
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.records.header import BatchHeader
from jesenska.records.record import Record

_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"\d{20}\.log")

Progress = Callable[[str], None]


class RaftLog:
    """A KRaft metadata log. Iterate over `records` first; after that, `end_offset`, `epoch` and `voters` have their
    values."""

    def __init__(self, directory: Path, progress: Progress = lambda text: None) -> None:
        self._directory = directory
        self._progress = progress
        #: The offset after the last record, and the leader epoch of the last batch.
        self.end_offset = 0
        self.epoch = 0
        #: The number of voters of the quorum. If there are several, the last records of the log may not be committed.
        self.voters = 0

    def records(self) -> Iterator[MetadataRecord]:
        """Yields the records of the snapshot and of the log after it, in order. Records of aborted or unfinished
        transactions are left out. Raises JesenskaError with one sentence if a record cannot be read."""
        begin = 0
        if (found := self._snapshot()) is not None:
            path, begin = found
            yield from self._file(path, 0)
        self.end_offset = max(self.end_offset, begin)
        pending: list[MetadataRecord] | None = None
        for path in self._segments(begin):
            for record in self._file(path, begin):
                match record.message:
                    case BeginTransactionRecord():
                        pending = []
                    case EndTransactionRecord():
                        yield from pending or ()
                        pending = None
                    case AbortTransactionRecord():
                        pending = None
                    case _ if pending is not None:
                        pending.append(record)
                    case _:
                        yield record

    def _snapshot(self) -> tuple[Path, int] | None:
        """Returns the newest complete snapshot and the offset at which the log continues after the snapshot. Returns
        None if there is no complete snapshot."""
        found = sorted(
            (match[1], match[2], path)
            for path in self._directory.iterdir()
            if (match := _CHECKPOINT.fullmatch(path.name)) is not None
        )
        for offset, epoch, path in reversed(found):
            if _ends_in_footer(path):
                self.epoch = int(epoch)
                return path, int(offset)
        return None

    def _segments(self, begin: int) -> list[Path]:
        """Returns the segments of the log from the offset `begin` on. Raises JesenskaError if the log begins after
        this offset."""
        every = sorted(path for path in self._directory.iterdir() if _SEGMENT.fullmatch(path.name))
        if every and int(every[0].stem) > begin:
            raise JesenskaError(
                f"The metadata log in {self._directory} begins with offset {int(every[0].stem)}, and no snapshot has "
                "the records before it: start Kafka with it once more, stop Kafka, then import."
            )
        return [
            path for number, path in enumerate(every) if number + 1 == len(every) or int(every[number + 1].stem) > begin
        ]

    def _file(self, path: Path, begin: int) -> Iterator[MetadataRecord]:
        """Yields the records of one file from the offset `begin` on, up to the first incomplete batch."""
        self._progress(f"reading {path.name}")
        for header, records in _batches(path):
            if header.last_offset < begin:
                continue
            if path.name.endswith(LOG_SUFFIX):
                self.end_offset, self.epoch = header.next_offset, max(self.epoch, header.partition_leader_epoch)
            for record in records:
                if record.offset < begin:
                    continue
                try:
                    if header.is_control:
                        self._take_control(record)
                    else:
                        yield read_record(record.value)
                except UnknownRecordError as error:
                    raise JesenskaError(
                        f"The record at offset {record.offset} of {path} is of a newer release ({error.message}): "
                        f"import it with a newer release of jesenska."
                    ) from error
                except CorruptMessageError as error:
                    raise JesenskaError(
                        f"The record at offset {record.offset} of {path} is damaged ({error.message}): restore a copy."
                    ) from error

    def _take_control(self, record: Record) -> None:
        found = read_control(record)
        if found is not None and isinstance(found.message, LeaderChangeMessage | VotersRecord):
            self.voters = len(found.message.voters)


def _batches(path: Path) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yields the headers and records of a file's batches, up to the first incomplete batch."""
    data = content_of(path)
    try:
        for position, header in iter_headers(data):
            yield header, decode_batch(data, position, header=header)
    except KafkaError:
        return


def _ends_in_footer(path: Path) -> bool:
    last: MetadataRecord | None = None
    try:
        for header, records in _batches(path):
            last = read_control(records[-1]) if header.is_control and records else None
    except CorruptMessageError:
        return False
    return last is not None and isinstance(last.message, SnapshotFooterRecord)
