"""Makes the files of a branch: a partition's log that begins as the copy of another log, in the same log directory.

    sealed segments             hard links (.log, .index, .timeindex, .txnindex, .snapshot)
    the end of the log          a copy of the batches that belong to the branch, checked, with its own indexes
    active segment              new and empty; it begins at the end of the records from the source
    leader-epoch-checkpoint     the source's leader epochs up to the end of the records from the source
    <end>.snapshot              the source's producers, without their sequences: a producer that writes to both topics
                                begins the branch at sequence 0, as in any partition. Open transactions are open here,
                                too
    partition.metadata          the branch's own topic id

All files are made in a staging directory whose name ends in `-delete`: jesenska and Apache Kafka remove directories
with such a name at their start. The files with records are synced, then the names in the directory. Then the directory
is renamed, and its new name is synced. After a crash there is either the complete branch or no branch. Recovery
rebuilds the unsynced files (indexes of the copy, the epochs, the snapshot) from the records.

The work runs in the directory's writer thread, so no truncation changes the same files at the same time. But segments
may be compacted or deleted at the same time. So each segment is linked under the lock of its indexes. If a segment is
no longer in its log, the attempt ends (`SourceChangedError`). If the file system has no hard links, segments are
copied, and checked again afterwards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.checkpoints import LOG_START_OFFSETS
from jesenska.log.disk.epochs_file import write_leader_epochs
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.leader_epochs import LeaderEpochs
from jesenska.log.disk.partition_metadata import write_topic_id
from jesenska.log.disk.shared_files import copy_file, link, share
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.recovery import LoadedLog, LogLoader, rebuild_segment
from jesenska.log.partition.truncation import shorten_copy
from jesenska.log.segments.producer_snapshots import ProducerSnapshots
from jesenska.log.segments.producer_state import ProducerState
from jesenska.log.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
    file_name,
)
from jesenska.log.segments.segment_file import OpenFiles


class SourceChangedError(Exception):
    """Raised if segments were removed from the source log while they were linked. The branch must be planned again."""


class StaleCheckpointError(Exception):
    """Raised if the checkpoint of log start offsets on the disk still has an entry of an earlier topic with the
    branch's name. The checkpoint must be written before the branch is made."""


class BranchPlan(NamedTuple):
    """The plan of a branch, made by the thread that owns the source log."""

    source: TopicPartition
    target: TopicPartition
    topic_id: UUID | None
    config: LogConfig
    log_directory: Path
    #: The staging directory in which the branch is made, and the branch's final path.
    staging: Path
    path: Path
    #: The sealed and synced segments that are linked, in order.
    linked: Sequence[LogSegment]
    #: A copy (`LogSegment.copy`) of the segment after the linked segments. The part of this segment before
    #: `end_offset` is copied into the branch; None if nothing is copied.
    copied: LogSegment | None
    #: The offset at which the branch's own records begin, after the records from the source.
    end_offset: int
    log_start_offset: int
    epochs: Sequence[tuple[int, int]]
    producer_expiration_ms: int
    now_ms: int
    #: The first offset of the source that was not compacted yet; None if the source has never been compacted.
    first_dirty: int | None


class BranchedLog(NamedTuple):
    """A branch whose files are complete and on the disk."""

    loaded: LoadedLog
    end_offset: int
    shared_bytes: int
    copied_bytes: int
    #: The first offset that was not compacted yet; None if the source has never been compacted.
    first_dirty: int | None


def make_branch(plan: BranchPlan, files: FileLayer) -> BranchedLog:
    """Makes the files of a branch. It blocks while the end of the log is copied. Raises OSError or KafkaStorageError
    if the branch cannot be made; then at most a directory is left that the next start removes."""
    try:
        if _names_partition(plan.log_directory / LOG_START_OFFSETS, plan.target, files):
            raise StaleCheckpointError
        files.mkdir(plan.staging)
        shared_bytes = copied_bytes = 0
        for segment in plan.linked:
            size_bytes = segment.size_bytes
            copied = _link_segment(segment, plan, files)
            copied_bytes += copied
            shared_bytes += size_bytes if not copied else 0
        if plan.linked and plan.copied is None:
            # If the source has a snapshot of its producers at the branch's end, no batch must be read for it.
            snapshot = plan.linked[-1].file.path.with_name(file_name(plan.end_offset, SNAPSHOT_SUFFIX))
            with suppress(FileNotFoundError):
                share(files, snapshot, plan.staging / snapshot.name)
        recovery_point, end_offset = plan.end_offset, plan.end_offset
        if plan.copied is not None:
            recovery_point = plan.copied.base_offset
            copied, end_offset = _copy_end(plan.copied, plan, files)
            copied_bytes += copied
        loaded = _load(plan, end_offset, files)
        _forget_sequences(loaded.producers)
        ProducerSnapshots(plan.staging, files).write(end_offset, loaded.producers)
        if plan.topic_id is not None:
            write_topic_id(plan.staging, plan.topic_id, files)
        files.fsync_directory(plan.staging)
        files.rename(plan.staging, plan.path)
    except (OSError, KafkaStorageError, SourceChangedError) as error:
        _remove(plan.staging, files)
        if isinstance(error, FileNotFoundError):
            raise SourceChangedError from error
        raise
    finally:
        if plan.copied is not None:
            plan.copied.close()
    try:
        files.fsync_directory(plan.log_directory)
    except OSError:
        # After a failed sync it is unknown if the name is on the disk, so the directory is renamed back.
        files.rename(plan.path, plan.staging)
        _remove(plan.staging, files)
        raise
    for segment in loaded.segments:
        segment.moved(plan.path)
    # Only the records of the copy are synced. The first flush of the log syncs the other files.
    moved = replace(loaded, directory=plan.path, recovery_point=recovery_point, is_synced=False)
    first_dirty = None if plan.first_dirty is None else min(plan.first_dirty, end_offset)
    return BranchedLog(moved, end_offset, shared_bytes, copied_bytes, first_dirty)


