"""Converts record batches to message sets, for consumers older than Kafka 0.11 and for topics with a
`message.format.version` below 0.11. Fetch 0 and 1 get format v0, Fetch 2 and 3 get v1.

For a newer consumer the broker sends a piece of the log's file without reading it. For an old consumer the thread pool
reads the whole piece and converts it. If the records do not fit the old format the partition gets an error: zstd gives
UNSUPPORTED_COMPRESSION_TYPE, as in Apache Kafka 3.9.1.

To allocate a megabyte costs more than to convert a megabyte, because the kernel clears each new page. So each thread
keeps the buffer into which it reads. The memory of an answer is used again once the answer has been sent.
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
    """Returns the magic of the format that a Fetch of this version reads; None if no conversion is needed."""
    if fetch_version >= FIRST_WITH_BATCHES:
        return None
    return 1 if fetch_version >= _FIRST_WITH_V1 else 0


def refuse(answer: FetchResponsePartition, code: ErrorCode) -> None:
    """Turns the answer into an error: the partition's records cannot be given in the consumer's format."""
    answer.error_code = code
    answer.records = b""
    answer.high_watermark = answer.log_start_offset = -1


class DownConversion:
    """The conversion of one partition's records in an answer. Call `run` once, in any thread."""

    __slots__ = ("_answer", "_first_offset", "_magic", "region")

    def __init__(self, answer: FetchResponsePartition, region: FileRegion, first_offset: int, magic: int) -> None:
        self._answer = answer
        self.region = region
        self._first_offset = first_offset
        self._magic = magic

    @property
    def size_bytes(self) -> int:
        """The size of the answer's records in bytes, after the conversion."""
        records = self._answer.records
        return 0 if records is None else len(records)

    def run(self) -> None:
        """Puts the converted records into the answer, or an error instead. The caller must still release the
        region."""
        answer = self._answer
        answer.records = b""
        try:
            # Only large answers use kept memory: a small one would give back a buffer too small for a large one.
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
    """Memory of earlier answers, kept to be used again. Memory is in use while a view of it exists: a bytearray
    refuses to change its size then, which is how `take` finds out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: list[bytearray] = []

    def take(self) -> bytearray:
        """Returns the memory of an answer that has been sent; an empty bytearray if there is none."""
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
    """The read buffer of a thread: as large as the largest region that it has read, up to a limit."""

    def __init__(self) -> None:
        self.buffer = bytearray()


_kept = _Kept()


def _read(region: FileRegion) -> memoryview:
    """Reads the bytes of the region that the file still has. The view is valid until the thread's next read."""
    size = region.size_bytes
    buffer = _kept.buffer
    if size > len(buffer):
        buffer = bytearray(size)
        if size <= CONVERSION_BUFFER_MAX_BYTES:
            _kept.buffer = buffer
    view = memoryview(buffer)
    return view[: os.preadv(region.file.fileno(), [view[:size]], region.position)]
