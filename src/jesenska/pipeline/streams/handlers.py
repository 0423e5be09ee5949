"""What happens with records that the serdes cannot read: `default.deserialization.exception.handler`.

    log_and_fail          the application stops, naming the record (the default)
    log_and_continue      the record is dropped, counted and told in the log
    dead_letter_topic     the record goes to a topic as it was, with headers that say where it was and why, and
                          processing goes on

A handler of one's own is a function of a DeserializationFailure that gives a Decision. The settings also take Kafka's
class names LogAndFailExceptionHandler and LogAndContinueExceptionHandler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.records import Headers, Record


@dataclass(frozen=True, slots=True)
class DeserializationFailure:
    """A record that could not be read, as it was in its topic, and the error."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    error: StreamsError


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the application stops, and records to write before: pairs of a topic and a Record of bytes."""

    fails: bool
    records: tuple[tuple[str, Record], ...] = ()

    @classmethod
    def fail(cls) -> Decision:
        return cls(True)

    @classmethod
    def resume(cls, *records: tuple[str, Record]) -> Decision:
        return cls(False, records)


DeserializationHandler = Callable[[DeserializationFailure], Decision]


def log_and_fail(failure: DeserializationFailure) -> Decision:
    """Stops the application."""
    return Decision.fail()


def log_and_continue(failure: DeserializationFailure) -> Decision:
    """Drops the record."""
    return Decision.resume()


def dead_letter_topic(topic: str) -> DeserializationHandler:
    """Writes the record to that topic and goes on. Its headers are those that Kafka Streams has for it (KIP-1034):
    `__streams.errors.topic`, `.partition`, `.offset`, `.exception` and `.message`."""
    checked(topic)

    def write(failure: DeserializationFailure) -> Decision:
        told = {
            "exception": type(failure.error).__name__,
            "message": str(failure.error),
            "topic": failure.topic,
            "partition": str(failure.partition),
            "offset": str(failure.offset),
        }
        headers = failure.headers + tuple((f"__streams.errors.{name}", text.encode()) for name, text in told.items())
        return Decision.resume((topic, Record(failure.key, failure.value, max(failure.timestamp, 0), headers)))

    return write


_JAVAS = "org.apache.kafka.streams.errors."
_OURS: dict[str, DeserializationHandler] = {"log_and_fail": log_and_fail, "log_and_continue": log_and_continue}
_BY_NAME = {**_OURS, "LogAndFailExceptionHandler": log_and_fail, "LogAndContinueExceptionHandler": log_and_continue}


def handler_named(setting: str, given: Any) -> DeserializationHandler:
    """The handler that a setting names: a function, the name of one that is here, or one of Kafka's classes."""
    if callable(given):
        handler: DeserializationHandler = given
        return handler
    found = _BY_NAME.get(str(given).removeprefix(_JAVAS))
    if found is None:
        raise SettingError(f"{setting} is {given!r}, which names no handler: give a function, or one of {', '.join(sorted(_OURS))}.")
    return found
