"""A follower's log whose flushes and queued writes run on the test's request, and batches as a leader writes them."""

from __future__ import annotations

from pathlib import Path

from jesenska.base.errors import KafkaError
from jesenska.log.disk.background import DirectoryWriter
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.records.batch import iter_headers
from jesenska.records.encode import encode_batch
from tests.units.log.log_harness import NOW_MS, LogHarness
from tests.units.log.manual_background import ManualBackground


def leader_batch(
    base_offset: int,
    count: int = 1,
    epoch: int = 0,
    *,
    value_bytes: int = 10,
    producer_id: int = -1,
    base_sequence: int = -1,
    now_ms: int = NOW_MS,
) -> bytes:
    """A batch with the offsets and the epoch that its leader gave it."""
    return bytes(
        encode_batch(
            [(now_ms + base_offset + index, b"key", bytes(value_bytes), ()) for index in range(count)],
            base_offset=base_offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_sequence,
        )
    )


class Follower:
    def __init__(self, directory: Path, config: LogConfig | None = None, files: FileLayer | None = None) -> None:
        self.flusher = ManualBackground()
        self.writer = ManualBackground()
        self.answers: list[AppendResult | KafkaError] = []
        self.truncated: list[KafkaError | None] = []
        self.harness = LogHarness(
            directory, config or LogConfig(), files or FileLayer(), DirectoryWriter(self.writer, self.flusher)
        )

    def append(self, *batches: bytes) -> AppendResult | None:
        buffer = memoryview(bytearray(b"".join(batches)))
        headers = [header for _, header in iter_headers(buffer)]
        result = append_as_follower(self.harness.log, buffer, headers, NOW_MS, self.answers.append)
        buffer[:] = bytes(len(buffer))
        return result

    def fill(self, count: int, *, epoch: int = 0) -> None:
        """Appends this number of batches of one record at once."""
        for _ in range(count):
            assert self.append(leader_batch(self.harness.log.log_end_offset, epoch=epoch)) is not None

    def truncate_to(self, offset: int) -> None:
        self.harness.log.truncate_to(offset, NOW_MS, self.truncated.append)

    def restart_at(self, offset: int) -> None:
        self.harness.log.restart_at(offset, NOW_MS, self.truncated.append)

    def settle(self) -> None:
        """Runs all pending work."""
        while self.writer.jobs or self.flusher.jobs:
            self.writer.run_all()
            self.flusher.run_all()

    def ends(self) -> tuple[int, int, int]:
        """The log start offset, the high watermark, and the log end offset."""
        log = self.harness.log
        return log.log_start_offset, log.high_watermark, log.log_end_offset
