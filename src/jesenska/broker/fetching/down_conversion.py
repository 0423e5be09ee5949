"""Converts record batches to message sets, for consumers older than Kafka 0.11 and for topics with a
`message.format.version` below 0.11. Fetch versions 0 and 1 get message format v0, versions 2 and 3 get v1.

For a newer consumer the broker sends a region of the log's file without reading it. For an old consumer the thread
pool reads the whole region and converts it. If records cannot be expressed in the old format, the partition gets an
error. For example, zstd is answered UNSUPPORTED_COMPRESSION_TYPE, as in Apache Kafka 3.9.1.

Allocating a megabyte takes longer than converting a megabyte, because the kernel clears each new page of memory. So
each thread reuses the buffer into which it reads. The memory of an answer is reused after the answer has been sent."""

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
    """Returns the number of the message format that clients of this Fetch version read, or None if they read batches,
    so that no conversion is needed."""
    if fetch_version >= FIRST_WITH_BATCHES:
        return None
    return 1 if fetch_version >= _FIRST_WITH_V1 else 0


def refuse(answer: FetchResponsePartition, code: ErrorCode) -> None:
    """Turns a partition's answer into an error, because its records cannot be converted to the consumer's format."""
    answer.error_code = code
    answer.records = b""
    answer.high_watermark = answer.log_start_offset = -1


class DownConversion:
    """The conversion of one partition's records in an answer to Fetch. `run` must be called once, in any thread."""

    __slots__ = ("_answer", "_first_offset", "_magic", "region")

    def __init__(self, answer: FetchResponsePartition, region: FileRegion, first_offset: int, magic: int) -> None:
        self._answer = answer
        self.region = region
        self._first_offset = first_offset
        self._magic = magic

    @property
    def size_bytes(self) -> int:
        """Returns the size of the answer's records in bytes, after the conversion."""
        records = self._answer.records
        return 0 if records is None else len(records)

    def run(self) -> None:
        """Puts the converted records into the answer, or an error if the conversion fails. The caller must still
        release the region."""
        answer = self._answer
        answer.records = b""
        try:
            # Only large answers use memory of earlier answers. A small answer would leave a buffer that is too small
            # for a large answer.
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
    """The memory of answers that have been sent, stored here to be reused. Memory is still in use while a memoryview
    of it exists: a bytearray then refuses to change its size, which `take` uses as a test."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: list[bytearray] = []

    def take(self) -> bytearray:
        """Returns the memory of an answer that has been sent, or an empty bytearray if there is none."""
        with self._lock:
            for index, memory in enumerate(self._memory):
                try:
                    memory.pop()
                except BufferError:
                    continue
                return self._memory.pop(index)
        return bytearray()

    def keep(self, memory: bytearray) -> None:
        """Stores an answer's memory, to be reused when no memoryview of it exists."""
        if CONVERTED_KEPT_MIN_BYTES <= len(memory) <= CONVERSION_BUFFER_MAX_BYTES:
            with self._lock:
                if len(self._memory) < CONVERTED_KEPT_MAX:
                    self._memory.append(memory)


_answers = _Answers()


class _Kept(threading.local):
    """The read buffer of a thread. It is as large as the largest region that the thread has read, up to a limit."""

    def __init__(self) -> None:
        self.buffer = bytearray()


_kept = _Kept()


def _read(region: FileRegion) -> memoryview:
    """Returns the bytes of a region of a file; fewer bytes if the file is shorter. The result is valid until the
    thread's next read."""
    size = region.size_bytes
    buffer = _kept.buffer
    if size > len(buffer):
        buffer = bytearray(size)
        if size <= CONVERSION_BUFFER_MAX_BYTES:
            _kept.buffer = buffer
    view = memoryview(buffer)
    return view[: os.preadv(region.file.fileno(), [view[:size]], region.position)]
