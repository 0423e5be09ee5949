"""The base class of the built-in processors. An operator is a Processor that can also drop a record and restore its
state in a later task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jesenska.pipeline.streams.dsl.processing import Processor, ProcessorContext
from jesenska.pipeline.streams.records import Change, Record, RecordMetadata


class OperatorContext(ProcessorContext, Protocol):
    """The processor context with the methods that only operators use."""

    def dropped(self, reason: str) -> None:
        """Drops the current record: counts it, and logs the reason."""
        ...

    def exchange_metadata(self, metadata: RecordMetadata | None) -> RecordMetadata | None:
        """Sets the topic, partition and offset of the current record. Returns the topic, partition and offset that
        were set before."""
        ...


class Operator(Processor):
    """A built-in processor. `remembers` contains the names of the attributes that must be restored in a later task, in
    addition to the stores. Their values are whole numbers or None."""

    context: OperatorContext
    remembers: tuple[str, ...] = ()

    def remembered(self) -> list[int | None]:
        """Returns the values of the attributes that `remembers` names. `remember` restores them in the same operator
        of a later task."""
        return [getattr(self, name) for name in self.remembers]

    def remember(self, values: Sequence[int | None]) -> None:
        for name, value in zip(self.remembers, values, strict=True):
            setattr(self, name, value)

    def forward_change(self, record: Record, new: Any, old: Any, timestamp: int | None = None) -> None:
        """Forwards a change of a table, under the record's key."""
        self.context.forward(
            Record(record.key, Change(new, old), record.timestamp if timestamp is None else timestamp, record.headers)
        )


NULL_KEY = "its key is null"
NULL_KEY_OR_VALUE = "its key or its value is null"
