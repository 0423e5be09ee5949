"""Handlers of records that fail. Three settings name a handler each:

    deserialization.exception.handler    the serdes cannot read a record
    processing.exception.handler         an operation or a processor raises while it has a record, or is called by the
                                         clock
    production.exception.handler         the serdes cannot write a record to a topic

    log_and_fail          the application stops, naming the record (the default)
    log_and_continue      the record is dropped, counted and logged; its earlier changes of stores stay
    dead_letter_topic     the record that was read goes to a topic as it was, with headers that say its place and
                          the reason, and processing goes on

With errors.dead.letter.queue.topic.name the first two write to that topic, too. A user's handler is a function of a
DeserializationFailure, a ProcessingFailure or a ProductionFailure that gives a Decision. The settings also take the
class names of Kafka's handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.records import Headers, Record


@dataclass(frozen=True, slots=True)
class _Failed:
    """The record that was read, as it was in its topic, and the error."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    error: StreamsError


@dataclass(frozen=True, slots=True)
class DeserializationFailure(_Failed):
    """A record that could not be read, as it was in its topic, and the error."""


@dataclass(frozen=True, slots=True)
class ProcessingFailure(_Failed):
    """The record that was read when an operation failed, as it was in its topic, and the error. `node` is the
    operation's name, `record` its input. If the clock called it, there is neither a record nor a topic (""), and the
    partition and the offset are -1."""

    node: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class ProductionFailure(_Failed):
    """A failure as ProcessingFailure. `record` could not be written to the topic `target`."""

    node: str
    record: Record
    target: str


Failure = DeserializationFailure | ProcessingFailure | ProductionFailure


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision: `fails` if the application stops, and records to write before: pairs of a topic and a Record of
    bytes."""

    fails: bool
    records: tuple[tuple[str, Record], ...] = ()

    @classmethod
    def fail(cls) -> Decision:
        return cls(True)

    @classmethod
    def resume(cls, *records: tuple[str, Record]) -> Decision:
        return cls(False, records)


Handler = Callable[[Any], Decision]
"""handler(failure), which is one of those three"""


def log_and_fail(failure: Failure) -> Decision:
    """Stops the application."""
    return Decision.fail()


def log_and_continue(failure: Failure) -> Decision:
    """Drops the record."""
    return Decision.resume()


def dead_letter_topic(topic: str) -> Handler:
    """Writes the record to that topic and goes on. Its headers are those that Kafka Streams has for it (KIP-1034):
    `__streams.errors.topic`, `.partition`, `.offset`, `.exception` and `.message`."""
    checked(topic)

    def write(failure: Failure) -> Decision:
        fields = {
            "exception": type(failure.error).__name__,
            "message": str(failure.error),
            "topic": failure.topic,
            "partition": str(failure.partition),
            "offset": str(failure.offset),
        }
        headers = failure.headers + tuple((f"__streams.errors.{name}", text.encode()) for name, text in fields.items())
        return Decision.resume((topic, Record(failure.key, failure.value, max(failure.timestamp, 0), headers)))

    return write


def with_dead_letters(handler: Handler, topic: str | None) -> Handler:
    """One of the first two handlers, which also writes to the topic of dead letters, if there is one. Other handlers
    stay unchanged."""
    if topic is None or handler not in (log_and_fail, log_and_continue):
        return handler
    write = dead_letter_topic(topic)

    def decide(failure: Failure) -> Decision:
        return Decision(handler(failure).fails, write(failure).records)

    return decide


_JAVAS = "org.apache.kafka.streams.errors."
_OURS: dict[str, Handler] = {"log_and_fail": log_and_fail, "log_and_continue": log_and_continue}
_BY_NAME = {
    **_OURS,
    "LogAndFailExceptionHandler": log_and_fail,
    "LogAndContinueExceptionHandler": log_and_continue,
    "LogAndFailProcessingExceptionHandler": log_and_fail,
    "LogAndContinueProcessingExceptionHandler": log_and_continue,
    "DefaultProductionExceptionHandler": log_and_fail,
}


def handler_named(setting: str, given: Any) -> Handler:
    """Returns the handler that a setting names: a function, the name of one that is here, or one of Kafka's
    classes."""
    if callable(given):
        handler: Handler = given
        return handler
    found = _BY_NAME.get(str(given).removeprefix(_JAVAS))
    if found is None:
        raise SettingError(
            f"{setting} is {given!r}, which names no handler: give a function, or one of {', '.join(sorted(_OURS))}."
        )
    return found
