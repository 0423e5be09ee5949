"""The log cleaner: schedules the compaction of all logs of a broker, on the thread that owns the logs. It chooses the
next log, applies the results of its compaction, and limits the speed.

    look            every second: if fewer compactions run than are allowed, the dirtiest log is compacted
    a step ends     the next step is started, delayed if `log.cleaner.io.max.bytes.per.second` requires it; a copied
                    group of segments replaces its sources in the log
    last step ends  the first dirty offset is written (`cleaner-offset-checkpoint`)
    abort           segments of a log are about to be removed: its compaction is cancelled

`cleaning_plan` makes the decisions; `cleaning` reads and copies. For topics with a compaction lag, another thread
first reads the timestamps of segments that have not been read since the start.

A log that is damaged, or that cannot be compacted for another reason, is logged once and skipped until the settings
change or the broker restarts. A log whose disk fails is tried again after `log.cleaner.backoff.ms`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.compaction.cleaning import CancelledError, Cleaning, CleaningSettings, NotCompactedError, Replacement
from jesenska.log.compaction.cleaning_plan import (
    CleanablePart,
    CleanerSegment,
    cleanable_part,
    dirtiest,
    first_dirty_offset,
    groups,
    is_due,
)
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.disk.background import Background, log_failure
from jesenska.log.disk.doomed_files import DoomedFiles
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import UNLIMITED
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.segments.segment import LogSegment

logger = logging.getLogger(__name__)

#: Bytes that one call in the other thread reads and writes. The number is large, because switching threads takes
#: longer than a small step.
_BYTES_AT_ONCE = 4 * 1024 * 1024

Moved = int | Replacement | None


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's settings for compaction. Names (without the prefix `log.cleaner.`) and defaults are those of
    Kafka's settings."""

    enable: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_size: int = 128 * 1024 * 1024
    io_buffer_size: int = 512 * 1024
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")

    @property
    def of_each(self) -> CleaningSettings:
        """The memory for each compaction, if as many compactions run as there are threads."""
        threads = max(1, self.threads)
        return CleaningSettings(
            self.dedupe_buffer_size // threads, self.io_buffer_size // threads, self.io_buffer_load_factor
        )


@dataclass(slots=True)
class CleanerSurroundings:
    """The cleaner's dependencies: threads, time and random numbers."""

    #: Runs the steps of the compactions. It has one thread for each compaction.
    background: Background
    #: Calls a function on the owner's thread after a number of seconds.
    later: Callable[[float, Callable[[], None]], object]
    monotonic_ms: Callable[[], int]
    #: Returns the milliseconds since the epoch, like the records' timestamps.
    now_ms: Callable[[], int]
    #: Returns 16 random bytes.
    new_secret: Callable[[], bytes]


class _Run:
    """One compaction that is in progress."""

    __slots__ = ("begun_ms", "cleaning", "directory", "is_over", "log", "part", "sources", "steps")

    def __init__(
        self,
        log: PartitionLog,
        directory: LogDirectory,
        part: CleanablePart,
        cleaning: Cleaning,
        sources: Mapping[int, LogSegment],
        begun_ms: int,
    ) -> None:
        self.log = log
        self.directory = directory
        self.part = part
        self.cleaning = cleaning
        self.sources = sources
        self.steps = cleaning.steps()
        self.begun_ms = begun_ms
        #: True if the compaction has ended or was cancelled: results of its steps are then ignored.
        self.is_over = False


