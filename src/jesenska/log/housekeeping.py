"""The periodic jobs on a broker's logs, each with its own interval: flushes by time, checkpoints, retention, expiry of
producers, and removal of files that are marked for removal. Work that waits for the disk runs in the background.

    every tick      flush.ms of each log; files whose delay has passed
    5 s             high watermarks; the files beside the logs (index entries of active segments, leader epochs)
    60 s            recovery points, log start offsets
    5 min           retention; earlier for a log that had queued appends at its turn
    10 min          producers that have not written for long

These intervals are the defaults (`DirectorySettings`). With thousands of partitions each job is cut into pieces, so
that the thread that owns the logs can do other work between two pieces."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.disk.background import Background, log_failure
from jesenska.log.disk.doomed_files import DoomedFiles
from jesenska.log.partition.log_flush import FileWrite
from jesenska.log.partition.log_start import delete_old_segments, segments_of_unknown_time, start_after_retention
from jesenska.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

#: The number of logs that one step handles. It is limited so that a step is short.
_LOGS_AT_ONCE = 500
_LOGS_RETAINED_AT_ONCE = 20


class Housekeeping:
    """Runs the periodic jobs on the logs in `directories`. `logs` is the table of all present logs. `elapsed_ms`
    converts a wall-clock time `now_ms` to the clock that measures intervals and delays."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        directories: Sequence[LogDirectory],
        settings: DirectorySettings,
        background: Background,
        doomed: DoomedFiles,
        elapsed_ms: Callable[[int], int],
    ) -> None:
        self._logs = logs
        self._directories = directories
        self._settings = settings
        self._background = background
        self._doomed = doomed
        self._elapsed_ms = elapsed_ms
        #: The time of the next run of each job.
        self._due: dict[str, int] = {}
        self._writing_files = False
        #: Partitions that retention has skipped because they had queued appends.
        self._retention_waits: set[TopicPartition] = set()

    def tick_in_steps(self, now_ms: int) -> Iterator[None]:
        """Runs all due jobs, one piece of a job at each step. It must be called about once a second."""
        settings, elapsed_ms = self._settings, self._elapsed_ms(now_ms)
        for logs in self._pieces(_LOGS_AT_ONCE):
            for log in logs:
                log.flush_if_due(elapsed_ms)
            yield
        if self._is_due("high watermarks", settings.high_watermark_checkpoint_interval_ms, elapsed_ms):
            for directory in self._directories:
                directory.write_high_watermarks()
            yield
            writes: list[FileWrite] = []
            for logs in self._pieces(_LOGS_AT_ONCE):
                for log in logs:
                    if log.has_unwritten:
                        writes.extend(log.unwritten())
                yield
            self._write_files(writes)
        if self._is_due("recovery points", settings.flush_offset_checkpoint_interval_ms, elapsed_ms):
            for directory in self._directories:
                directory.write_recovery_points()
            yield
        if self._is_due("log starts", settings.flush_start_offset_checkpoint_interval_ms, elapsed_ms):
            for directory in self._directories:
                directory.write_log_start_offsets()
            yield
        waited, self._retention_waits = self._retention_waits, set()
        every = self._is_due("retention", settings.retention_check_interval_ms, elapsed_ms)
        if every or waited:
            for logs in self._pieces(_LOGS_RETAINED_AT_ONCE, None if every else waited):
                self._retain(logs, now_ms)
                yield
        if self._is_due("producers", settings.producer_id_expiration_check_interval_ms, elapsed_ms):
            for logs in self._pieces(_LOGS_AT_ONCE):
                for log in logs:
                    log.producers.expire(now_ms)
                yield
        self._doomed.remove_due(self._elapsed_ms(now_ms))

    def _pieces(self, size: int, only: Collection[TopicPartition] | None = None) -> Iterator[list[PartitionLog]]:
        """Yields the logs in lists of `size`. A log that was deleted since the first list is left out."""
        every = list(self._logs if only is None else only)
        for start in range(0, len(every), size):
            yield [self._logs[key] for key in every[start : start + size] if key in self._logs]

    def _is_due(self, job: str, interval_ms: int, elapsed_ms: int) -> bool:
        due_ms = self._due.get(job)
        if due_ms is not None and elapsed_ms < due_ms:
            return False
        self._due[job] = elapsed_ms + interval_ms
        return due_ms is not None

    def delete_old_segments(self, now_ms: int) -> None:
        """Applies retention to all partitions: deletes their old segments."""
        self._retain(list(self._logs.values()), now_ms)

    def _retain(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        """Applies retention to these logs. If some segments' timestamps have not been read since the start, they are
        first read in the background."""
        unknown = [segment for log in logs for segment in segments_of_unknown_time(log)]
        if not unknown:
            self._delete_old_segments(logs, now_ms)
            return
        copies = [segment.copy() for segment in unknown]

        def read() -> None:
            for copy in copies:
                try:
                    copy.largest_timestamp()
                except OSError as error:
                    logger.warning("%s: its largest timestamp could not be read: %s", copy.file.path, error)
                finally:
                    copy.close()

        def known(outcome: BaseException | None) -> None:
            log_failure(outcome)
            for segment, copy in zip(unknown, copies, strict=True):
                with suppress(OSError):
                    segment.learn(copy)
            self._delete_old_segments([log for log in logs if self._logs.get(log.topic_partition) is log], now_ms)

        self._background.submit(read, known)

    def _delete_old_segments(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        """Deletes the old segments of these logs. The new log start offsets are written to the disk before any file is
        renamed. If the disk is so full that this fails, the segments are deleted nevertheless, to make room."""
        for directory in self._directories:
            starts: dict[TopicPartition, int] = {}
            for log in logs:
                if directory.logs.get(log.topic_partition) is log:
                    start = start_after_retention(log, now_ms)
                    if start is not None:
                        starts[log.topic_partition] = start
                    elif log.has_queued_appends:
                        self._retention_waits.add(log.topic_partition)
            if starts:
                directory.announce_log_starts(starts, partial(self._announced, directory, starts, now_ms))

    def _announced(
        self, directory: LogDirectory, starts: Mapping[TopicPartition, int], now_ms: int, outcome: BaseException | None
    ) -> None:
        """Deletes old segments after the log start offsets were written. A failure of one log does not stop the
        others. A log with queued appends is handled at the next tick."""
        for topic_partition in starts:
            log = directory.logs.get(topic_partition)
            if log is None:
                continue
            try:
                renamed = delete_old_segments(log, now_ms, directory.announced_log_start(topic_partition))
            except OSError as error:
                logger.error("%s: retention could not delete segments: %s", log.topic_partition, error)
                continue
            if log.has_queued_appends:
                self._retention_waits.add(log.topic_partition)
            due_ms = self._elapsed_ms(now_ms) + log.config.file_delete_delay_ms
            self._doomed.add(due_ms, renamed)

    def _write_files(self, writes: Sequence[FileWrite]) -> None:
        """Writes index entries of active segments and leader epochs to their files in the background, so that tools
        that read these files find the log's present content."""
        if not writes or self._writing_files:
            return
        self._writing_files = True

        def work() -> list[FileWrite]:
            done = []
            for write in writes:
                with suppress(OSError):  # a full disk: the next flush, which needs the files, reports it
                    write.run()
                    done.append(write)
            return done

        def written(outcome: list[FileWrite] | BaseException) -> None:
            self._writing_files = False
            if isinstance(outcome, list):
                for write in outcome:
                    write.done()
            log_failure(outcome)

        self._background.submit(work, written)
