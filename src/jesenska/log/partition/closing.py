"""Closes a log: at the stop of the broker, or because its topic is deleted and its directory is renamed.

    close_log       prepare_close -> sync (log_flush) -> finish_close
    close_logs      the same for many logs, which are synced in parallel
    mark_deleted    renames the directory, so that its old name is free for a new topic; files are removed later

After any of these calls the log accepts no appends. Reads that have begun can still use their file. After a clean
close the recovery point is the log end offset, there is a producer snapshot at that offset, and unused space at the
end of files is removed. So the next start need not recover the log. After any other close the next start recovers
it."""

from __future__ import annotations

import errno
import logging
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.log_flush import FlushWork, NotOpenedError, try_sync
from jesenska.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

DELETE_DIRECTORY_SUFFIX = "-delete"
_DIRECTORY_NAME_MAX = 255
#: The number of threads that sync, and the number of logs that are closed at once.
_SYNC_THREADS = 16
_CLOSED_AT_ONCE = 256


def close_log(log: PartitionLog, *, clean: bool = True) -> None:
    """Closes the log. With `clean` everything is synced, a producer snapshot is written, and unused space at the end
    of files is removed; this waits for the disk. Without `clean` the files are only closed, as after a crash of the
    process."""
    try:
        work = prepare_close(log, clean=clean)
    except OSError as error:
        finish_close(log, None, error)
        raise
    finish_close(log, work, 0 if work is None else try_sync(log.files, work))


def close_logs(
    logs: Sequence[PartitionLog], files: FileLayer, helpers: Callable[[int, str], Executor], *, clean: bool
) -> bool:
    """Closes many logs as `close_log` does. Returns true if all of them were closed cleanly. `helpers` makes a thread
    pool of a given size and name. Many files are synced at once, since the file system commits them together."""
    whole = True
    with helpers(_SYNC_THREADS, "closing") as pool:
        for start in range(0, len(logs), _CLOSED_AT_ONCE):
            closing: list[tuple[PartitionLog, FlushWork | None, Future[int | NotOpenedError | OSError] | None]] = []
            for log in logs[start : start + _CLOSED_AT_ONCE]:
                try:
                    work = prepare_close(log, clean=clean)
                except OSError as error:
                    whole = _not_in_order(log, error)
                    finish_close(log, None, error)
                else:
                    closing.append((log, work, None if work is None else pool.submit(try_sync, files, work)))
            for log, work, future in closing:
                try:
                    finish_close(log, work, 0 if future is None else future.result())
                except OSError as error:
                    whole = _not_in_order(log, error)
                whole = whole and not log.is_failed
    return whole


def _not_in_order(log: PartitionLog, error: OSError) -> bool:
    logger.error("%s could not be closed cleanly: %s; the next start recovers it", log.topic_partition, error)
    return False


def prepare_close(log: PartitionLog, *, clean: bool) -> FlushWork | None:
    """Does the first part of `close_log`: the log accepts no more appends. Returns the sync that must follow, which
    may be done in any thread; None if everything is synced."""
    if log.is_closed:
        return None
    log.refuse_appends()
    if not clean or log.is_failed:
        return None
    assert not log.has_queued_appends, "queued appends must end before the log is closed"
    active, end_offset = log.active_segment, log.log_end_offset
    if end_offset > log.segments[0].base_offset and not log.snapshots.path(end_offset).exists():
        log.snapshots.write(end_offset, log.producers)
    if active.max_timestamp >= 0:
        active.time_index.append(active.max_timestamp, active.max_timestamp_offset, sealing=True)
    for segment in log.segments:
        if segment is active or segment.has_unwritten:
            segment.trim()
    _write_epochs(log)
    log.unsynced.names_changed()
    if log.unsynced.has_names or not log.flushes.is_synced(end_offset):
        return log.flushes.collect_now(end_offset)
    return None


def _write_epochs(log: PartitionLog) -> None:
    if (epochs := log.epochs_file.unwritten(log.log_end_offset)) is not None:
        try:
            epochs.run()
        except OSError as error:
            # Each batch has its leader epoch, so the next start can rebuild the table.
            logger.warning("%s: the leader epochs could not be written: %s", log.topic_partition, error)


def finish_close(log: PartitionLog, work: FlushWork | None, outcome: int | NotOpenedError | OSError) -> None:
    """Does the last part of `close_log`: closes the files. Raises OSError if they could not be synced."""
    try:
        if work is not None:
            log.flushes.flushed_now(work, outcome if isinstance(outcome, int) else None)
            if isinstance(outcome, OSError):
                raise outcome
            if log.recovery_point < log.log_end_offset:
                raise OSError(errno.EIO, "the index, epoch and snapshot files of the log could not be written")
            log.snapshots.keep_only({segment.base_offset for segment in log.segments} | {log.log_end_offset})
    finally:
        for segment in log.segments:
            segment.close()


def mark_deleted(log: PartitionLog) -> Path:
    """Renames the partition's directory after its topic was deleted, and returns the new path. Reads that have begun
    continue. The files are removed after `file.delete.delay.ms`, or at the next start. The name is not synced here:
    `LogDirectories.sync_names` syncs the names of many partitions together. Raises OSError if the directory cannot be
    renamed."""
    log.refuse_appends()
    log.leave_directory()
    target = doomed_directory(log.directory, log.topic_partition)
    log.files.rename(log.directory, target)
    log.moved(target)
    for segment in log.segments:
        segment.close()
        segment.moved(target)
    return target


def doomed_directory(directory: Path, topic_partition: TopicPartition) -> Path:
    """Returns Kafka's name for the directory of a partition that is to be removed. The next start removes directories
    with such a name."""
    unique = uuid.uuid4().hex
    stem = str(topic_partition)[: _DIRECTORY_NAME_MAX - len(unique) - len(DELETE_DIRECTORY_SUFFIX) - 1]
    return directory.with_name(f"{stem}.{unique}{DELETE_DIRECTORY_SUFFIX}")
