"""Logs whose files the disk has damaged, and the allowed effects on their records. Each seed is a log, a way in which
the broker ended, and damage to one or two of its files; the log is opened and read as consumers read it.

    python -m tests.units.log.corruption_model --seeds 2000        one line for each seed that fails; exit code 1

The rules:

    the log opens, and takes records
    a served record is the record that was written at its offset
    every missing record is reported: its offset is refused (CORRUPT_MESSAGE), or was cut off with a note
    refused and cut-off records are related to the damaged bytes, unless only unsynced batches are concerned
    damage to files beside the log (indexes, snapshots, leader epochs) loses no record"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path

from jesenska.base.errors import CorruptMessageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.reading import read_log, warm_up_for
from jesenska.log.segments.checked_batches import DamagedRecordsError
from jesenska.log.segments.segment import ColdError
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from tests.units.log.log_harness import NOW_MS, LogHarness

KINDS = ("flip", "zero", "cut", "garbage", "missing")
FILES = (".log", ".log", ".log", ".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
#: The content of a record: timestamp, key, value.
Content = tuple[int, bytes | None, bytes | None]


@dataclass
class Case:
    """One seed's log and damage, and the findings."""

    seed: int
    is_clean: bool = True
    recovery_point: int = 0
    done: list[str] = field(default_factory=list)
    #: Offsets that the damaged bytes of log files have to do with.
    touched: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def play(seed: int, directory: Path) -> Case:
    """Makes, damages and reads one log in an empty directory."""
    chance = random.Random(seed)
    case = Case(seed, is_clean=chance.random() < 0.6)
    config = LogConfig(
        segment_bytes=chance.choice((3500, 6000, 20000)),
        index_interval_bytes=chance.choice((0, 200, 1000)),
        retention_ms=-1,
    )
    harness = LogHarness(directory / "t-0", config)
    written = _write(harness, chance)
    synced = harness.log.recovery_point
    places = [
        (path.name, position, header)
        for path in sorted(harness.directory.glob("*.log"))
        for position, header in iter_headers(path.read_bytes())
    ]
    close_log(harness.log, clean=case.is_clean)
    case.recovery_point = (
        len(written)
        if case.is_clean
        else chance.randrange(synced, len(written) + 1)
        if chance.random() < 0.5
        else synced
    )
    for _ in range(chance.choice((1, 1, 1, 2))):
        _damage(harness.directory, chance, case, places)
    said = _Said()
    logging.getLogger("jesenska").addHandler(said)
    try:
        log = harness.open(clean=case.is_clean, recovery_point=case.recovery_point)
        found = _read(harness, case, chance)
        for offset, content in found.items():
            if offset < len(written) and written[offset] != content:
                case.faults.append(f"offset {offset} has another record: {content} for {written[offset]}")
        case.lost = set(range(len(written))) - found.keys() - case.refused
        if (case.lost or case.refused) and not (harness.notes or said.lines):
            case.faults.append(f"nothing is told of {sorted(case.lost | case.refused)}")
        unfounded = {offset for offset in case.lost | case.refused if offset < case.recovery_point} - case.touched
        if unfounded:
            case.faults.append(
                f"nothing was done to {_some(unfounded)}, and they are not served; touched: {_some(case.touched)}"
            )
        end = log.log_end_offset
        harness.append(encode_batch([(NOW_MS, b"k", b"behind", ())]))
        (again,) = decode_batches(harness.read(end), start_offset=end)
        if (again.offset, again.value) != (end, b"behind"):
            case.faults.append(f"what is appended at {end} cannot be read: {again}")
    except Exception as error:
        case.faults.append(f"{type(error).__name__}: {error}")
    finally:
        logging.getLogger("jesenska").removeHandler(said)
        for segment in harness.log.segments:
            segment.close()
    return case


def _some(offsets: set[int]) -> str:
    return ", ".join(map(str, sorted(offsets)[:12]))


def _write(harness: LogHarness, chance: random.Random) -> list[Content]:
    written: list[Content] = []
    timestamp = NOW_MS
    epoch = sequence = 0
    for number in range(chance.randrange(20, 80)):
        epoch += chance.random() < 0.1
        records = []
        for _ in range(chance.randrange(1, 8)):
            timestamp += chance.randrange(0, 50)
            value = chance.randbytes(chance.choice((0, 20, 100, 400)))
            records.append((timestamp, b"key %d" % len(written) if chance.random() < 0.8 else None, value, ()))
            written.append((timestamp, records[-1][1], value))
        codec = chance.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))
        if number % 3 == 0:
            batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)
            sequence += len(records)
        else:
            batch = encode_batch(records, codec=codec)
        harness.append(batch, leader_epoch=epoch)
        if chance.random() < 0.2:
            harness.log.flush()
    return written


