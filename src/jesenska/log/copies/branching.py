"""Branches a partition: makes a new log that begins as a copy of its source log (`branch_files` makes the files).

    owner's thread                                    writer thread of the directory
    -----------------------------------------------   -----------------------------------------------
    wait for queued appends and truncations
    roll a large active segment, so that it can be
    linked; sync the segments before they are linked
    plan: segments, and the end of the branch
                                                      make the files, load them
    add the log to the directory

The branch ends at the high watermark, or earlier at the first record whose leader epoch is not below the branch's
first epoch. So all records from the source have older epochs than the branch's own records. Replicas may branch at
slightly different ends; they then find the offset at which they differ in the usual way (OffsetsForLeaderEpoch).

An active segment of up to `BRANCH_COPIED_BYTES` is copied. A larger active segment is copied only if it has records
above the high watermark. The source keeps every record; the only effect on it is that a segment may end sooner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import BRANCH_COPIED_BYTES
from jesenska.base.system_errors import cause_of, remedy_of
from jesenska.log.copies.branch_files import (
    BranchedLog,
    BranchPlan,
    SourceChangedError,
    StaleCheckpointError,
    make_branch,
)
from jesenska.log.disk.background import Background
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.leader_epochs import UNDEFINED_OFFSET
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import doomed_directory
from jesenska.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

#: Largest number of times a branch is planned again because its source has changed.
_ATTEMPTS_MAX: Final = 20

#: A function that is called with the new log, or with the error.
Branched = Callable[[BranchedLog | KafkaError], None]


class BranchWanted(NamedTuple):
    """A request for a branch: a partition that is to begin as a copy of another partition. `first_epoch` is the leader
    epoch of the branch's first leader."""

    target: TopicPartition
    topic_id: UUID | None
    config: LogConfig
    first_epoch: int


class Branching:
    """The branching of one partition, while it is in progress. `write_log_starts` writes the checkpoint of the log
    start offsets. `first_dirty` returns the source's first offset that was not compacted yet. `done` is called with
    the result on the owner's thread."""

    def __init__(
        self,
        source: PartitionLog,
        wanted: BranchWanted,
        files: FileLayer,
        writer: Background,
        write_log_starts: Callable[[Callable[[BaseException | None], None]], None],
        first_dirty: Callable[[], int | None],
        now_ms: int,
        done: Branched,
    ) -> None:
        self._source = source
        self._wanted = wanted
        self._files = files
        self._writer = writer
        self._write_log_starts = write_log_starts
        self._first_dirty = first_dirty
        self._now_ms = now_ms
        self._done = done
        self._attempts = 0
        self._has_rolled = False

    def go_on(self) -> None:
        """Makes the next attempt to branch the partition, or fails after too many attempts."""
        log = self._source
        self._attempts += 1
        if log.is_closed or log.is_failed:
            self._fail("it is closed, or its disk has failed")
        elif self._attempts > _ATTEMPTS_MAX:
            self._fail("its segments change all the time; try again")
        elif log.is_being_cut:
            log.truncate_to(log.next_offset, self._now_ms, lambda failure: self.go_on())
        elif log.has_queued_appends:
            log.after_queue(self.go_on)
        elif self._rolls():
            log.queue_roll(self._now_ms)
            log.after_queue(self.go_on)
        else:
            plan = self._plan()
            if plan.linked and _end_of(log, plan) > log.recovery_point:
                if plan.copied is not None:
                    plan.copied.close()
                log.flush(self._flushed)
            else:
                self._writer.submit(partial(make_branch, plan, self._files), self._made)

    def _rolls(self) -> bool:
        """Decides if the active segment should be rolled first, so that it can be linked and need not be copied."""
        log, active = self._source, self._source.active_segment
        if self._has_rolled or active.size_bytes <= BRANCH_COPIED_BYTES or self._end_offset() < log.log_end_offset:
            return False
        self._has_rolled = True
        try:
            log.check_writable()
        except KafkaError:
            return False
        return True

    def _end_offset(self) -> int:
        log = self._source
        _, end_of_older = log.leader_epochs.end_offset_for(self._wanted.first_epoch - 1, log.log_end_offset)
        end = log.high_watermark if end_of_older == UNDEFINED_OFFSET else min(log.high_watermark, end_of_older)
        return max(end, log.log_start_offset)

    def _plan(self) -> BranchPlan:
        log, wanted, end_offset = self._source, self._wanted, self._end_offset()
        parts = [
            (segment, end)
            for segment, end in zip(log.segments, log.ends(), strict=True)
            if end > log.log_start_offset and segment.base_offset < end_offset
        ]
        linked = [segment for segment, end in parts if segment.is_sealed and end <= end_offset]
        copied = parts[-1][0].copy() if len(linked) < len(parts) else None
        path = log.directory.parent / str(wanted.target)
        return BranchPlan(
            log.topic_partition,
            wanted.target,
            wanted.topic_id,
            wanted.config,
            path.parent,
            doomed_directory(path, wanted.target),
            path,
            linked,
            copied,
            end_offset,
            log.log_start_offset,
            log.leader_epochs.entries(),
            log.producers.expiration_ms,
            self._now_ms,
            # The offset is read now: a compaction that ends later has compacted segments that the branch does not
            # have.
            self._first_dirty(),
        )

    def _flushed(self, failure: KafkaError | None) -> None:
        if failure is not None:
            self._done(failure)
        else:
            self.go_on()

    def _made(self, outcome: BranchedLog | BaseException) -> None:
        if isinstance(outcome, BranchedLog):
            self._tell(outcome)
            self._done(outcome)
        elif isinstance(outcome, SourceChangedError):
            self.go_on()
        elif isinstance(outcome, StaleCheckpointError):
            self._write_log_starts(self._log_starts_are_written)
        elif isinstance(outcome, KafkaError):
            self._done(outcome)
        elif isinstance(outcome, OSError):
            self._source.writer.disk_failed(outcome, False)
            self._fail(f"{cause_of(outcome)}: {remedy_of(outcome)}")
        else:
            raise outcome

    def _log_starts_are_written(self, outcome: BaseException | None) -> None:
        if outcome is not None:
            self._fail(f"the log start offsets cannot be written ({outcome}): make room or mend the disk")
        else:
            self.go_on()

    def _fail(self, why: str) -> None:
        self._done(
            KafkaStorageError(f"{self._source.topic_partition} cannot be branched to {self._wanted.target}: {why}.")
        )

    def _tell(self, made: BranchedLog) -> None:
        logger.info(
            "%s is a branch of %s up to offset %d: %d bytes are shared, %d were copied%s",
            self._wanted.target,
            self._source.topic_partition,
            made.end_offset,
            made.shared_bytes,
            made.copied_bytes,
            ""
            if made.shared_bytes or made.copied_bytes <= BRANCH_COPIED_BYTES
            else ", since the file system has no links (left)",
        )


def _end_of(log: PartitionLog, plan: BranchPlan) -> int:
    """Returns the end offset of the last segment that is to be linked."""
    return log.ends()[log.segments.index(plan.linked[-1])]
