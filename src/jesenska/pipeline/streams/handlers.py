"""The exception handlers, which decide what happens to a record that cannot be processed. Each of three settings names
the handler for one kind of failure:

    deserialization.exception.handler    the serdes cannot read a record
    processing.exception.handler         an operation or a processor raises an exception, for a record or in a
                                         punctuation
    production.exception.handler         the serdes cannot write a record to a topic

    log_and_fail          the application stops, naming the record (the default)
    log_and_continue      the record is dropped, counted and logged; changes that it has already made to stores remain
    dead_letter_topic     the record is written unchanged to a dead letter topic, with headers that contain its topic,
                          partition, offset and the error; processing continues

If errors.dead.letter.queue.topic.name is set, log_and_fail and log_and_continue also write the record to the topic
that it names. A user's handler is a function that takes a DeserializationFailure, a ProcessingFailure or a
ProductionFailure and returns a Decision. The settings also take the class names of Kafka's handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.errors import SettingError, StreamsError
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.records import Headers, Record


@dataclass(frozen=True, slots=True)
class _Failed:
    """The record that was read when processing failed, as bytes from its topic, and the error."""

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
    """A record that could not be deserialized, as bytes from its topic, and the error."""


@dataclass(frozen=True, slots=True)
class ProcessingFailure(_Failed):
    """The failure of an operation: the record that was read from a topic, as bytes, and the error. `node` is the name
    of the operation, and `record` is its input. In a punctuation `record` is None, the topic is "", and the partition
    and the offset are -1."""

    node: str
    record: Record | None


@dataclass(frozen=True, slots=True)
class ProductionFailure(_Failed):
    """The failure to write `record` to the topic `target`. The other fields have the same meaning as in
    ProcessingFailure."""

    node: str
    record: Record
    target: str


Failure = DeserializationFailure | ProcessingFailure | ProductionFailure


@dataclass(frozen=True, slots=True)
class Decision:
    """A handler's decision. If `fails` is True, the application stops. `records` are written in any case: pairs of a
    topic and a Record of bytes."""

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
    """Decides that the application stops."""
    return Decision.fail()


def log_and_continue(failure: Failure) -> Decision:
    """Decides that the record is dropped and processing continues."""
    return Decision.resume()


def dead_letter_topic(topic: str) -> Handler:
    """Returns a handler that writes the failed record to `topic`, so processing continues. It adds headers, named as
    in Kafka Streams (KIP-1034): `__streams.errors.topic`, `.partition`, `.offset`, `.exception` and `.message`."""
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
    """Returns log_and_fail or log_and_continue, extended so that it also writes the record to the dead letter topic
    `topic`. Other handlers are returned unchanged. If `topic` is None, every handler is returned unchanged."""
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
    """Returns the handler that a setting names: a function, the name of a handler of this module, or a class name of
    Kafka's handlers. Raises SettingError for other values."""
    if callable(given):
        handler: Handler = given
        return handler
    found = _BY_NAME.get(str(given).removeprefix(_JAVAS))
    if found is None:
        raise SettingError(
            f"{setting} is {given!r}, which names no handler: give a function, or one of {', '.join(sorted(_OURS))}."
        )
    return found
