"""The second stage of a start: locks the log directories, and creates their threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.broker.machine import Machine
from jesenska.broker.settings.derived_settings import (
    cleaner_settings_of,
    cordoned_paths_of,
    directory_settings_of,
    move_settings_of,
)
from jesenska.config.layers import BrokerConfig
from jesenska.log.compaction.log_cleaner import CleanerSurroundings
from jesenska.log.copies.replica_move import MoveSurroundings
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.disk.background import DirectoryWriter, ThreadBackground
from jesenska.log.disk.meta_properties import MetaProperties
from jesenska.log.log_directories import LogDirectories

#: The maximum number of simultaneous compactions, even if log.cleaner.threads is higher. A thread is created when it
#: is first needed.
_CLEANER_THREADS_MAX = 32
#: The maximum number of simultaneous moves of replicas between log directories, even if
#: num.replica.alter.log.dirs.threads is higher.
_MOVER_THREADS_MAX = 32


def log_dirs_of(config: BrokerConfig) -> list[Path]:
    """Returns the log directories that the settings name. Raises JesenskaError, with a message of one sentence, if the
    settings name no directory, or the same directory twice."""
    several = config.string("log.dirs")
    text = several if several is not None else config.string("log.dir") or ""
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise JesenskaError("log.dirs names no directory: set it to where the data is to be kept.")
    named: dict[str, str] = {}
    for item in found:
        path = os.path.realpath(item)
        if path in named:
            other = "" if item == named[path] else f", also as {named[path]}"
            raise JesenskaError(f"log.dirs names {item} twice{other}: name each directory once.")
        named[path] = item
    return [Path(item) for item in found]


class FailureBell:
    """Calls a function on the event loop when a log directory fails. `ring` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard: Callable[[], None] | None = None

    def ring(self, directory: LogDirectory) -> None:
        """Reports that a directory has failed. May be called in the middle of work on one of its logs."""
        self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        # During a start no function is registered: the start checks for failures itself.
        if self._heard is not None:
            self._heard()

    def listen(self, heard: Callable[[], None]) -> None:
        """Registers `heard`, which is called at each failure from now on."""
        self._heard = heard


@dataclass(frozen=True, slots=True)
class StorageThreads:
    """The threads of the log directories. `background` removes files, writes checkpoints and loads logs. Each
    directory has its own writer and flusher."""

    background: Executor
    cleaners: Executor
    movers: Executor
    writers: list[Executor] = field(default_factory=list)
    flushers: list[Executor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Storage:
    """The log directories and their threads. `found` has the content of each directory's meta.properties before this
    start; None if the file is missing or cannot be read."""

    directories: LogDirectories
    found: tuple[MetaProperties | None, ...]
    threads: StorageThreads
    bell: FailureBell

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies settings that were changed while the broker runs."""
        directories = self.directories
        if directories.cleaner is not None:
            directories.cleaner.reconfigure(cleaner_settings_of(config))
        if directories.moves is not None:
            directories.moves.reconfigure(move_settings_of(config))
        directories.cordon(cordoned_paths_of(config, [directory.path for directory in directories.directories]))

    async def stop_work(self) -> None:
        """Interrupts compactions and moves of replicas."""
        if self.directories.cleaner is not None:
            self.directories.cleaner.close()
        if self.directories.moves is not None:
            self.directories.moves.close()
        for executor in (self.threads.cleaners, self.threads.movers):
            await asyncio.get_running_loop().run_in_executor(None, executor.shutdown)

    async def drain(self) -> None:
        """Waits until all writes are done, then ends the threads."""
        loop, threads = asyncio.get_running_loop(), self.threads
        # The order matters: a result that a thread returns to the event loop may cause work for the next threads. A
        # roll of a segment is followed by a flush, and a flush by another flush if records came meanwhile.
        while self.directories.has_work_in_flight:
            for executor in (*threads.writers, *threads.flushers, threads.background):
                await loop.run_in_executor(executor, _nothing)
            await asyncio.sleep(0)
        for executors in (threads.writers, threads.flushers, [threads.background]):
            for executor in executors:
                await loop.run_in_executor(None, executor.shutdown)
            await asyncio.sleep(0)


def _nothing() -> None:
    """Does nothing. It is queued after the work of a thread, to wait for that work."""


def open_storage(config: BrokerConfig, paths: list[Path], machine: Machine, open_segments_max: int) -> Storage:
    """Creates and locks the log directories. Raises LogDirectoryError or ForeignDataError, with a message of one
    sentence, if a directory cannot be used."""
    loop, clock = asyncio.get_running_loop(), machine.clock
    threads = StorageThreads(
        machine.threads(1, "background"),
        machine.threads(_CLEANER_THREADS_MAX, "cleaner"),
        machine.threads(_MOVER_THREADS_MAX, "mover"),
    )
    bell = FailureBell(loop)

    def monotonic_ms() -> int:
        return int(clock.monotonic() * 1000)

    def writer_for(path: Path) -> DirectoryWriter:
        writer, flusher = (machine.threads(1, work) for work in ("writer", "flusher"))
        threads.writers.append(writer)
        threads.flushers.append(flusher)
        return DirectoryWriter(on_loop(writer), on_loop(flusher))

    def on_loop(executor: Executor) -> ThreadBackground:
        return ThreadBackground(executor, loop.call_soon_threadsafe)

    directories = LogDirectories(
        paths,
        files=machine.files,
        helpers=machine.helpers,
        settings=directory_settings_of(config),
        background=on_loop(threads.background),
        writer_for=writer_for,
        open_segments_max=open_segments_max,
        jitter=lambda limit: machine.random.randint(0, limit) if limit > 0 else 0,
        monotonic_ms=monotonic_ms,
        cleaner_surroundings=CleanerSurroundings(
            on_loop(threads.cleaners), loop.call_later, monotonic_ms, clock.now_ms, lambda: machine.new_uuid().bytes
        ),
        cleaner_settings=cleaner_settings_of(config),
        on_failure=bell.ring,
        move_surroundings=MoveSurroundings(on_loop(threads.movers), loop.call_later, monotonic_ms, machine.new_uuid),
        move_settings=move_settings_of(config),
    )
    return Storage(directories, tuple(directories.lock()), threads, bell)
