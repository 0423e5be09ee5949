"""Two or three log directories between which replicas move, with threads and clock in the hands of the test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from jesenska.base.identifiers import TopicPartition
from jesenska.log.compaction.log_cleaner import CleanerSettings, CleanerSurroundings
from jesenska.log.copies.replica_move import MoveSurroundings
from jesenska.log.copies.replica_moves import MoveSettings
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.disk.background import Background, DirectoryWriter, InlineBackground, inline_writer
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.partition_log import PartitionLog
from tests.units.log.log_harness import NOW_MS
from tests.units.log.manual_background import ManualBackground

MOVED = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID("f6d6d71e-006f-4733-b42b-eeb7454cb91d")
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


class MovingDirectories:
    """Log directories named a, b, c, whose moves do a step on request."""

    def __init__(
        self,
        path: Path,
        *,
        count: int = 2,
        files: FileLayer | None = None,
        config: LogConfig = CONFIG,
        settings: MoveSettings | None = None,
        writers: Callable[[Path], DirectoryWriter] | None = None,
        background: Background | None = None,
        compacts: bool = False,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.elapsed_ms = 0
        self.thread = ManualBackground()
        self.cleaning = ManualBackground()
        #: The time of each timer, and its work.
        self.timers: list[tuple[int, Callable[[], None]]] = []
        chance = Random(seed)
        self.directories = LogDirectories(
            [path / name for name in "abc"[:count]],
            files=files,
            writer_for=writers or (lambda _: inline_writer()),
            background=background or InlineBackground(),
            monotonic_ms=lambda: self.elapsed_ms,
            cleaner_surroundings=CleanerSurroundings(
                self.cleaning, self.later, lambda: self.elapsed_ms, lambda: NOW_MS, lambda: bytes(16)
            )
            if compacts
            else None,
            cleaner_settings=CleanerSettings(dedupe_buffer_size=1024 * 1024, backoff_ms=0) if compacts else None,
            move_surroundings=MoveSurroundings(
                self.thread, self.later, lambda: self.elapsed_ms, lambda: uuid.UUID(int=chance.getrandbits(128))
            ),
            move_settings=settings,
        )
        self.directories.lock()
        self.directories.load(lambda _, topic_id: config if topic_id in (None, TOPIC_ID) else None, NOW_MS)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((self.elapsed_ms + int(seconds * 1000), call))

    @property
    def a(self) -> LogDirectory:
        return self.directories.directories[0]

    @property
    def b(self) -> LogDirectory:
        return self.directories.directories[1]

    @property
    def c(self) -> LogDirectory:
        return self.directories.directories[2]

    @property
    def log(self) -> PartitionLog:
        return self.directories.logs[MOVED]

    def create(self) -> PartitionLog:
        """Creates a new log in directory a."""
        self.b.is_cordoned = True
        log = self.directories.create(MOVED, TOPIC_ID, self.config, NOW_MS)
        self.b.is_cordoned = False
        return log

    def move(self, target: LogDirectory) -> None:
        self.directories.move(MOVED, target)

    def step(self) -> bool:
        """A job of the thread, or a timer that is due; False if there is neither."""
        if self.thread.jobs:
            self.thread.run_one()
            return True
        if self.cleaning.jobs:
            self.cleaning.run_one()
            return True
        due = next((timer for timer in self.timers if timer[0] <= self.elapsed_ms), None)
        if due is None:
            return False
        self.timers.remove(due)
        due[1]()
        return True

    def run(self, steps_max: int = 100_000) -> None:
        """Runs until no work is left, and advances the time."""
        for _ in range(steps_max):
            if not self.step():
                if not self.timers:
                    return
                self.elapsed_ms = min(at_ms for at_ms, _ in self.timers)
        raise AssertionError("it does not end")

    def close(self, *, clean: bool = True) -> None:
        """Stops as a broker does: work that threads have begun ends first."""
        assert self.directories.moves is not None
        self.directories.moves.close()
        self.thread.run_all()
        while self.directories.has_work_in_flight and self.step():
            pass
        self.directories.close(clean=clean)

    def names(self) -> dict[str, list[str]]:
        """The sub-directories of each directory."""
        return {
            directory.path.name: sorted(item.name for item in directory.path.iterdir() if item.is_dir())
            for directory in self.directories.directories
        }


def content(directory: Path) -> dict[str, bytes]:
    """The batches of a partition's directory, by file."""
    return {item.name: item.read_bytes() for item in sorted(directory.iterdir()) if item.suffix == ".log"}


def kinds(names: Sequence[str]) -> list[str]:
    """Returns the names of directories without their random parts."""
    return [name if "." not in name else name.partition(".")[0] + ".*-" + name.rpartition("-")[2] for name in names]
