"""Stream operations without state: each processes one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jesenska.pipeline.streams.engine.operator import Operator
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.records import Record

Call = Callable[..., Any]


class PassThrough(Operator):
    """Forwards records unchanged: for `merge`, and for the branches of a stream."""

    def process(self, record: Record) -> None:
        self.context.forward(record)


class FilterRecords(Operator):
    def __init__(self, predicate: Call, negated: bool) -> None:
        self.predicate = predicate
        self.negated = negated

    def process(self, record: Record) -> None:
        if bool(self.predicate(record.key, record.value)) is not self.negated:
            self.context.forward(record)


class DropNullKeys(Operator):
    """The processor before a repartition topic. If `drops` is True, it drops records that have no key."""

    def __init__(self, drops: bool) -> None:
        self.drops = drops

    def process(self, record: Record) -> None:
        if record.key is not None or not self.drops:
            self.context.forward(record)


class MapRecords(Operator):
    def __init__(self, mapper: Call) -> None:
        self.mapper = mapper

    def process(self, record: Record) -> None:
        key, value = pair(self.mapper(record.key, record.value))
        self.context.forward(Record(key, value, record.timestamp, record.headers))


class SelectKeys(Operator):
    def __init__(self, mapper: Call) -> None:
        self.mapper = mapper

    def process(self, record: Record) -> None:
        self.context.forward(record.with_key(self.mapper(record.key, record.value)))


class MapRecordValues(Operator):
    def __init__(self, mapper: Call) -> None:
        self.mapper = mapper

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(self.mapper(record.key, record.value)))


class FlatMapRecords(Operator):
    def __init__(self, mapper: Call) -> None:
        self.mapper = mapper

    def process(self, record: Record) -> None:
        for made in several(self.mapper(record.key, record.value), "pairs"):
            key, value = pair(made)
            self.context.forward(Record(key, value, record.timestamp, record.headers))


class FlatMapRecordValues(Operator):
    def __init__(self, mapper: Call) -> None:
        self.mapper = mapper

    def process(self, record: Record) -> None:
        values = self.mapper(record.key, record.value)
        for value in () if values is None else several(values, "values"):
            self.context.forward(record.with_value(value))


class PeekRecords(Operator):
    def __init__(self, action: Call) -> None:
        self.action = action

    def process(self, record: Record) -> None:
        self.action(record.key, record.value)
        self.context.forward(record)


class ForeachRecord(Operator):
    def __init__(self, action: Call) -> None:
        self.action = action

    def process(self, record: Record) -> None:
        self.action(record.key, record.value)


class BranchRecords(Operator):
    def __init__(self, predicates: Sequence[Call], children: Sequence[str]) -> None:
        self.predicates = predicates
        self.children = children

    def process(self, record: Record) -> None:
        for predicate, child in zip(self.predicates, self.children):
            if predicate(record.key, record.value):
                self.context.forward(record, child)
                return
        if len(self.children) > len(self.predicates):
            self.context.forward(record, self.children[len(self.predicates)])


def pair(made: Any) -> tuple[Any, Any]:
    """Returns the result of a user's function as a key and a value. Raises StreamsError if the result is not a tuple
    of two elements."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise StreamsError(f"a function that makes pairs gave {made!r}: let it give a tuple of the key and the value.")
    return made


def several(made: Any, what: str) -> Any:
    """Returns the result of a user's function as an iterable of values. Raises StreamsError for a string, bytes, or an
    object that cannot be iterated."""
    if isinstance(made, str | bytes) or not hasattr(made, "__iter__"):
        raise StreamsError(f"a function that makes several {what} gave {made!r}: let it give a list.")
    return made
