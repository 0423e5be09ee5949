"""The processors that descriptions name, for our DSL. `StreamsJudge.java` has the same ones."""

from __future__ import annotations

from typing import Any

from jesenska.pipeline.streams import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    SessionWindow,
    Transformer,
    ValueTransformerWithKey,
    Windowed,
)
from jesenska.pipeline.streams.dsl.processing import Cancellable
from tests.units.pipeline.streams.named_functions import text
from tests.units.pipeline.streams.topology_spec import Json


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
                self.context.forward(
                    record.with_value(
                        f"{text(value)}/{'nothing' if kept is None else f'{kept.value}@{kept.timestamp}'}"
                    )
                )
            case "store calls":
                if key is not None:
                    self.context.forward(record.with_value(store_calls(self.store, key, value)))
            case "window calls":
                if key is not None:
                    self.context.forward(record.with_value(window_calls(self.store, record)))
            case "session calls":
                if key is not None:
                    self.context.forward(record.with_value(session_calls(self.store, record)))
            case "metadata":
                at = self.context.record_metadata
                self.context.forward(
                    record.with_value(
                        "nowhere" if at is None or at.topic is None else f"{at.topic}-{at.partition}@{at.offset}"
                    )
                )
            case "later":
                self.context.forward(record.with_timestamp(record.timestamp + 5))
            case "two ticks":
                self.context.forward(record)
            case "stream time":
                self.context.forward(
                    record.with_value(
                        f"{self.context.current_stream_time_ms()};{self.context.current_system_time_ms()}"
                    )
                )
            case _:
                raise ValueError(f"no processor is called {self.name}")


def listed(items: Any) -> str:
    return ",".join(f"{text(key)}:{text(value)}" for key, value in items)


def store_calls(store: Any, key: str, value: str | None) -> str:
    said = [
        f"had {text(store.delete(key) if value is None else store.put_if_absent(key, value))}",
        f"all {listed(store.all())}",
        f"back {listed(store.reverse_all())}",
        f"range {listed(store.range('b', 'c'))}",
        f"from {listed(store.range('b', None))}",
        f"to back {listed(store.reverse_range(None, 'b'))}",
        f"prefix {listed(store.prefix_scan(key or 'a', Serdes.string()))}",
    ]
    if value is not None and len(value) > 2:
        store.put(key, value)
    return " | ".join(said)


def window_calls(store: Any, record: Record) -> str:
    key, at = record.key, record.timestamp
    store.put(key, record.value, at // 5 * 5)
    said = [
        f"one {text(store.fetch(key, at // 5 * 5))}",
        f"back {listed(store.backward_fetch(key, max(0, at - 20), at))}",
        f"keys {listed(store.fetch_range('a', 'b', max(0, at - 10), at + 10))}",
        f"times {listed(store.fetch_all(max(0, at - 10), at + 10))}",
        f"all {listed(store.all())}",
    ]
    return " | ".join(said)


def session_calls(store: Any, record: Record) -> str:
    key, at = record.key, record.timestamp
    near = list(store.find_sessions(key, max(0, at - 5), at + 5))
    start = min([at, *(session.window.start for session, _ in near)])
    end = max([at, *(session.window.end for session, _ in near)])
    for session, _ in near:
        store.remove(session)
    store.put(Windowed(key, SessionWindow(start, end)), "+".join([text(record.value), *(value for _, value in near)]))
    return " | ".join(
        [
            f"one {text(store.fetch_session(key, start, end))}",
            f"key {listed(store.fetch(key))}",
            f"keys {listed(store.fetch('a', 'c'))}",
        ]
    )


def counted(store: Any, key: Any, value: Any) -> Any:
    if key is None:
        return value
    now = (store.get(key) or 0) + 1
    store.put(key, now)
    return f"{text(value)}#{now}"


class TableProgram(ValueTransformerWithKey):
    """The transformer of `transform_values` and `flat_transform_values`."""

    def __init__(self, step: Json) -> None:
        self.step = step
        self.store: Any = None

    def init(self, context: ProcessorContext) -> None:
        if self.step.get("stores"):
            self.store = context.get_state_store(self.step["stores"][0])

    def transform(self, key: Any, value: Any) -> Any:
        made = f"{text(key)}={text(value)}" if self.store is None else counted(self.store, key, value)
        if self.step["do"] == "transform_values":
            return made
        return None if value is None else [made, value]


class OldProgram(Transformer):
    """The transformer of `transform` and `flat_transform`."""

    def __init__(self, step: Json) -> None:
        self.step = step
        self.store: Any = None

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.store = context.get_state_store(self.step["stores"][0])
        if "every_ms" in self.step:
            kind = PunctuationType.STREAM_TIME if self.step["time"] == "stream" else PunctuationType.WALL_CLOCK_TIME
            context.schedule(self.step["every_ms"], kind, lambda time: context.forward(Record("tick", str(time), time)))

    def transform(self, key: Any, value: Any) -> Any:
        if value is not None and len(value) % 3 == 2:
            return None
        made = (value[0] if value else key, counted(self.store, key, value))
        return made if self.step["do"] == "transform" else [made, (key, value)]
