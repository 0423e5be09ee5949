"""Computes the new offsets of a group, for `kafka-consumer-groups --reset-offsets` and
`kafka-streams-application-reset`: the flags, and the offset that each flag means for a partition.

    --to-earliest, --to-latest, --to-current, --to-offset N, --shift-by N, --by-duration P1DT2H, --to-datetime
    2026-01-31T12:00:00.000, --from-file

An offset outside of the log is moved to the nearest end of the log. A time after the last record becomes the log end
offset. A partition without a committed offset has the log end offset as its current offset, and cannot be shifted. A
time without a zone is UTC, as in Kafka's tool.

The file of --from-file has a line for each partition, as --export writes it: `topic,partition,offset` for one group,
`group,topic,partition,offset` for several groups. Other lines are an error here; Kafka's tool reads missing fields as
0."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets

_DURATION = re.compile(
    r"([+-])?P(?:([+-]?\d{1,9})D)?(?:(T)(?:([+-]?\d{1,9})H)?(?:([+-]?\d{1,12})M)?(?:([+-]?\d{1,12})(?:[.,](\d{0,9}))?S)?)?\Z",
    re.IGNORECASE,
)
_DATETIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?(Z|[+-]\d\d(?::?\d\d)?)?\Z")
_LONG = re.compile(r"-?\d{1,19}\Z")
_OFFSET_MAX = 2**63 - 1
_FILE_LIMIT_BYTES = 64 * 1024 * 1024

#: The flags for new offsets, without their dashes.
PLACES = ("to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "by-duration", "to-datetime", "from-file")

Warn = Callable[[str], None]
#: The offsets in a file, by group. The group's name is None if the lines of the file contain no group.
FileOffsets = Mapping[str | None, Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class Reset:
    """The rule by which new offsets are chosen. `kind` is the flag without its dashes. `number` is the value for
    to-offset and shift-by, and the time in ms for to-datetime."""

    kind: str
    number: int = 0
    duration: timedelta = timedelta()


def add_places(group: argparse._ActionsContainer, *more: str) -> None:
    """Adds the flags for new offsets to a parser. `more` names additional flags that only some tools have, such as
    to-current."""
    group.add_argument("--to-earliest", action="store_true", help="To the beginning of the log.")
    group.add_argument("--to-latest", action="store_true", help="To the end of the log.")
    if "to-current" in more:
        group.add_argument("--to-current", action="store_true", help="To where the group is (for --export).")
    group.add_argument("--to-offset", metavar="OFFSET", help="To this offset, or the nearest in the log.")
    group.add_argument("--shift-by", metavar="N", help="Forward by so many records, back if negative.")
    group.add_argument(
        "--by-duration", metavar="DURATION", help="To the first record of this last time, as PnDTnHnMnS."
    )
    group.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="To the first record from this time on, as YYYY-MM-DDThh:mm:ss.sss (UTC without a zone).",
    )
    group.add_argument(
        "--from-file", metavar="FILE", help="To what a CSV file says, as kafka-consumer-groups --export writes it."
    )


def given(options: argparse.Namespace, names: Iterable[str] = PLACES) -> list[str]:
    """Returns the flags in `names` that the user has given, in the order of `names`."""
    return [name for name in names if getattr(options, name.replace("-", "_"), None) not in (None, False)]


def warn(text: str) -> None:
    """Prints a warning that an offset differs from the requested offset."""
    print(f"WARN: {text}", file=sys.stderr)


def reset_of(options: argparse.Namespace) -> Reset:
    """Returns the rule for the flag that the user has given. If several flags are given, the first of them in the
    order of `PLACES` is used. Raises JesenskaError for a number or a time that is not valid."""
    kind = given(options)[0]
    if kind in ("to-offset", "shift-by"):
        return Reset(kind, offset_of(getattr(options, kind.replace("-", "_"))))
    if kind == "by-duration":
        return Reset(kind, duration=duration_of(options.by_duration))
    if kind == "to-datetime":
        return Reset(kind, datetime_of(options.to_datetime))
    return Reset(kind)


async def planned(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition], reset: Reset, warn: Warn
) -> dict[TopicPartition, int]:
    """Returns the new offset of each partition. All partitions must exist."""
    keys = sorted(partitions)
    if not keys:
        return {}
    if reset.kind == "to-earliest":
        return await _at(cluster, keys, EARLIEST)
    if reset.kind == "to-latest":
        return await _at(cluster, keys, LATEST)
    if reset.kind == "to-offset":
        return await within(cluster, dict.fromkeys(keys, reset.number), warn)
    if reset.kind == "by-duration":
        return await _from_time(
            cluster, keys, cluster.clock.now_ms() - reset.duration // timedelta(milliseconds=1), warn
        )
    if reset.kind == "to-datetime":
        return await _from_time(cluster, keys, reset.number, warn)
    committed = {key: item.offset for key, item in (await Admin(cluster).list_group_offsets(group_id, keys)).items()}
    missing = [key for key in keys if key not in committed]
    if reset.kind == "shift-by":
        if missing:
            raise JesenskaError(
                f"Cannot shift offset for partition {missing[0]} since there is no current committed offset"
            )
        return await within(cluster, {key: committed[key] + reset.number for key in keys}, warn)
    assert reset.kind == "to-current", reset.kind
    return committed | await _at(cluster, missing, LATEST)


async def within(cluster: Cluster, offsets: Mapping[TopicPartition, int], warn: Warn) -> dict[TopicPartition, int]:
    """Returns the offsets, changed if necessary. An offset outside of a partition's log is moved to the nearest end of
    the log, with a warning."""
    first, end = await _at(cluster, list(offsets), EARLIEST), await _at(cluster, list(offsets), LATEST)
    found = {}
    for key, offset in sorted(offsets.items()):
        found[key] = min(max(offset, first[key]), end[key])
        if offset > end[key]:
            warn(
                f"New offset ({offset}) is higher than latest offset for topic partition {key}. Value will be set to "
                f"{end[key]}"
            )
        elif offset < first[key]:
            warn(
                f"New offset ({offset}) is lower than earliest offset for topic partition {key}. Value will be set "
                f"to {first[key]}"
            )
    return found


async def _at(cluster: Cluster, keys: Sequence[TopicPartition], time: int) -> dict[TopicPartition, int]:
    return (
        {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(keys, time))).items()}
        if keys
        else {}
    )


async def _from_time(
    cluster: Cluster, keys: Sequence[TopicPartition], time_ms: int, warn: Warn
) -> dict[TopicPartition, int]:
    found = await _at(cluster, keys, max(0, time_ms))
    after_the_last = [key for key in keys if found[key] < 0]
    for key in after_the_last:
        warn(
            f"Partition {key.partition} of topic {key.topic} has no record at or after that time. Falling back to "
            f"latest known offset."
        )
    return found | await _at(cluster, after_the_last, LATEST)


def duration_of(text: str) -> timedelta:
    """Parses a duration in Java's notation, PnDTnHnMn.nS; each number may have a sign."""
    match = _DURATION.match(text.strip())
    if match is None or not any(match.group(2, 4, 5, 6)) or (match[3] and not any(match.group(4, 5, 6))):
        raise JesenskaError(f"{text!r} is not a duration: write it as PnDTnHnMnS, for example PT2H30M or P1D.")
    seconds = int(match[6] or 0) + float("0." + (match[7] or "0")) * (-1 if (match[6] or "").startswith("-") else 1)
    found = timedelta(days=int(match[2] or 0), hours=int(match[4] or 0), minutes=int(match[5] or 0), seconds=seconds)
    return -found if match[1] == "-" else found


