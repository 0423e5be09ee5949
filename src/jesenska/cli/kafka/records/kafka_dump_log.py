"""kafka-dump-log: prints the contents of the files of a log directory, without a broker: .log, .index, .timeindex,
.txnindex, .snapshot and .checkpoint. Flags and output are those of Apache Kafka 4.3.1's tool (bin/kafka-dump-log.sh).
Indexes are checked against the .log file beside them.

    baseOffset: 0 lastOffset: 2 count: 3 ... compresscodec: none crc: 460103469 isvalid: true
    | offset: 0 CreateTime: 1795232481174 keySize: -1 valueSize: 5 sequence: 0 headerKeys: [] payload: hello

Differs from Kafka's tool: the exit code is 1 if something is wrong (a CRC, an index, bytes at the end that are not a
batch). Message sets (magic 0 and 1), and decoders that `dump_decoders` does not have, are refused."""

from __future__ import annotations

import argparse
import mmap
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any

from jesenska.base.clock import SystemClock
from jesenska.base.errors import CorruptMessageError, JesenskaError, KafkaError
from jesenska.cli.kafka.records import dump_decoders
from jesenska.cli.shared.tool import QUIET_SECONDS, Parser, add_output, print_json, run, sentence
from jesenska.log.disk.files import FileLayer
from jesenska.log.segments.index_file import CorruptIndexError
from jesenska.log.segments.producer_state import decode_snapshot
from jesenska.log.segments.transaction_index import TransactionIndex
from jesenska.records.batch import iter_headers, verify_crc
from jesenska.records.decode import control_marker, decode_batch
from jesenska.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Codec, TimestampType, read_header
from jesenska.records.record import Record

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
#: The decoders of internal topics: for each flag, the name of the topic and the decoder.
_DECODERS: dict[str, tuple[str, dump_decoders.Decoder]] = {
    "offsets_decoder": ("__consumer_offsets", dump_decoders.offsets),
    "transaction_log_decoder": ("__transaction_state", dump_decoders.transactions),
    "cluster_metadata_decoder": ("__cluster_metadata", dump_decoders.cluster_metadata),
    "share_group_state_decoder": ("__share_group_state", dump_decoders.share_groups),
}
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_STRING_DECODER = "StringDecoder"

Data = memoryview


