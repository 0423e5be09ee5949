"""Formats the records of __consumer_offsets as lines of JSON, for kafka-console-consumer. The output is that of
Kafka's OffsetsMessageFormatter and GroupMetadataMessageFormatter.

    {"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":{"version":3,"data":{"offset":5,...}}}

Each formatter prints records of one kind (offsets, or group metadata) and leaves out all other records. A tombstone's
value is null. Differs from Kafka 4.3.1's formatters: every document is on its own line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records.dump_decoders import fields_of, key_fields
from jesenska.groups.records import GroupRecord, OffsetRecord, read_record
from jesenska.records.record import Record


class GroupRecordFormatter:
    """Formats the records of one kind as lines. Raises JesenskaError if a record of that kind cannot be read."""

    unknown: tuple[str, ...] = ()

    def __init__(self, kind: type[OffsetRecord] | type[GroupRecord]) -> None:
        self._kind = kind

    def lines(self, partition: TopicPartition, records: Iterable[Record]) -> bytes:
        return b"".join([self._line(record) for record in records])

    def _line(self, record: Record) -> bytes:
        if record.key is None:
            return b""
        found = read_record(record.key, record.value)
        if not isinstance(found, self._kind):
            return b""
        key = {"type": _version(record.key), "data": key_fields(found)}
        value: dict[str, Any] | None = None
        if found.value is not None and record.value is not None:
            version = _version(record.value)
            value = {"version": version, "data": fields_of(found.value, version)}
        return json.dumps({"key": key, "value": value}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)