def datetime_of(text: str) -> int:
    """Parses a time of the form YYYY-MM-DDThh:mm:ss.sss, and returns it in milliseconds since 1970. A time without a
    zone (Z, +hh, +hhmm, +hh:mm) is UTC."""
    match = _DATETIME.match(text.strip())
    try:
        if match is None:
            raise ValueError
        zone = UTC
        if match[8] not in (None, "Z"):
            sign, digits = match[8][0], match[8][1:].replace(":", "").ljust(4, "0")
            zone = timezone((1 if sign == "+" else -1) * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))
        moment = datetime(*(int(item) for item in match.group(1, 2, 3, 4, 5, 6)), tzinfo=zone)  # type: ignore[misc, arg-type]
    except ValueError as error:
        raise JesenskaError(
            f"{text!r} is not a time: write it as YYYY-MM-DDThh:mm:ss.sss, with a zone as Z or +01:00 if it is not UTC."
        ) from error
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + int(
        (match[7] or "0").ljust(3, "0")
    )


def offset_of(text: str) -> int:
    """Parses an offset: a whole number that fits into 64 bits."""
    if not _LONG.match(text) or not -_OFFSET_MAX <= int(text) <= _OFFSET_MAX:
        raise JesenskaError(f"{text!r} is not an offset: write a whole number.")
    return int(text)


def read_file(path: str) -> FileOffsets:
    """Returns the offsets in a file, with or without groups. Raises JesenskaError, which names the line, for a
    malformed line."""
    try:
        file = Path(path)
        if file.stat().st_size > _FILE_LIMIT_BYTES:
            raise JesenskaError(f"The file {path} has more than {_FILE_LIMIT_BYTES >> 20} MiB: split it.")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise JesenskaError(f"The file {path} cannot be read ({error.strerror}): name one that exists.") from error
    except UnicodeDecodeError as error:
        raise JesenskaError(f"The file {path} is not UTF-8 text: write lines of topic,partition,offset.") from error
    found: dict[str | None, dict[TopicPartition, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error as error:
            raise JesenskaError(f"{path}, line {number}: {error}.") from error
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if (
            len(cells) not in (3, 4)
            or not cells[-3]
            or not re.fullmatch(r"\d{1,9}", cells[-2])
            or not _LONG.match(cells[-1])
        ):
            raise JesenskaError(
                f"{path}, line {number}: {','.join(row)!r} is not topic,partition,offset or "
                f"group,topic,partition,offset."
            )
        group = cells[0] if len(cells) == 4 else None
        found.setdefault(group, {})[TopicPartition(cells[-3], int(cells[-2]))] = offset_of(cells[-1])
    return found


def of_group(offsets: FileOffsets, group_id: str, only_group: bool) -> Mapping[TopicPartition, int]:
    """Returns the offsets in the file for a group. Lines without a group's name apply to the group if it is the only
    group that is reset."""
    if None in offsets and not only_group:
        raise JesenskaError(
            "The lines of the file name no group (topic,partition,offset), which is possible only with a single "
            "--group: write group,topic,partition,offset."
        )
    return {**offsets.get(None, {}), **offsets.get(group_id, {})}
