"""Answers for consumers from before 0.11, and from topics with a `message.format.version` below 0.11: the batches of a
fetch as message sets (Fetch 0 and 1: format v0, 2 and 3: v1).

The records found in the log are a piece of a file, which is not read when it goes to a newer consumer; here it is read
whole and converted, in the pool. Records that do not fit the old formats become an error of the partition: zstd
UNSUPPORTED_COMPRESSION_TYPE, as in Apache Kafka 3.9.1.

A megabyte of memory that is new costs more than a megabyte converted (the kernel clears each page), so each thread
reads into a buffer that it keeps, the messages are written into the memory of the answer, which is used again when
they have left.
"""

from __future__ import annotations

import logging
import os
import threading

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.limits import CONVERSION_BUFFER_MAX_BYTES, CONVERTED_KEPT_MAX, CONVERTED_KEPT_MIN_BYTES
from jesenska.base.regions import FileRegion
from jesenska.records.message_set import from_batches
from jesenska.wire.messages.k01_fetch import FetchResponsePartition

logger = logging.getLogger(__name__)

FIRST_WITH_BATCHES = 4
_FIRST_WITH_V1 = 2


def magic_for(fetch_version: int) -> int | None:
    """The format that a consumer of this version reads; None if that is the log's own."""
    if fetch_version >= FIRST_WITH_BATCHES:
        return None
    return 1 if fetch_version >= _FIRST_WITH_V1 else 0


def refuse(answer: FetchResponsePartition, code: ErrorCode) -> None:
    """Makes it the error answer of a partition whose records cannot be given in the consumer's format."""
    answer.error_code = code
    answer.records = b""
    answer.high_watermark = answer.log_start_offset = -1


class DownConversion:
    """One partition of an answer on its way down; `run` in any thread, once."""

    __slots__ = ("_answer", "_first_offset", "_magic", "region")

    def __init__(self, answer: FetchResponsePartition, region: FileRegion, first_offset: int, magic: int) -> None:
        self._answer = answer
        self.region = region
        self._first_offset = first_offset
        self._magic = magic

    @property
    def size_bytes(self) -> int:
        """Bytes that the records take once they are converted."""
        records = self._answer.records
        return 0 if records is None else len(records)

    def run(self) -> None:
        """Puts the records into the answer, or an error instead. The owner of the region must still release it."""
        answer = self._answer
        answer.records = b""
        try:
            # A small answer would give back only a small buffer, and large answers would get none.
            memory = _answers.take() if self.region.size_bytes >= CONVERTED_KEPT_MIN_BYTES else bytearray()
            with _read(self.region) as batches:
                memory = from_batches(batches, self._magic, self._first_offset, memory)
            answer.records = memoryview(memory)
            _answers.keep(memory)
        except KafkaError as error:
            refuse(answer, error.code)
        except Exception:
            logger.exception(
                "the records from offset %d on could not be converted to format v%d", self._first_offset, self._magic
            )
            refuse(answer, ErrorCode.UNKNOWN_SERVER_ERROR)


class _Answers:
    """Memory of answers: in use while a view of it exists; a bytearray refuses to change its size then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: list[bytearray] = []

    def take(self) -> bytearray:
        """The memory of an answer that has left, or an empty bytearray."""
        with self._lock:
            for index, memory in enumerate(self._memory):
                try:
                    memory.pop()
                except BufferError:
                    continue
                return self._memory.pop(index)
        return bytearray()

    def keep(self, memory: bytearray) -> None:
        """Keeps memory, to be used again once no view of it exists."""
        if CONVERTED_KEPT_MIN_BYTES <= len(memory) <= CONVERSION_BUFFER_MAX_BYTES:
            with self._lock:
                if len(self._memory) < CONVERTED_KEPT_MAX:
                    self._memory.append(memory)


_answers = _Answers()


class _Kept(threading.local):
    """A thread's buffer, as large as its largest need so far, up to a limit."""

    def __init__(self) -> None:
        self.buffer = bytearray()


_kept = _Kept()


def _read(region: FileRegion) -> memoryview:
    """The available bytes of the region; valid until the thread reads the next one."""
    size = region.size_bytes
    buffer = _kept.buffer
    if size > len(buffer):
        buffer = bytearray(size)
        if size <= CONVERSION_BUFFER_MAX_BYTES:
            _kept.buffer = buffer
    view = memoryview(buffer)
    return view[: os.preadv(region.file.fileno(), [view[:size]], region.position)]
