"""The processors that descriptions name, for our DSL. `StreamsJudge.java` has the same ones."""

from __future__ import annotations

from typing import Any

from jesenska.pipeline.streams import Processor, ProcessorContext, PunctuationType, Record, ValueTransformer
from jesenska.pipeline.streams.processing import Cancellable
from tests.pipeline.streams.named_functions import text
from tests.pipeline.streams.topology_spec import Json


class Program(Processor):
    """A processor of the step's name, for `process` and `process_values`."""

    def __init__(self, step: Json) -> None:
        self.step = step
        self.name: str = step["processor"]
        self.store: Any = None
        self.schedule: Cancellable | None = None
        self.calls = 0

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        if self.step.get("stores"):
            self.store = context.get_state_store(self.step["stores"][0])
        if "every_ms" in self.step:
            kind = PunctuationType.STREAM_TIME if self.step["time"] == "stream" else PunctuationType.WALL_CLOCK_TIME
            self.schedule = context.schedule(self.step["every_ms"], kind, self.punctuate)

    def punctuate(self, timestamp: int) -> None:
        self.calls += 1
        if self.name == "two ticks":
            self.context.forward(Record("tick", str(self.calls), timestamp))
            if self.calls == 2 and self.schedule is not None:
                self.schedule.cancel()
            return
        for key, value in list(self.store.all()):
            self.context.forward(Record(key, value, timestamp))
            self.store.delete(key)

    def process(self, record: Record) -> None:
        key, value = record.key, record.value
        match self.name:
            case "count seen":
                self.context.forward(record.with_value(counted(self.store, key, value)))
            case "hold":
                if key is not None:
                    self.store.put(key, value)
            case "changes":
                if key is not None:
                    old = self.store.get(key)
                    self.store.put(key, value)
                    self.context.forward(record.with_value(f"{text(old)}>{text(value)}"))
            case "recent":
                if key is not None:
                    self.store.put(key, value, record.timestamp)
                    found = self.store.fetch(key, max(0, record.timestamp - 10), record.timestamp)
                    self.context.forward(record.with_value(" ".join(f"{time}:{item}" for time, item in found)))
            case "look up":
                kept = None if key is None else self.store.get(key)
                self.context.forward(record.with_value(f"{text(value)}/{'nothing' if kept is None else f'{kept.value}@{kept.timestamp}'}"))
            case "later":
                self.context.forward(record.with_timestamp(record.timestamp + 5))
            case "two ticks":
                self.context.forward(record)
            case "stream time":
                self.context.forward(record.with_value(f"{self.context.current_stream_time_ms()};{self.context.current_system_time_ms()}"))
            case _:
                raise ValueError(f"no processor is called {self.name}")


def counted(store: Any, key: Any, value: Any) -> Any:
    if key is None:
        return value
    now = (store.get(key) or 0) + 1
    store.put(key, now)
    return f"{text(value)}#{now}"


class TableProgram(ValueTransformer):
    """What `transform_values` of a table calls."""

    def __init__(self, step: Json) -> None:
        self.step = step
        self.store: Any = None

    def init(self, context: ProcessorContext) -> None:
        if self.step.get("stores"):
            self.store = context.get_state_store(self.step["stores"][0])

    def transform(self, key: Any, value: Any) -> Any:
        return f"{text(key)}={text(value)}" if self.store is None else counted(self.store, key, value)