def _parser() -> Parser:
    parser = Parser(
        "kafka-dump-log", "Prints what stands in the files of a log: segments, indexes, snapshots of producers."
    )
    parser.add_argument("--files", metavar="FILE[,...]", help="REQUIRED: The files, separated by commas.")
    parser.add_argument("--print-data-log", action="store_true", help="Print keys and values, too.")
    parser.add_argument("--deep-iteration", action="store_true", help="Print each record, not only the batches.")
    parser.add_argument("--skip-record-metadata", action="store_true", help="Of each record print only key and value.")
    parser.add_argument(
        "--max-bytes", type=int, default=None, metavar="N", help="Read only so many bytes of each .log file."
    )
    parser.add_argument("--index-sanity-check", action="store_true", help="Only check that indexes are well formed.")
    parser.add_argument(
        "--verify-index-only", action="store_true", help="Check indexes against the log without printing their entries."
    )
    for flag, what in (("--key-decoder-class", "keys"), ("--value-decoder-class", "values")):
        parser.add_argument(
            flag,
            nargs="?",
            const=_STRING_DECODER,
            metavar="CLASS",
            help=f"How {what} are written: StringDecoder (the default), IntegerDecoder or LongDecoder.",
        )
    for decoder, (topic, _) in _DECODERS.items():
        parser.add_argument(
            "--" + decoder.replace("_", "-"), action="store_true", help=f"Write the records of {topic} as JSON."
        )
    parser.add_argument("--remote-log-metadata-decoder", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--max-message-size", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run(parser, arguments, lambda options: _work(parser, options))


def _work(parser: Parser, options: argparse.Namespace) -> int:
    if not options.files:
        parser.error("Missing required argument --files")
    if options.remote_log_metadata_decoder:
        raise JesenskaError(
            "--remote-log-metadata-decoder is not built: records of __remote_log_metadata can only be printed as "
            "text, with --print-data-log."
        )
    if options.max_bytes is not None and options.max_bytes < 0:
        parser.error("--max-bytes must not be negative")
    good = True
    decoder = _decoder(options)
    for name in options.files.split(","):
        good &= _Dump(Path(name.strip()), options, decoder).run()
    return 0 if good else 1


def _decoder(options: argparse.Namespace) -> dump_decoders.Decoder | None:
    """Returns the decoder of keys and values. Returns None if keys and values will not be printed: they are printed
    only if a decoder or --print-data-log is given."""
    for name, (_, decoder) in _DECODERS.items():
        if getattr(options, name):
            return decoder
    classes = (options.key_decoder_class, options.value_decoder_class)
    if classes == (None, None) and not options.print_data_log:
        return None
    return dump_decoders.by_class(*(name or _STRING_DECODER for name in classes))


class _Dump:
    """Prints one file. `run` returns false if the file's content is wrong."""

    def __init__(self, path: Path, options: argparse.Namespace, decoder: dump_decoders.Decoder | None) -> None:
        self._path = path
        self._options = options
        self._decoder = decoder
        self._json = options.output == "json"
        self._clock = SystemClock()
        self._printed_at = self._clock.monotonic()

    def run(self) -> bool:
        kinds: dict[str, Callable[[Data], bool]] = {
            ".log": self._log,
            ".index": self._index,
            ".timeindex": self._time_index,
            ".txnindex": self._transaction_index,
            ".snapshot": self._snapshot,
            ".checkpoint": self._checkpoint,
        }
        self._say(f"Dumping {self._path}")
        dump = kinds.get(self._path.suffix)
        if dump is None:
            if not self._path.exists():
                raise JesenskaError(f"The file {self._path} does not exist: name one that does.")
            print(
                f"kafka-dump-log: {self._path} is left out: only files that end in {', '.join(kinds)} are read.",
                file=sys.stderr,
            )
            return False
        return dump(_content(self._path))

    def _say(self, text: str) -> None:
        if not self._json:
            print(text)

    def _wrong(self, text: str, **document: Any) -> None:
        if self._json:
            print_json({"file": str(self._path), "problem": text, **document})
        else:
            print(text)

    def _progress(self, position: int, size: int) -> None:
        now = self._clock.monotonic()
        if now - self._printed_at >= QUIET_SECONDS:
            self._printed_at = now
            print(f"{self._path.name}: {100 * position // size} % read", file=sys.stderr, flush=True)

    # --- .log --------------------------------------------------------------------------------------------------------

    def _log(self, data: Data) -> bool:
        self._say(f"Log starting offset: {_base_offset(self._path)}")
        return self._batches(data)

    def _checkpoint(self, data: Data) -> bool:
        """Prints a snapshot of the KRaft metadata log. Like a segment, a snapshot consists of batches."""
        match = _CHECKPOINT.fullmatch(self._path.name)
        if match is None:
            raise JesenskaError(
                f"{self._path} has no offset and epoch in its name: snapshots are named like "
                f"00000000000000000125-0000000001.checkpoint."
            )
        self._say(f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}")
        return self._batches(data)

    def _batches(self, data: Data) -> bool:
        options = self._options
        each_record = options.deep_iteration or self._decoder is not None
        limit = len(data) if options.max_bytes is None else options.max_bytes
        good = True
        end = 0
        gaps: list[tuple[int, int]] = []
        last = -1
        try:
            for position, header in iter_headers(data):
                if position + header.size_bytes > limit:
                    break
                valid = _is_valid(data, position, header)
                good &= valid
                self._batch(position, header, valid)
                if each_record:
                    for record in decode_batch(data, position, False, header):
                        if last >= 0 and record.offset != last + 1:
                            gaps.append((last, record.offset))
                        last = record.offset
                        self._record(header, record)
                end = position + header.size_bytes
                self._progress(end, len(data))
        except KafkaError as error:
            print(
                f"kafka-dump-log: {self._path} cannot be read from position {end} on: {sentence(error)}",
                file=sys.stderr,
            )
            good = False
        if options.max_bytes is None and end < len(data):
            self._wrong(f"Found {len(data) - end} invalid bytes at the end of {self._path.name}")
            good = False
        if gaps:
            # Gaps in the offsets are reported but not counted as a fault, because compaction causes gaps.
            self._say(f"Non-consecutive offsets in {self._path}")
            for before, after in gaps:
                self._say(f"  {before} is followed by {after}")
        return good

    def _batch(self, position: int, header: BatchHeader, valid: bool) -> None:
        codec = _codec(header)
        horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
        if self._json:
            print_json(
                header._asdict()
                | {
                    "file": str(self._path),
                    "position": position,
                    "size": header.size_bytes,
                    "lastOffset": header.last_offset,
                    "codec": codec,
                    "valid": valid,
                }
            )
            return
        print(
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} "
            f"lastSequence: {header.last_sequence} producerId: {header.producer_id} producerEpoch: "
            f"{header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional: "
            f"{_word(header.is_transactional)} isControl: {_word(header.is_control)} "
            f"deleteHorizonMs: {horizon} position: {position} {_TIMESTAMP_TYPES[header.timestamp_type]}: "
            f"{header.max_timestamp} size: {header.size_bytes} "
            f"magic: {header.magic} compresscodec: {codec} crc: {header.crc} isvalid: {_word(valid)}"
        )

    def _record(self, header: BatchHeader, record: Record) -> None:
        sequence = (
            (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
            if header.base_sequence >= 0
            else -1
        )
        shown = self._decoder(record) if self._decoder is not None and not header.is_control else None
        if self._json:
            document = {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "sequence": sequence,
                "headerKeys": [name for name, _ in record.headers],
            }
            print_json(document | (shown._asdict() if shown is not None else {}))
            return
        parts = []
        if not self._options.skip_record_metadata:
            parts.append(
                f"offset: {record.offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: {record.timestamp_ms} keySize: "
                f"{_size(record.key)} "
                f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: "
                f"[{','.join(name for name, _ in record.headers)}]"
            )
            if header.is_control:
                parts.append(_control(record))
        if shown is not None and shown.key is not None:
            parts.append(f"key: {shown.key}")
        if shown is not None and shown.value is not None:
            parts.append(f"payload: {shown.value}")
        # A record without any text is an empty line, as in Kafka's tool.
        print(" ".join(["|", *parts]) if parts else "")

    # --- indexes -----------------------------------------------------------------------------------------------------

    def _entries(self, data: Data, entry: Struct) -> list[tuple[int, int]] | None:
        """Returns the entries of an index. The zeros at the end of an active segment's index are left out. If there
        are no entries, prints a message and returns None."""
        if len(data) % entry.size:
            raise JesenskaError(
                f"{self._path} has {len(data)} bytes, which is not a multiple of an entry's {entry.size} bytes: "
                "the index is corrupt; delete this file."
            )
        found: list[tuple[int, int]] = []
        for values in entry.iter_unpack(data):
            if values == (0, 0):
                break
            found.append((values[0], values[1]))
        if not found:
            self._say(f"{self._path} is empty.")
            return None
        return found

    def _sane(self, problem: str | None) -> bool:
        """Prints the result of --index-sanity-check. Returns false if `problem` is not None."""
        if problem is not None:
            self._wrong(f"{self._path} is corrupt: {problem}.")
            return False
        self._say(f"{self._path} passed sanity check.")
        return True

    def _index(self, data: Data) -> bool:
        entries = self._entries(data, _OFFSET_ENTRY)
        if entries is None:
            return True
        base = _base_offset(self._path)
        if self._options.index_sanity_check:
            rising = all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(entries))
            return self._sane(None if rising and entries[0][0] >= 0 else "its entries do not go up")
        log = _content(self._path.with_suffix(".log"))
        mismatches: list[tuple[int, int]] = []
        for number, (relative, position) in enumerate(entries):
            actual = _last_offset_at(log, position)
            if actual != base + relative:
                mismatches.append((base + relative, actual))
            if not self._options.verify_index_only:
                self._entry("offset", base + relative, "position", position)
            self._progress(number, len(entries))
        if mismatches:
            self._wrong(f"Mismatches in :{self._path}", mismatches=mismatches)
            for offset, actual in mismatches:
                self._say(f"  Index offset: {offset}, log offset: {actual}")
        return not mismatches

    def _entry(self, first: str, one: int, second: str, two: int) -> None:
        if self._json:
            print_json({first: one, second: two})
        else:
            print(f"{first}: {one} {second}: {two}")

    def _time_index(self, data: Data) -> bool:
        entries = self._entries(data, _TIME_ENTRY)
        if entries is None:
            return True
        base = _base_offset(self._path)
        if self._options.index_sanity_check:
            rising = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(entries))
            return self._sane(None if rising else "its entries do not go up")
        log = _content(self._path.with_suffix(".log"))
        batches = iter_headers(log)
        mismatches: list[tuple[int, int]] = []
        disorder: list[tuple[int, int]] = []
        largest = before = -1
        for timestamp, relative in entries:
            # An entry contains the largest timestamp of all records up to its offset. The batches are read only once,
            # since the offsets of the entries increase.
            largest = max(largest, _largest_up_to(batches, base + relative))
            if largest != timestamp:
                mismatches.append((timestamp, largest))
            if timestamp <= before:
                disorder.append((timestamp, before))
            before = timestamp
            if not self._options.verify_index_only:
                self._entry("timestamp", timestamp, "offset", base + relative)
        if mismatches:
            self._wrong(f"Found timestamp mismatch in :{self._path}", mismatches=mismatches)
            for timestamp, actual in mismatches:
                self._say(f"  Index timestamp: {timestamp}, log timestamp: {actual}")
        if disorder:
            self._wrong(f"Found out of order timestamp in :{self._path}", disorder=disorder)
            for timestamp, earlier in disorder:
                self._say(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {earlier}")
        return not mismatches and not disorder

    # --- .txnindex ---------------------------------------------------------------------------------------------------

    def _transaction_index(self, data: Data) -> bool:
        index = TransactionIndex(self._path, _base_offset(self._path), FileLayer())
        try:
            index.load()
        except CorruptIndexError as error:
            self._wrong(f"{error} A broker that starts builds it anew.")
            return False
        for item in index.entries():
            document = {
                "version": 0,
                "producerId": item.producer_id,
                "firstOffset": item.first_offset,
                "lastOffset": item.last_offset,
                "lastStableOffset": item.last_stable_offset,
            }
            if self._json:
                print_json(document)
            else:
                print(" ".join(f"{name}: {value}" for name, value in document.items()))
        return True

    # --- .snapshot ---------------------------------------------------------------------------------------------------

    def _snapshot(self, data: Data) -> bool:
        try:
            entries = decode_snapshot(bytes(data), 0)
        except CorruptMessageError as error:
            raise JesenskaError(
                f"{self._path} is corrupt: {sentence(error)} Delete this file: the broker rebuilds it at its next "
                "start."
            ) from error
        for item in entries:
            if self._json:
                print_json(
                    {
                        "producerId": item.producer_id,
                        "producerEpoch": item.producer_epoch,
                        "lastSequence": item.last_sequence,
                    }
                )
                continue
            open_since = (
                "OptionalLong.empty"
                if item.current_txn_first_offset < 0
                else f"OptionalLong[{item.current_txn_first_offset}]"
            )
            line = (
                f"producerId: {item.producer_id} producerEpoch: {item.producer_epoch} coordinatorEpoch: "
                f"{item.coordinator_epoch} "
                f"currentTxnFirstOffset: {open_since} lastTimestamp: {item.last_timestamp} "
            )
            if item.batches:
                batch = item.batches[-1]
                line += (
                    f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} lastOffset: "
                    f"{batch.last_offset} "
                    f"offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
                )
            print(line)
        return True


