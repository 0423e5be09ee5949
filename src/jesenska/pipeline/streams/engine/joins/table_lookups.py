"""Joins of a stream with a table or a global table: each record is joined with the value that the table has at that
moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.engine.operator import Operator
from jesenska.pipeline.streams.engine.tables import ValueGetter, value_or_none
from jesenska.pipeline.streams.records import Record


class LookUpTable(Operator):
    def __init__(
        self, getter: ValueGetter, key_of: Callable[[Any, Any], Any], joiner: Callable[..., Any], left: bool
    ) -> None:
        self.getter = getter
        self._key_of = key_of
        self.joiner = joiner
        self.left = left

    def init(self, context: Any) -> None:
        super().init(context)
        self.getter.init(context)

    def process(self, record: Record) -> None:
        key = self._key_of(record.key, record.value)
        without_key = self.left and record.key is None and record.value is not None
        if (key is None or record.value is None) and not without_key:
            self.context.dropped("its key for the join or its value is null")
            return
        found = None if key is None else value_or_none(self.getter.get(key))
        if self.left or found is not None:
            self.context.forward(record.with_value(self.joiner(record.key, record.value, found)))
