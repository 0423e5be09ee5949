"""Runs work that may wait for the disk. It runs in a thread of a pool or, for tools, tests and the simulator,
immediately on the caller's thread.

The log never imports an event loop. The owner of an event loop passes in a `ThreadBackground` whose `call_soon` brings
results back to the loop. So only one thread ever touches the state of a log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background(Protocol):
    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Runs `work`, possibly in another thread. Afterwards calls `done` on the owner's thread, with the result of
        `work` or the exception that it raised."""
        ...


class InlineBackground:
    """Runs the work immediately, on the caller's thread."""

    __slots__ = ()

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        outcome: T | BaseException
        try:
            outcome = work()
        except Exception as error:
            outcome = error
        done(outcome)


class ThreadBackground:
    """Runs the work in a thread of `executor`. `call_soon` (an event loop's `call_soon_threadsafe`) brings the result
    back to the owner's thread. An executor with one thread runs work in the order of the calls."""

    __slots__ = ("_call_soon", "_executor")

    def __init__(self, executor: Executor, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._executor = executor
        self._call_soon = call_soon

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def run() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except Exception as error:
                outcome = error
            self._call_soon(lambda: done(outcome))

        self._executor.submit(run)


class DirectoryWriter:
    """The threads that write and flush the files of one log directory. It counts the flushes in progress. During a
    flush a write may wait for the disk, so appends are then written by the writer thread (in order) and not by the
    event loop.

    `disk_failed` is called for disk errors, on the owner's thread. It gets the error, and a flag that is true if the
    content of the disk is unknown after the error."""

    __slots__ = ("disk_failed", "flusher", "flushes_in_flight", "writer")

    def __init__(self, writer: Background, flusher: Background) -> None:
        self.writer = writer
        self.flusher = flusher
        self.flushes_in_flight = 0
        self.disk_failed: Callable[[OSError, bool], None] = _ignore

    def flush(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Runs a flush in the flusher thread, then `done` with its result on the owner's thread."""
        self.flushes_in_flight += 1

        def finished(outcome: T | BaseException) -> None:
            self.flushes_in_flight -= 1
            done(outcome)

        self.flusher.submit(work, finished)


def _ignore(error: OSError, is_in_doubt: bool) -> None:
    """Does nothing. It is the error handler of a writer that has no log directory."""


def inline_writer() -> DirectoryWriter:
    """Returns a writer that does all work immediately, so that no flush is ever in progress."""
    return DirectoryWriter(InlineBackground(), InlineBackground())


def log_failure(outcome: object) -> None:
    """Logs an error if a job failed. It is for jobs whose result is not used."""
    if isinstance(outcome, BaseException):
        logger.error("A job in the log directories failed: %s; it is tried again at its next turn", outcome)