class LogCleaner:
    """Compacts the logs in `directories`, the log directories of the broker."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        files: FileLayer,
        doomed: DoomedFiles,
        surroundings: CleanerSurroundings,
        settings: CleanerSettings,
    ) -> None:
        self.settings = settings
        #: Logs that cannot be compacted, with the reason.
        self.uncleanable: dict[TopicPartition, str] = {}
        self._directories = directories
        self._files = files
        self._doomed = doomed
        self._around = surroundings
        self._running: dict[TopicPartition, _Run] = {}
        #: Partitions whose logs must not be compacted for now.
        self._paused: set[TopicPartition] = set()
        #: The time of the next search for a log to compact.
        self._look_at_ms = 0
        #: The time from which further bytes may be read and written without exceeding the speed limit.
        self._paced_until_ms = 0.0
        self._reads_times = False
        self._closed = False

    @property
    def is_at_work(self) -> bool:
        return bool(self._running)

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Applies new settings from the next compaction on. Logs that could not be compacted are tried again."""
        if settings != self.settings:
            self.settings = settings
            self.uncleanable.clear()
            self._look_at_ms = 0

    # -- which log ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Starts as many due compactions as may run at once. It must be called about once a second."""
        while not self._closed and self.settings.enable and len(self._running) < self.settings.threads:
            if self._around.monotonic_ms() < self._look_at_ms or self._reads_times or not self._begin_next():
                return

    def _begin_next(self) -> bool:
        """Starts the compaction of the dirtiest log. Returns false if no log is dirty enough, or if segments'
        timestamps must be read first."""
        self._look_at_ms = self._around.monotonic_ms() + self.settings.backoff_ms
        candidates: list[tuple[tuple[LogDirectory, PartitionLog], CleanablePart]] = []
        unknown: list[LogSegment] = []
        now_ms = self._around.now_ms()
        for directory in self._directories:
            for topic_partition, log in directory.logs.items():
                is_kept_out = (
                    topic_partition in self._running
                    or topic_partition in self._paused
                    or topic_partition in self.uncleanable
                )
                if not log.config.compact or is_kept_out or log.is_failed or log.is_closed:
                    continue
                missing = [segment for segment, _ in _sealed(log) if _lacks_times(segment, log)]
                if missing:
                    unknown.extend(missing)
                    continue
                part = self._part_of(directory, log, now_ms)
                if is_due(part, log.config):
                    candidates.append(((directory, log), part))
        if unknown:
            self._read_times(unknown)
        chosen = dirtiest(candidates)
        if chosen is None:
            return False
        (directory, log), part = chosen
        self._look_at_ms = 0
        self._begin(directory, log, part, now_ms)
        return True

    def _part_of(self, directory: LogDirectory, log: PartitionLog, now_ms: int) -> CleanablePart:
        first_dirty = first_dirty_offset(
            directory.cleaner_offsets.get(log.topic_partition), log.log_start_offset, log.log_end_offset
        )
        return cleanable_part(
            _facts_of(log), log.config, first_dirty=first_dirty, stable_end=log.last_stable_offset, now_ms=now_ms
        )

    def _read_times(self, segments: Sequence[LogSegment]) -> None:
        """Reads the timestamps of segments in another thread, then searches again for a log to compact."""
        self._reads_times = True
        copies = [segment.copy() for segment in segments]

        def read() -> None:
            for copy in copies:
                with suppress(OSError, KafkaError):
                    copy.load_timestamps()
                copy.close()

        def known(outcome: BaseException | None) -> None:
            self._reads_times = False
            log_failure(outcome)
            for segment, copy in zip(segments, copies, strict=True):
                segment.learn_times(copy)
            self._look_at_ms = 0
            self.look()

        self._around.background.submit(read, known)

    # -- one compaction -----------------------------------------------------------------------------------------------

    def _begin(self, directory: LogDirectory, log: PartitionLog, part: CleanablePart, now_ms: int) -> None:
        facts = [item for item in _facts_of(log) if item.base_offset < part.end_offset]
        sources = {segment.base_offset: segment for segment in log.segments[: len(facts)]}
        cleaning = Cleaning(
            log.directory,
            groups(facts, log.config),
            part.first_dirty_offset,
            log.config,
            self._files,
            self.settings.of_each,
            producer_ends=[entry.batches[-1].last_offset for entry in log.producers.entries() if entry.batches],
            producer_epochs={
                entry.producer_id: entry.producer_epoch for entry in log.producers.entries() if not entry.batches
            },
            transaction_indexes=[
                segment.transaction_index.copy() for segment in log.segments if segment.transaction_index is not None
            ],
            secret=self._around.new_secret(),
            now_ms=now_ms,
        )
        run = self._running[log.topic_partition] = _Run(
            log, directory, part, cleaning, sources, self._around.monotonic_ms()
        )
        self._go_on(run)

    def _go_on(self, run: _Run) -> None:
        if run.is_over and self._closed:
            # The background threads are shut down and accept no more work.
            run.steps.close()
        elif run.is_over:
            self._around.background.submit(run.steps.close, log_failure)
        else:
            self._around.background.submit(partial(_step, run.steps), partial(self._stepped, run))

    def _stepped(self, run: _Run, outcome: tuple[int, Moved] | BaseException) -> None:
        if run.is_over:
            self._go_on(run)
            return
        if isinstance(outcome, BaseException):
            self._failed(run, outcome)
            return
        moved_bytes, last = outcome
        if isinstance(last, Replacement) and not self._replace(run, last):
            self._give_up(run)
            self._go_on(run)
            return
        if last is None:
            self._done(run)
            return
        self._around.later(self._pause_seconds(moved_bytes), partial(self._go_on, run))

    def _pause_seconds(self, moved_bytes: int) -> float:
        """Returns the delay before the next step, in seconds, by which the bytes per second stay within the limit."""
        now_ms = self._around.monotonic_ms()
        self._paced_until_ms = (
            max(self._paced_until_ms, now_ms) + moved_bytes * 1000 / self.settings.io_max_bytes_per_second
        )
        return max(0.0, self._paced_until_ms - now_ms) / 1000

    def _replace(self, run: _Run, replacement: Replacement) -> bool:
        """Replaces a copied group of segments in the log by the new segment. Returns false if the log no longer has
        these segments, or if the disk fails."""
        log = run.log
        sources = [run.sources[base_offset] for base_offset in replacement.base_offsets]
        if not log.has_segments(sources):
            return False
        run.cleaning.hand_over()
        try:
            renamed = log.replace_segments(sources, replacement.cleaned)
        except OSError as error:
            logger.error("%s: a compaction could not be completed: %s", log.topic_partition, error)
            return False
        self._doomed.add(self._around.monotonic_ms() + log.config.file_delete_delay_ms, renamed)
        return True

    def _done(self, run: _Run) -> None:
        """Finishes a compaction after all its groups have been copied and replaced: stores the new first dirty
        offset."""
        run.is_over = True
        log = run.log
        self._running.pop(log.topic_partition, None)
        offsets = run.directory.cleaner_offsets
        offsets[log.topic_partition] = max(run.cleaning.cleaned_up_to, run.part.first_dirty_offset)
        run.directory.write_cleaner_offsets()
        before = run.part.clean_bytes + run.part.dirty_bytes
        after = sum(segment.size_bytes for segment in log.segments if segment.base_offset < run.part.end_offset)
        seconds = (self._around.monotonic_ms() - run.begun_ms) / 1000
        logger.info(
            "%s: compacted up to offset %d, from %d bytes to %d bytes, in %.1f s",
            log.topic_partition,
            offsets[log.topic_partition],
            before,
            after,
            seconds,
        )
        self._look_at_ms = 0
        self.look()

    def _failed(self, run: _Run, error: BaseException) -> None:
        topic_partition = run.log.topic_partition
        self._give_up(run)
        if isinstance(error, FileNotFoundError):
            logger.info("%s: a compaction was given up, because segments were removed from the log", topic_partition)
        elif isinstance(error, OSError):
            logger.error(
                "%s could not be compacted: %s; it is tried again in %d ms",
                topic_partition,
                error,
                self.settings.backoff_ms,
            )
        elif isinstance(error, (NotCompactedError, KafkaError)):
            self.uncleanable[topic_partition] = str(error)
            logger.warning("%s is not compacted: %s", topic_partition, error)
        elif not isinstance(error, CancelledError):
            self.uncleanable[topic_partition] = repr(error)
            log_failure(error)

    def _give_up(self, run: _Run) -> None:
        """Cancels a compaction. New segments that the log has not accepted yet are removed."""
        run.is_over = True
        run.cleaning.cancel()
        if self._running.get(run.log.topic_partition) is run:
            del self._running[run.log.topic_partition]

    # -- calls of others ----------------------------------------------------------------------------------------------

    def abort(self, topic_partition: TopicPartition) -> None:
        """Cancels the compaction of a log whose segments are about to be removed. (It implements
        `truncation.Cleaner`.)"""
        run = self._running.get(topic_partition)
        if run is not None:
            self._give_up(run)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Prevents compactions of the log until `go_on` is called, because its files are being copied. A compaction in
        progress is cancelled."""
        self._paused.add(topic_partition)
        self.abort(topic_partition)

    def go_on(self, topic_partition: TopicPartition) -> None:
        self._paused.discard(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Removes everything that the cleaner stores about a deleted partition."""
        self.abort(topic_partition)
        self.uncleanable.pop(topic_partition, None)
        for directory in self._directories:
            if directory.cleaner_offsets.pop(topic_partition, None) is not None:
                directory.write_cleaner_offsets()

    def truncated(self, directory: LogDirectory, logs: Sequence[PartitionLog]) -> None:
        """Lowers the first dirty offset of each truncated log to its log end offset, because new records will be
        appended from there."""
        offsets, lowered = directory.cleaner_offsets, False
        for log in logs:
            known = offsets.get(log.topic_partition)
            if known is not None and known > log.log_end_offset:
                offsets[log.topic_partition] = log.log_end_offset
                lowered = True
        if lowered:
            directory.write_cleaner_offsets()

    def close(self) -> None:
        """Cancels all compactions. After this call no compaction begins."""
        self._closed = True
        for run in list(self._running.values()):
            self._give_up(run)


