"""The base of the built-in processors: an operator is a Processor whose context can drop a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jesenska.pipeline.streams.dsl.processing import Processor, ProcessorContext
from jesenska.pipeline.streams.records import Change, Record, RecordMetadata


class OperatorContext(ProcessorContext, Protocol):
    """The context as operators see it."""

    def dropped(self, reason: str) -> None:
        """The current record is dropped: it is counted and logged."""
        ...

    def exchange_metadata(self, metadata: RecordMetadata | None) -> RecordMetadata | None:
        """Sets the origin of the current record; gives the origin before."""
        ...


class Operator(Processor):
    """`remembers` are the attributes, whole numbers or None, that outlive the task besides its stores."""

    context: OperatorContext
    remembers: tuple[str, ...] = ()

    def remembered(self) -> list[int | None]:
        """Returns the numbers for `remember` of the same operator in a later task."""
        return [getattr(self, name) for name in self.remembers]

    def remember(self, values: Sequence[int | None]) -> None:
        for name, value in zip(self.remembers, values, strict=True):
            setattr(self, name, value)

    def forward_change(self, record: Record, new: Any, old: Any, timestamp: int | None = None) -> None:
        """Hands on a change of a table under the record's key."""
        self.context.forward(
            Record(record.key, Change(new, old), record.timestamp if timestamp is None else timestamp, record.headers)
        )


NULL_KEY = "its key is null"
NULL_KEY_OR_VALUE = "its key or its value is null"