def _damage(directory: Path, chance: random.Random, case: Case, places: Sequence[tuple[str, int, object]]) -> None:
    suffix, kind = chance.choice(FILES), chance.choice(KINDS)
    paths = sorted(path for path in directory.iterdir() if path.name.endswith(suffix))
    if not paths:
        return
    path = chance.choice(paths)
    data = bytearray(path.read_bytes())
    size = len(data)
    start, end = size, size
    if kind == "missing":
        path.unlink()
        start = 0
    elif kind == "garbage":
        data += chance.randbytes(chance.choice((1, 7, 61, 300)))
    elif not size:
        return
    elif kind == "flip":
        start = chance.randrange(size)
        end = start + 1
        data[start] ^= 1 << chance.randrange(8)
    elif kind == "zero":
        start = chance.randrange(size)
        end = min(size, start + chance.choice((1, 16, 100, 5000)))
        data[start:end] = bytes(end - start)
    else:
        start = chance.randrange(size)
        del data[start:]
    if kind != "missing":
        path.write_bytes(data)
    case.done.append(f"{kind} of {path.name} from {start} to {end} of {size}")
    if suffix != ".log":
        return
    # A base offset is checked against its neighbours, and the position after a bad batch is known from its length or
    # the index: so damage to a header may also affect the neighbours.
    here = [(position, header) for name, position, header in places if name == path.name]
    for number, (position, header) in enumerate(here):
        if position < end and start < position + header.size_bytes:  # type: ignore[attr-defined]
            case.touched.update(range(header.base_offset, header.next_offset))  # type: ignore[attr-defined]
            if start < position + 61:
                for _, near in here[max(0, number - 1) : number + 2]:
                    case.touched.update(range(near.base_offset, near.next_offset))  # type: ignore[attr-defined]


def _read(harness: LogHarness, case: Case, chance: random.Random) -> dict[int, Content]:
    """Reads every record, from random offsets on and then from the first."""
    found: dict[int, Content] = {}
    start, end = harness.log.log_start_offset, harness.log.log_end_offset
    for _ in range(5 if start < end else 0):
        _read_from(harness, case, chance.randrange(start, end), chance, found, at_most=3)
    _read_from(harness, case, start, chance, found, at_most=10**9)
    return found


def _read_from(
    harness: LogHarness, case: Case, offset: int, chance: random.Random, found: dict[int, Content], at_most: int
) -> None:
    log = harness.log
    while offset < log.log_end_offset and at_most > 0:
        at_most -= 1
        try:
            try:
                result = read_log(log, offset, chance.choice((1, 300, 5000)), wait=chance.random() < 0.5)
            except ColdError:
                warm_up = warm_up_for(log, offset)
                warm_up.run()
                warm_up.done()
                continue
        except DamagedRecordsError as error:
            if error.next_offset <= offset:
                case.faults.append(f"offset {offset} is refused, and so is what follows: {error}")
                return
            case.refused.update(range(offset, error.next_offset))
            offset = error.next_offset
            continue
        except CorruptMessageError as error:
            case.faults.append(f"offset {offset} cannot be read, nor passed over: {error}")
            return
        if result.region is None:
            case.faults.append(f"nothing is at offset {offset} below the end {log.log_end_offset}")
            return
        data = harness.files.pread(result.region.file.fileno(), result.region.size_bytes, result.region.position)
        result.region.release()
        records = list(decode_batches(data, start_offset=offset))
        if not records:
            case.faults.append(f"no record at offset {offset}")
            return
        for record in records:
            content = (record.timestamp_ms, record.key, record.value)
            before = found.setdefault(
                record.offset, (content[0], None if content[1] is None else bytes(content[1]), bytes(content[2] or b""))
            )
            if before != content:
                case.faults.append(f"offset {record.offset} shows two records")
        offset = records[-1].offset + 1


def play_alone(seed: int) -> Case:
    directory = Path(tempfile.mkdtemp(prefix="corruption-"))
    try:
        return play(seed, directory)
    finally:
        shutil.rmtree(directory)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    failed = refusing = losing = 0
    with Pool(options.processes) as pool:
        for case in pool.imap_unordered(play_alone, range(options.first, options.first + options.seeds), chunksize=20):
            refusing += bool(case.refused)
            losing += bool(case.lost)
            if case.faults:
                failed += 1
                how = "stopped in order" if case.is_clean else f"crashed, synced up to {case.recovery_point}"
                print(f"seed {case.seed}: {how}; {'; '.join(case.done)}: {case.faults[0]}")
    print(f"{options.seeds} cases, {failed} failed; {refusing} refused records, {losing} lost some")
    return int(failed > 0)


if __name__ == "__main__":
    logging.disable(logging.NOTSET)
    sys.exit(main(sys.argv[1:]))


__all__ = ["Case", "TopicPartition", "play"]