def _step(steps: Iterator[int | Replacement]) -> tuple[int, Moved]:
    """Runs steps of a compaction in the other thread, up to `_BYTES_AT_ONCE` bytes or to a finished group. Returns the
    number of bytes read and written, and the result of the last step; None means that all steps are done."""
    moved_bytes = 0
    for moved in steps:
        if isinstance(moved, Replacement):
            return moved_bytes, moved
        moved_bytes += moved
        if moved_bytes >= _BYTES_AT_ONCE:
            return moved_bytes, moved
    return moved_bytes, None


def _facts_of(log: PartitionLog) -> list[CleanerSegment]:
    """Returns for each sealed segment of the log the facts from which `cleaning_plan` decides."""
    has_lag = _has_lag(log)
    return [
        CleanerSegment(
            segment.base_offset,
            following.base_offset,
            segment.size_bytes,
            segment.retention_timestamp() if has_lag else 0,
            segment.first_timestamp if has_lag else -1,
        )
        for segment, following in _sealed(log)
    ]


def _sealed(log: PartitionLog) -> Iterator[tuple[LogSegment, LogSegment]]:
    """Yields each sealed segment with the segment after it. A segment whose roll still waits for the disk is not
    sealed, because its queued appends are not written yet."""
    return takewhile(lambda pair: pair[0].is_sealed, pairwise(log.segments))


def _has_lag(log: PartitionLog) -> bool:
    return log.config.min_compaction_lag_ms > 0 or log.config.max_compaction_lag_ms != UNLIMITED


def _lacks_times(segment: LogSegment, log: PartitionLog) -> bool:
    """Returns true if the topic has a compaction lag and the segment's timestamps are not in memory."""
    return _has_lag(log) and not segment.knows_all_times
