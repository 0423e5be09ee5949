"""Loads one partition of a coordinator's topic into its shard (the coordinator's part for this partition), in small
pieces, between which other work of the event loop runs.

A damaged batch (wrong CRC, offsets or records) is skipped and reported in the log, and the batches after it are read.
If the start of the next batch cannot be found, reading continues at the next segment. The records of a damaged batch
are lost: their keys have the values of earlier records. If the disk cannot be read, loading ends with an error, and
the caller tries again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from jesenska.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedForMessageFormatError
from jesenska.base.regions import FileRegion
from jesenska.coordination.loading import Loading
from jesenska.coordination.shard import OfTransaction
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log, warm_up_for
from jesenska.log.segments.checked_batches import DamagedRecordsError
from jesenska.log.segments.segment import ColdError
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.records.record import Record

logger = logging.getLogger(__name__)

#: The maximum number of bytes of the log that are read at once.
_LOAD_BYTES = 4 * 1024 * 1024
#: The maximum number of records per iteration of the event loop whose keys are examined. The same limit applies to
#: records that are applied.
_LOAD_KEYS = 2000
_LOAD_RECORDS = 200
#: The maximum number of damaged batches that are reported one by one; further damaged batches are only counted.
_LOGGED_MAX = 10
_DAMAGE = (CorruptMessageError, InvalidRecordError, UnsupportedForMessageFormatError)


class TakeInOpen(Protocol):
    """A function that is called with a record of an open transaction."""

    def __call__(self, record: Record, of: OfTransaction, counts: bool) -> None: ...


class Reading(NamedTuple):
    """The means to read a log: the threads that wait for the disk, and the function that reads the bytes of a region
    in these threads."""

    executor: Executor
    read_region: Callable[[FileRegion], bytes]


class Loader:
    """Loads one partition; `run` may be called once. `take_in` is called with each valid record, in order; it raises
    CorruptMessageError for a record that cannot be decoded. `take_in_open` is called at the end, with each record of a
    transaction that is still open. Its arguments are the record, the transaction, and True if the record becomes valid
    when the transaction is committed. `lost` is a sentence for the broker's log about the consequences of a damaged
    batch."""

    def __init__(
        self,
        log: PartitionLog,
        reading: Reading,
        take_in: Callable[[Record], None],
        lost: str,
        take_in_open: TakeInOpen = lambda record, of, counts: None,
    ) -> None:
        self._log = log
        self._reading = reading
        self._take_in = take_in
        self._take_in_open = take_in_open
        self._lost = lost
        self._loading = Loading()
        self._damaged = 0
        #: The number of records that were read.
        self.count = 0
        self._unread = 0

    async def run(self) -> None:
        """Reads and applies every record up to the log end offset. Raises KafkaError or OSError if the disk cannot be
        read."""
        log = self._log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            try:
                moved = await self._read(offset, end)
            except DamagedRecordsError as error:
                self._tell_damage(
                    f"offsets {offset} to {error.next_offset - 1} are passed over: {str(error).rstrip('.')}"
                )
                moved = error.next_offset
            except _DAMAGE as error:
                self._tell_damage(
                    f"what follows offset {offset} cannot be read: {error}; its segment is passed over from there on"
                )
                moved = offset
            if moved <= offset:
                moved = min(
                    (segment.base_offset for segment in log.segments if segment.base_offset > offset), default=end
                )
            offset = moved
        topic_partition = log.topic_partition
        if self._damaged > _LOGGED_MAX:
            logger.error(
                "%s: %d places are damaged, the first %d are told above", topic_partition, self._damaged, _LOGGED_MAX
            )
        for number, (record, of, counts) in enumerate(self._loading.left_open()):
            self._replay_open(record, of, counts)
            if number % _LOAD_RECORDS == 0:
                await asyncio.sleep(0)

    async def _read(self, offset: int, end: int) -> int:
        """Reads and applies one piece of the log. Returns the offset after its last complete batch, or `offset` if
        there is no complete batch."""
        data = await self._piece(offset, end)
        moved = offset
        try:
            for position, header in iter_headers(data):
                if header.last_offset < offset:
                    continue
                follows = moved < header.next_offset <= end
                try:
                    records = decode_batch(data, position, header=header)
                    if not follows:
                        raise CorruptMessageError(f"it says that it ends with offset {header.last_offset}")
                    self._loading.take(header, records)
                except _DAMAGE as error:
                    self._tell_damage(f"the batch with offset {header.base_offset} is passed over: {error}")
                else:
                    self.count += len(records)
                    self._unread += len(records)
                if follows:
                    moved = header.next_offset
                if self._unread >= _LOAD_KEYS:
                    self._unread = 0
                    await asyncio.sleep(0)
        finally:
            for number, record in enumerate(self._loading.settled()):
                self._replay(record)
                if number % _LOAD_RECORDS == 0:
                    await asyncio.sleep(0)
        if moved == offset and data:
            raise CorruptMessageError("no whole batch is there")
        return moved

    async def _piece(self, offset: int, end: int) -> bytes:
        log, reading, loop = self._log, self._reading, asyncio.get_running_loop()
        try:
            region = read_log(log, offset, _LOAD_BYTES, end, wait=False).region
        except ColdError:
            warm_up = warm_up_for(log, offset)
            await loop.run_in_executor(reading.executor, warm_up.run)
            warm_up.done()
            region = read_log(log, offset, _LOAD_BYTES, end).region
        if region is None:
            return b""
        try:
            return await loop.run_in_executor(reading.executor, reading.read_region, region)
        finally:
            region.release()

    def _replay(self, record: Record) -> None:
        try:
            self._take_in(record)
        except _DAMAGE as error:
            self._tell_damage(f"the record at offset {record.offset} is passed over: {error}")

    def _replay_open(self, record: Record, of: OfTransaction, counts: bool) -> None:
        try:
            self._take_in_open(record, of, counts)
        except _DAMAGE as error:
            self._tell_damage(f"the record at offset {record.offset} is passed over: {error}")

    def _tell_damage(self, what: str) -> None:
        self._damaged += 1
        if self._damaged <= _LOGGED_MAX:
            logger.error("%s: %s. %s", self._log.topic_partition, what, self._lost)
