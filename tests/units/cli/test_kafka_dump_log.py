"""kafka-dump-log on the files of a broker that was stopped, and on files that are damaged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from jesenska.cli.kafka.records.kafka_dump_log import main
from jesenska.log.segments.producer_state import ProducerEntry, RememberedBatch, encode_snapshot
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from tests.processes.cli.conftest import Tool

NAME = "00000000000000000000"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of three batches, with its indexes."""
    log = encode_batch(
        [(1000, b"k", b"v", (("h", b"1"),)), (1001, None, b"w", ())], producer_id=7, producer_epoch=1, base_sequence=5
    )
    second = len(log)
    log += encode_batch([(1002, b"k2", None, ())], Codec.GZIP, base_offset=2)
    third = len(log)
    log += encode_batch([(900, None, None, ())], base_offset=3)
    (tmp_path / f"{NAME}.log").write_bytes(log)
    (tmp_path / f"{NAME}.index").write_bytes(
        b"".join(number.to_bytes(4, "big") for number in (2, second, 3, third)) + bytes(80)
    )
    (tmp_path / f"{NAME}.timeindex").write_bytes(
        (1001).to_bytes(8, "big") + (1).to_bytes(4, "big") + (1002).to_bytes(8, "big") + (2).to_bytes(4, "big")
    )
    return tmp_path / f"{NAME}.log"


def test_a_line_for_each_batch(tool: Tool, segment: Path) -> None:
    dumped = tool(main, "--files", str(segment))
    assert (dumped.code, dumped.err) == (0, "")
    assert dumped.lines[:2] == [f"Dumping {segment}", "Log starting offset: 0"]
    assert re.sub(r"crc: \d+", "crc: C", dumped.lines[2]) == (
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 5 lastSequence: 6 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: -1 isTransactional: false "
        "isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1001 size: 82 magic: 2 "
        "compresscodec: none crc: C isvalid: true"
    )
    assert ["compresscodec: gzip" in line for line in dumped.lines[2:]] == [False, True, False]


def test_records_with_and_without_their_contents(tool: Tool, segment: Path) -> None:
    def records(*arguments: str) -> list[str]:
        return [
            line
            for line in tool(main, "--files", str(segment), *arguments).lines[2:]
            if not line.startswith("baseOffset")
        ]

    assert records("--print-data-log") == [
        "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 5 headerKeys: [h] key: k payload: v",
        "| offset: 1 CreateTime: 1001 keySize: -1 valueSize: 1 sequence: 6 headerKeys: [] payload: w",
        "| offset: 2 CreateTime: 1002 keySize: 2 valueSize: -1 sequence: -1 headerKeys: [] key: k2",
        "| offset: 3 CreateTime: 900 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
    ]
    assert records("--print-data-log", "--skip-record-metadata") == [
        "| key: k payload: v",
        "| payload: w",
        "| key: k2",
        "",
    ]
    assert (
        records("--deep-iteration")[0]
        == "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 5 headerKeys: [h]"
    )


def test_indexes_that_fit_the_log(tool: Tool, segment: Path) -> None:
    index, times = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    dumped = tool(main, "--files", f"{index},{times}")
    assert dumped.code == 0
    assert dumped.lines[0] == f"Dumping {index}"
    assert re.fullmatch(r"offset: 2 position: 82\noffset: 3 position: \d+", "\n".join(dumped.lines[1:3]))
    assert dumped.lines[3:] == [f"Dumping {times}", "timestamp: 1001 offset: 1", "timestamp: 1002 offset: 2"]
    assert tool(main, "--files", str(index), "--verify-index-only").lines == [f"Dumping {index}"]
    assert tool(main, "--files", str(index), "--index-sanity-check").lines[1:] == [f"{index} passed sanity check."]
    assert tool(main, "--files", str(times), "--index-sanity-check").lines[1:] == [f"{times} passed sanity check."]