def _control(record: Record) -> str:
    if (said := dump_decoders.control(record)) is not None:
        return said
    marker = control_marker(record)
    return f"endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"


def _content(path: Path) -> Data:
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b"")
    except OSError as error:
        raise JesenskaError(f"The file {path} cannot be read ({error.strerror}): name one that exists.") from error


def _base_offset(path: Path) -> int:
    """Returns the base offset in a segment file's name."""
    stem = path.name.partition(".")[0]
    if not (stem.isascii() and stem.isdigit()):
        raise JesenskaError(
            f"{path} has no offset in its name: segment files are named like 00000000000000000000{path.suffix}."
        )
    return int(stem)


def _is_valid(data: Data, position: int, header: BatchHeader) -> bool:
    try:
        verify_crc(data, position, header)
    except CorruptMessageError:
        return False
    return True


def _last_offset_at(log: Data, position: int) -> int:
    """Returns the last offset of the batch at a position. Returns -1 if no batch begins there."""
    if not 0 <= position <= len(log) - HEADER_SIZE:
        return -1
    try:
        return read_header(log, position).last_offset
    except KafkaError:
        return -1


def _largest_up_to(batches: Iterator[tuple[int, BatchHeader]], offset: int) -> int:
    largest = -1
    for _, header in batches:
        largest = max(largest, header.max_timestamp)
        if header.last_offset >= offset:
            break
    return largest


def _codec(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else str(number)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


if __name__ == "__main__":
    sys.exit(main())
