"""The base classes of the user's own processors: `Processor`, `Transformer`, `ValueTransformer` and
`ValueTransformerWithKey`, and the context that they get. The built-in operators of the test driver have the same
interface.

A supplier (the processor's class, or a function) makes one processor for each task. The processor gets its context in
`init` and each record in `process`; `close` is called at the end. A record that a processor forwards is processed at
once: `forward` returns after all later processors have processed the record.

A punctuator is a function that is called regularly with a time in milliseconds. With PunctuationType.STREAM_TIME it is
called when the records' timestamps have passed the next multiple of the interval. With PunctuationType.WALL_CLOCK_TIME
it is called when the clock has passed the next multiple. If several intervals have passed, the punctuator is called
once, with the present time."""

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
    """A scheduled punctuation, which can be cancelled."""

    def cancel(self) -> None: ...


class ProcessorContext(Protocol):
    """Gives a processor access to its task: to stores, forwarding, punctuations and times."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> str:
        """Returns the task's id, which consists of the sub-topology's number and the partition: for example `0_0`."""
        ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Returns the topic, partition and offset of the current record. Returns None if a punctuation is running."""
        ...

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forwards the record to all child processors, or only to the child of the given name."""
        ...

    def get_state_store(self, name: str) -> Any:
        """Returns a state store by its name. The processor must be connected to the store, or the store must be
        global."""
        ...

    def schedule(
        self, interval: Duration, punctuation_type: PunctuationType, punctuator: Callable[[int], None]
    ) -> Cancellable:
        """Schedules the punctuator to be called every `interval`."""
        ...

    def current_stream_time_ms(self) -> int:
        """Returns the largest timestamp that the task has seen so far; -1 before the first record."""
        ...

    def current_system_time_ms(self) -> int: ...

    def commit(self) -> None:
        """Requests that the task soon commits the offsets of the records that it has processed."""
        ...


class Processor:
    """The base class of a processor. Subclass it and override methods as needed. `self.context` is set when `init` is
    called."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


class Transformer:
    """The base class for `transform` and `flat_transform`. For `transform`, the method transform(key, value) returns a
    pair of key and value, or None for no record. For `flat_transform` it returns any number of pairs. `context` gives
    access to stores and punctuations. Only punctuators may forward records."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


class ValueTransformer:
    """The base class for `transform_values` and `flat_transform_values`. For `transform_values`, the method
    transform(value) returns the new value. For `flat_transform_values` it returns any number of values."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def transform(self, value: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


class ValueTransformerWithKey:
    """The base class for `transform_values` and `flat_transform_values` if the key is needed. For `transform_values`,
    the method transform(key, value) returns the new value. For `flat_transform_values` it returns any number of
    values."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the task ends."""


def check_supplier(operation: str, supplier: Any, *kinds: type) -> None:
    """Raises TopologyError if `supplier` does not make processors, for example if it is a processor object instead of
    its class."""
    kind = kinds[0]
    if isinstance(supplier, kinds) or not callable(supplier):
        what = f"one {type(supplier).__name__} for all tasks" if isinstance(supplier, kinds) else repr(supplier)
        raise refused(
            f"{operation} needs a new {kind.__name__} for each task, and cannot use {what}: give the class, or a "
            "function that returns a new object."
        )