def _names_partition(checkpoint: Path, topic_partition: TopicPartition, files: FileLayer) -> bool:
    try:
        return f"\n{topic_partition.topic} {topic_partition.partition} ".encode() in files.read_file(checkpoint)
    except FileNotFoundError:
        return False


def _link_segment(segment: LogSegment, plan: BranchPlan, files: FileLayer) -> int:
    """Links a segment's files, or copies them if the file system has no hard links. Returns the number of bytes
    copied."""
    log, *beside = segment.paths()
    with segment.offset_index.lock, segment.time_index.lock:
        if segment.is_gone:
            raise SourceChangedError
        is_linked = link(files, log, plan.staging / log.name)
        if is_linked:
            _share_beside(beside, plan, files)
    if is_linked:
        return 0
    # The lock is released before this copy, because it takes long and the log's owner may need the lock.
    copied = copy_file(files, log, plan.staging / log.name)
    _share_beside(beside, plan, files)
    if segment.is_gone:
        raise SourceChangedError
    return copied


def _share_beside(paths: Sequence[Path], plan: BranchPlan, files: FileLayer) -> None:
    """Links or copies the index and snapshot files of a segment. A missing file is no error: an index is rebuilt
    later, and most segments have no transaction index."""
    for path in (*paths, paths[0].with_suffix(SNAPSHOT_SUFFIX)):
        with suppress(FileNotFoundError):
            share(files, path, plan.staging / path.name)


def _copy_end(source: LogSegment, plan: BranchPlan, files: FileLayer) -> tuple[int, int]:
    """Copies the batches before the branch's end. Returns the number of bytes and the offset after the last copied
    batch, since only complete batches are copied."""
    end_offset = shorten_copy(source, plan.end_offset)
    path = plan.staging / file_name(source.base_offset, LOG_SUFFIX)
    copy_file(files, source.file.path, path, source.size_bytes)
    with suppress(FileNotFoundError):
        share(files, source.file.path.with_suffix(SNAPSHOT_SUFFIX), path.with_suffix(SNAPSHOT_SUFFIX))
    open_files = OpenFiles(files, 1)
    copy = LogSegment(
        plan.staging,
        source.base_offset,
        plan.config,
        files,
        open_files,
        created_ms=plan.now_ms,
        size_bytes=source.size_bytes,
    )
    try:
        result = rebuild_segment(copy, files, None)
        if result.fault is not None or result.valid_bytes < source.size_bytes:
            raise KafkaStorageError(
                f"{plan.source} cannot be branched: {source.file.path} is damaged at position {result.valid_bytes} "
                f"({result.fault}); check the disk."
            )
        if source.transaction_index is not None:
            for aborted in source.transaction_index.entries():
                copy.note_aborted(aborted)
        copy.write_indexes()
    finally:
        copy.close()
    return source.size_bytes, end_offset


def _load(plan: BranchPlan, end_offset: int, files: FileLayer) -> LoadedLog:
    """Loads the branch's log from the staging directory, after adding an empty active segment."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        files.close(files.open(plan.staging / file_name(end_offset, suffix), os.O_RDWR | os.O_CREAT))
    epochs = LeaderEpochs(plan.epochs)
    epochs.truncate_from_end(end_offset)
    write_leader_epochs(plan.staging, epochs.entries(), files, sync=False)
    loader = LogLoader(
        plan.staging,
        plan.config,
        files,
        clean=True,
        recovery_point=0,
        log_start_offset=plan.log_start_offset,
        now_ms=plan.now_ms,
        producer_expiration_ms=plan.producer_expiration_ms,
    )
    return loader.load()


def _forget_sequences(producers: ProducerState) -> None:
    producers.load([entry._replace(batches=()) for entry in producers.entries()])


def _remove(directory: Path, files: FileLayer) -> None:
    """Removes a directory. If the disk prevents that, the next start removes what is left."""
    with suppress(OSError):
        for name in files.names(directory):
            files.unlink(directory / name)
        files.rmdir(directory)
