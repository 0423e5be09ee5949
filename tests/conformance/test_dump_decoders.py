"""kafka-dump-log's decoders of internal topics write what those of Apache Kafka 4.3.1 write: random records of every
kind and version, control records of the metadata log, and bytes that are none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from jesenska.cli.kafka.records.dump_records import SHARE_GROUPS, TRANSACTIONS, Kinds
from jesenska.cli.kafka.records.kafka_dump_log import main as dump
from jesenska.interchange.raft.records import CONTROL_RECORDS, RECORDS, write_record
from jesenska.records.encode import encode_batch
from jesenska.records.record import RecordInput
from jesenska.wire.codec import encode
from tests.conformance.test_messages import random_struct
from tests.peers.tools import Tools

pytestmark = pytest.mark.conformance

_OF_EACH = 12


def _of_metadata() -> list[RecordInput]:
    source = random.Random(1)
    found: list[RecordInput] = []
    for kind in RECORDS.values():
        for version in range(kind.versions[0], kind.versions[1] + 1):
            found += [
                (1000, None, write_record(random_struct(kind, version, source), version), ()) for _ in range(_OF_EACH)
            ]
    return found


def _of_kinds(kinds: Kinds) -> list[RecordInput]:
    source = random.Random(2)
    found: list[RecordInput] = []
    for number, (key_of, value_of) in kinds.items():
        for version in range(value_of.versions[0], value_of.versions[1] + 1):
            for _ in range(_OF_EACH):
                key = number.to_bytes(2, "big") + encode(random_struct(key_of, 0, source), 0)
                found.append(
                    (
                        1000,
                        key,
                        version.to_bytes(2, "big") + encode(random_struct(value_of, version, source), version),
                        (),
                    )
                )
        found.append((1000, key, None, ()))
    return found


def _control_batches() -> bytes:
    """One batch for each kind, in version 0: Kafka's tool fails on version 1 of LeaderChange, since it reads it as
    0."""
    source = random.Random(3)
    found = bytearray()
    for offset, (number, kind) in enumerate(CONTROL_RECORDS.items()):
        message = random_struct(kind, 0, source)
        setattr(message, kind.fields[0].name, 0)
        record: RecordInput = (1000, b"\0\0" + number.to_bytes(2, "big"), encode(message, 0), ())
        found += encode_batch([record], base_offset=offset, is_control=True)
    return bytes(found)


@pytest.mark.parametrize(
    "decoder", ["--cluster-metadata-decoder", "--transaction-log-decoder", "--share-group-state-decoder"]
)
def test_records_of_every_kind_are_shown_as_by_kafka(
    tools_4: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str], decoder: str
) -> None:
    records = {
        "--cluster-metadata-decoder": _of_metadata(),
        "--transaction-log-decoder": _of_kinds(TRANSACTIONS),
        "--share-group-state-decoder": _of_kinds(SHARE_GROUPS),
    }[decoder]
    names = [f"{0:020d}.log"]
    (tmp_path / names[0]).write_bytes(encode_batch(records))
    if decoder == "--cluster-metadata-decoder":
        names.append(f"{125:020d}-{7:010d}.checkpoint")
        (tmp_path / names[1]).write_bytes(_control_batches())
    files = ",".join(str(tmp_path / name) for name in names)
    theirs = tools_4.run("kafka-dump-log", "--files", files, decoder)
    assert theirs.code == dump(["--files", files, decoder]) == 0
    ours = capsys.readouterr().out
    different = [pair for pair in zip(ours.splitlines(), theirs.lines, strict=True) if pair[0] != pair[1]]
    assert different == []
    assert ours.count("key: " if "metadata" not in decoder else "payload: ") >= len(records)
