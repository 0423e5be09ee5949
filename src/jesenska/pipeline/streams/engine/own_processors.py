"""Runs the processors and transformers of the user's program with the interface of built-in processors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.dsl.processing import Processor
from jesenska.pipeline.streams.engine.operator import Operator
from jesenska.pipeline.streams.engine.stateless import pair, several
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.records import Record


def own_processor(name: str, supplier: Callable[[], Any], kind: str) -> Processor:
    """Returns the processor for a node with a processor of the user's program. It runs the object that the user's
    supplier makes."""
    made = supplier()
    if kind == "process":
        if not hasattr(made, "process"):
            raise StreamsError(
                f"the supplier of {name} gave {made!r}, which has no process(record): let it give a Processor."
            )
        return made  # type: ignore[no-any-return]
    if kind == "process-values":
        return _SameKeys(name, made)
    if not hasattr(made, "transform"):
        raise StreamsError(
            f"the supplier of {name} gave {made!r}, which has no transform: let it give a Transformer, a "
            f"ValueTransformer or a ValueTransformerWithKey."
        )
    flat = kind.startswith("flat")
    return _TransformingValues(made, flat) if kind.endswith("values") else _Transforming(made, flat)


class _Delegating(Operator):
    """The base class of processors that run an object of the user's program. It calls the object's `init` and
    `close`."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def init(self, context: Any) -> None:
        super().init(context)
        self._made.context = context
        self._made.init(context)

    def close(self) -> None:
        self._made.close()


class _SameKeys(_Delegating):
    """A processor that raises an error if the user's object forwards a key other than that of the current record."""

    def __init__(self, name: str, made: Any) -> None:
        super().__init__(made)
        self._name = name
        self._current: Record | None = None

    def init(self, context: Any) -> None:
        self.context = context
        self._made.context = checked = _CheckedContext(context, self)
        self._made.init(checked)

    def process(self, record: Record) -> None:
        before, self._current = self._current, record
        try:
            self._made.process(record)
        finally:
            self._current = before

    def check(self, record: Record) -> None:
        if self._current is not None and record.key != self._current.key:
            raise StreamsError(
                f"{self._name} forwarded the key {record.key!r} for {self._current.key!r}: process_values keeps "
                f"keys, use process."
            )


class _CheckedContext:
    """A processor context that checks forwarded records."""

    def __init__(self, context: Any, owner: _SameKeys) -> None:
        self._context = context
        self._owner = owner

    def forward(self, record: Record, child: str | None = None) -> None:
        self._owner.check(record)
        self._context.forward(record, child)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _Transforming(_Delegating):
    def __init__(self, made: Any, flat: bool) -> None:
        super().__init__(made)
        self._flat = flat

    def process(self, record: Record) -> None:
        made = self._made.transform(record.key, record.value)
        if made is None:
            return
        for one in several(made, "pairs") if self._flat else [made]:
            key, value = pair(one)
            self.context.forward(Record(key, value, record.timestamp, record.headers))


class _TransformingValues(_Delegating):
    def __init__(self, made: Any, flat: bool) -> None:
        super().__init__(made)
        self._flat = flat
        self._transform = transform_of(made)

    def process(self, record: Record) -> None:
        made = self._transform(record.key, record.value)
        for value in ([] if made is None else several(made, "values")) if self._flat else [made]:
            self.context.forward(record.with_value(value))


def transform_of(transformer: Any) -> Callable[[Any, Any], Any]:
    """Returns a function transform(key, value) for a transformer of values. The user's method may also take the value
    only."""
    parameters = inspect.signature(transformer.transform).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if takes_any or sum(parameter.default is parameter.empty for parameter in parameters) >= 2:
        return transformer.transform  # type: ignore[no-any-return]
    return lambda key, value: transformer.transform(value)
