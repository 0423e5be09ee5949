"""The classes of the user's own processors: `Processor`, `Transformer`, `ValueTransformer`, `ValueTransformerWithKey`,
and the context that they are given. The test driver's own operators have the same interface.

A processor is made by a supplier (its class, or a function that makes one) once for each task, gets its context in
`init`, each record in `process`, and `close` at the end. Records that it forwards within `process` go down at once:
`forward` returns when all later processors are done.

Punctuators are functions that are called with a time in milliseconds: on stream time (PunctuationType.STREAM_TIME)
when the timestamps of records have passed the next multiple of the interval, on wall-clock time when the clock has
passed it. Missed punctuations are not repeated: there is one call, with the present time.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from jesenska.pipeline.streams.durations import Duration
from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.records import Record, RecordMetadata


class PunctuationType(Enum):
    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Cancellable(Protocol):
    """A punctuation that was scheduled."""

    def cancel(self) -> None: ...


class ProcessorContext(Protocol):
    """The context of a processor."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> str:
        """Returns the task's id: sub-topology and partition, such as `0_0`."""
        ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Returns the place where the current record was read; None in a punctuation."""
        ...

    def forward(self, record: Record, child: str | None = None) -> None:
        """Hands the record to all child processors, or to the named one."""
        ...

    def get_state_store(self, name: str) -> Any:
        """Returns a store that this processor is connected to, or a global store."""
        ...

    def schedule(
        self, interval: Duration, punctuation_type: PunctuationType, punctuator: Callable[[int], None]
    ) -> Cancellable:
        """Has the punctuator called every `interval`."""
        ...

    def current_stream_time_ms(self) -> int:
        """Returns the largest timestamp of the task so far; -1 before the first record."""
        ...

    def current_system_time_ms(self) -> int: ...

    def commit(self) -> None:
        """Asks for a commit soon."""
        ...


class Processor:
    """Subclass it and override methods as needed; `self.context` is there from `init` on."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


class Transformer:
    """transform(key, value) gives a pair of a key and a value, or None for nothing; for `flat_transform` any number of
    pairs. `context` has the stores and the punctuations; forwarding is for punctuators."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


class ValueTransformer:
    """transform(value) gives the new value; for `flat_transform_values` any number of values."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def transform(self, value: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


class ValueTransformerWithKey:
    """The same with transform(key, value), which sees the key."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


def check_supplier(operation: str, supplier: Any, *kinds: type) -> None:
    """TopologyError where something else than a supplier is given, such as the processor itself."""
    kind = kinds[0]
    if isinstance(supplier, kinds) or not callable(supplier):
        what = f"one {type(supplier).__name__} for all tasks" if isinstance(supplier, kinds) else repr(supplier)
        raise refused(
            f"{operation} takes what makes a {kind.__name__} for each task, and not {what}: give its class, or a "
            f"function that returns a new one."
        )
