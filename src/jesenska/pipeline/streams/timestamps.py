"""Timestamp extractors, which choose the timestamp of a record that is read from a topic.

The default is the record's own timestamp. An extractor is a function of two arguments: the record (an `InputRecord`),
and the largest timestamp of its partition so far (-1 before the first record). It returns milliseconds since 1970. If
it returns a negative number, the record is dropped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.records import Headers


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record as it was read from a topic, with its key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers = ()


TimestampExtractor = Callable[[InputRecord, int], int]


def fail_on_invalid_timestamp(record: InputRecord, partition_time: int) -> int:
    """Returns the record's timestamp. Raises StreamsError for a negative timestamp, which stops the application. This
    is the default extractor."""
    if record.timestamp < 0:
        raise StreamsError(
            f"the record at {record.topic}-{record.partition}, offset {record.offset}, has the timestamp "
            f"{record.timestamp}: "
            "give the source an extractor such as log_and_skip_on_invalid_timestamp."
        )
    return record.timestamp


def log_and_skip_on_invalid_timestamp(record: InputRecord, partition_time: int) -> int:
    """Returns the record's timestamp. A record with a negative timestamp is dropped."""
    return record.timestamp


def use_partition_time_on_invalid_timestamp(record: InputRecord, partition_time: int) -> int:
    """Returns the record's timestamp. If it is negative, returns the largest timestamp of the partition so far."""
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        raise StreamsError(
            f"the first record of {record.topic}-{record.partition} has the timestamp {record.timestamp}, and no "
            "earlier record of the partition has a timestamp to use in its place: give the source another "
            "extractor."
        )
    return partition_time


def wallclock_timestamp(record: InputRecord, partition_time: int) -> int:
    """Returns the present time of the wall clock: processing time instead of event time."""
    return time.time_ns() // 1_000_000


_JAVAS = "org.apache.kafka.streams.processor."
_BY_NAME: dict[str, TimestampExtractor] = {
    "FailOnInvalidTimestamp": fail_on_invalid_timestamp,
    "LogAndSkipOnInvalidTimestamp": log_and_skip_on_invalid_timestamp,
    "UsePartitionTimeOnInvalidTimestamp": use_partition_time_on_invalid_timestamp,
    "WallclockTimestampExtractor": wallclock_timestamp,
}


def extractor_named(setting: str, given: Any) -> TimestampExtractor:
    """Returns the extractor that a setting names: a function, or the name of one of Kafka's extractor classes. Raises
    SettingError for other values."""
    if callable(given):
        extractor: TimestampExtractor = given
        return extractor
    found = _BY_NAME.get(str(given).removeprefix(_JAVAS))
    if found is None:
        raise SettingError(
            f"{setting} is {given!r}, which names no extractor: give a function, or one of "
            f"{', '.join(sorted(_BY_NAME))}."
        )
    return found