def test_indexes_that_do_not_fit_are_named(tool: Tool, segment: Path) -> None:
    index, times = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    index.write_bytes(b"".join(number.to_bytes(4, "big") for number in (2, 0)))
    times.write_bytes((999).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    wrong = tool(main, "--files", str(index), "--verify-index-only")
    assert (wrong.code, wrong.lines[1:]) == (1, [f"Mismatches in :{index}", "  Index offset: 2, log offset: 1"])
    late = tool(main, "--files", str(times), "--verify-index-only")
    assert (late.code, late.lines[1:]) == (
        1,
        [f"Found timestamp mismatch in :{times}", "  Index timestamp: 999, log timestamp: 1001"],
    )
    index.write_bytes(bytes(80))
    assert tool(main, "--files", str(index)).lines[1:] == [f"{index} is empty."]
    index.write_bytes(b"123")
    assert "not a multiple" in tool(main, "--files", str(index)).err


def test_a_batch_with_a_wrong_crc_and_bytes_at_the_end_are_told(tool: Tool, segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data[:-5])
    dumped = tool(main, "--files", str(segment))
    assert dumped.code == 1
    assert [line.rpartition(" ")[2] for line in dumped.lines[2:4]] == ["false", "true"]
    assert re.fullmatch(r"Found \d+ invalid bytes at the end of 00000000000000000000\.log", dumped.lines[4])


def test_nonsense_behind_good_batches_is_reported_with_its_position(tool: Tool, segment: Path) -> None:
    good = segment.read_bytes()
    segment.write_bytes(good + b"\x00" * 8 + b"\xff" * 60)
    dumped = tool(main, "--files", str(segment))
    assert dumped.code == 1
    assert f"from position {len(good)} on" in dumped.err
    assert dumped.lines[-1] == f"Found 68 invalid bytes at the end of {NAME}.log"


def test_offsets_that_are_missing_are_told_and_are_no_fault(tool: Tool, segment: Path) -> None:
    segment.write_bytes(encode_batch([(1, None, b"a", ())]) + encode_batch([(2, None, b"b", ())], base_offset=5))
    dumped = tool(main, "--files", str(segment), "--deep-iteration")
    assert (dumped.code, dumped.lines[-2:]) == (0, [f"Non-consecutive offsets in {segment}", "  0 is followed by 5"])


def test_a_snapshot_shows_its_producers(tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / f"{NAME}.snapshot"
    file.write_bytes(encode_snapshot([ProducerEntry(4, 1, (RememberedBatch(9, 11, 20, 2, 1000),), -1, 1000, -1, 0)]))
    assert tool(main, "--files", str(file)).lines[1:] == [
        "producerId: 4 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1000 "
        "firstSequence: 9 lastSequence: 11 lastOffset: 20 offsetDelta: 2 timestamp: 1000"
    ]
    file.write_bytes(file.read_bytes()[:-1])
    torn = tool(main, "--files", str(file))
    assert (torn.code, "is corrupt" in torn.err) == (1, True)


def test_a_transaction_index_shows_what_was_aborted(tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / f"{NAME}.txnindex"
    file.write_bytes(bytes(2) + b"".join(number.to_bytes(8, "big") for number in (7, 3, 9, 10)))
    assert tool(main, "--files", str(file)).lines[1:] == [
        "version: 0 producerId: 7 firstOffset: 3 lastOffset: 9 lastStableOffset: 10"
    ]
    file.write_bytes(file.read_bytes()[:-1])
    torn = tool(main, "--files", str(file))
    assert (torn.code, "A broker that starts builds it anew." in torn.lines[-1]) == (1, True)


def test_max_bytes_bounds_what_is_read(tool: Tool, segment: Path) -> None:
    assert len(tool(main, "--files", str(segment), "--max-bytes", "82").lines) == 3


def test_a_key_that_its_decoder_cannot_read_is_one_sentence(tool: Tool, segment: Path) -> None:
    dumped = tool(main, "--files", str(segment), "--key-decoder-class", "kafka.serializer.LongDecoder")
    assert (dumped.code, dumped.err) == (
        1,
        "kafka-dump-log: 1 bytes are not a number of 8 bytes, which the decoder expects: name another decoder.\n",
    )


def test_json_has_a_line_for_each_batch(tool: Tool, segment: Path) -> None:
    batches = [json.loads(line) for line in tool(main, "--files", str(segment), "--output", "json").lines]
    assert [(item["base_offset"], item["lastOffset"], item["codec"], item["valid"]) for item in batches] == [
        (0, 1, "none", True),
        (2, 2, "gzip", True),
        (3, 3, "none", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--files", "/there/is/none/00000000000000000000.log"], "cannot be read"),
        (["--print-data-log"], "--files"),
        (["--files", "x.log", "--remote-log-metadata-decoder"], "is not built"),
        (["--files", "x.log", "--value-decoder-class", "my.own.Decoder"], "my.own.Decoder is a Java class"),
        (
            ["--files", "x.log", "--key-decoder-class", "org.apache.kafka.tools.api.DefaultDecoder"],
            "StringDecoder, IntegerDecoder, LongDecoder",
        ),
        (["--files", __file__], "left out"),
        (["--files", "nowhere"], "The file nowhere does not exist"),
    ],
)
def test_what_cannot_be_dumped_is_one_sentence_and_exit_code_1(tool: Tool, arguments: list[str], says: str) -> None:
    result = tool(main, *arguments)
    assert (result.code, result.err.count("\n"), says in result.err) == (1, 1, True)


def test_a_file_without_an_offset_in_its_name_is_refused(tool: Tool, segment: Path) -> None:
    odd = segment.with_name("odd.log")
    shutil.copy(segment, odd)
    assert "no offset in its name" in tool(main, "--files", str(odd)).err
