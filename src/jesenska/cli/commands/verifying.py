"""`jesenska verify DIR...`: reads log directories completely, and reports damaged records. A broker may be using the
directories; nothing is changed.

    exit 0    no damage                   1    a file cannot be read: one sentence on stderr
    exit 4    damage: a line for each damaged part of a file"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.base.system_errors import cause_of, remedy_of
from jesenska.cli.shared.stopping import lock_holder
from jesenska.cli.shared.tool import Telling, print_json
from jesenska.log.disk.checkpoints import CLEAN_SHUTDOWN
from jesenska.log.segments.checked_batches import Damage
from jesenska.log.verifying import VerifiedSegment, verified

DAMAGED = 4


def add_verify(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directories", nargs="+", metavar="DIR", help="Log directories (log.dirs); their broker may be running."
    )
    command.add_argument(
        "--bytes-per-second",
        type=_rate,
        metavar="N",
        help="Read no more than so much (default: as fast as the disk gives it).",
    )


def _rate(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of bytes above 0")
    return int(text)


class _Reading:
    """Reports the progress of reading. Sleeps so that reading does not exceed the requested rate."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._telling = Telling()
        self._clock = SystemClock()
        self._begun = self._clock.monotonic()
        self.read_bytes = 0

    def __call__(self, path: Path, size_bytes: int) -> None:
        self._telling.tell(f"{path}: {self.read_bytes} bytes read so far")
        if self._rate is not None:
            due = self._begun + self.read_bytes / self._rate
            time.sleep(max(0.0, due - self._clock.monotonic()))
        self.read_bytes += size_bytes


def verify(options: argparse.Namespace) -> int:
    reading = _Reading(options.bytes_per_second)
    found: list[VerifiedSegment] = []
    for name in options.directories:
        directory = Path(name)
        if not directory.is_dir():
            raise JesenskaError(f"There is no directory {directory}: name one of log.dirs.")
        ends_are_whole = lock_holder(directory) is None and (directory / CLEAN_SHUTDOWN).exists()
        try:
            found += verified(directory, reading, ends_are_whole=ends_are_whole)
        except OSError as error:
            raise JesenskaError(
                f"{error.filename or directory} cannot be read ({cause_of(error)}): {remedy_of(error)}."
            ) from error
    damaged = [(segment, damage) for segment in found for damage in segment.damaged]
    if options.output == "json":
        print_json(
            {
                "partitions": len({segment.path.parent for segment in found}),
                "segments": len(found),
                "bytes": sum(segment.size_bytes for segment in found),
                "oldSegments": [str(segment.path) for segment in found if segment.is_old],
                "damaged": [
                    {
                        "file": str(segment.path),
                        "topic": segment.topic,
                        "partition": segment.partition,
                        "position": damage.position,
                        "endPosition": damage.end_position,
                        "offset": damage.offset,
                        "nextOffset": damage.next_offset,
                        "reason": damage.reason,
                    }
                    for segment, damage in damaged
                ],
            }
        )
    else:
        _tell(found, damaged)
    return DAMAGED if damaged else 0


def _tell(found: list[VerifiedSegment], damaged: list[tuple[VerifiedSegment, Damage]]) -> None:
    for segment, damage in damaged:
        which = (
            f"offsets {damage.offset} to {damage.next_offset - 1}"
            if damage.offset < damage.next_offset
            else "no record"
        )
        where = f"from position {damage.position} to {damage.end_position} ({damage.reason})"
        print(f"{segment.path} is damaged {where}: {which} of {segment.topic}-{segment.partition}")
    for segment in found:
        if segment.is_old:
            print(
                f"jesenska: {segment.path} has messages of a format before 0.11, and was not checked.", file=sys.stderr
            )
    places = sorted({segment.path.parent for segment, _ in damaged})
    size = sum(segment.size_bytes for segment in found)
    partitions = len({segment.path.parent for segment in found})
    print(
        f"Segments: {len(found)}. Partitions: {partitions}. Bytes: {size}. Damaged stretches: {len(damaged) or 'none'}."
    )
    if places:
        print(
            f"jesenska: Where other replicas are in sync, stop this broker, move {', '.join(map(str, places))} away, "
            f"and start it: it fetches them anew. "
            "Where there are none, put the files from a backup in their places.",
            file=sys.stderr,
        )
