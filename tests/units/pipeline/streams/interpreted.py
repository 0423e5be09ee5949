"""Descriptions of topologies, built with our DSL and run by our TopologyTestDriver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from jesenska.pipeline.streams import (
    BufferConfig,
    EmitStrategy,
    GlobalKTable,
    JoinWindows,
    KGroupedTable,
    KStream,
    KTable,
    Record,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from jesenska.pipeline.streams.dsl.expressions import Expression
from jesenska.pipeline.streams.plan import Store
from tests.units.pipeline.streams import named_expressions
from tests.units.pipeline.streams.named_functions import FUNCTIONS, PREDICATES
from tests.units.pipeline.streams.programs import OldProgram, Program, TableProgram
from tests.units.pipeline.streams.topology_spec import NOT_COMPARED, NOT_TABLES, Json, made


def outcome(description: Json) -> Json:
    """Returns the outcome of a topology; `topology_spec.py` documents both."""
    interpreter = Interpreter(description)
    return interpreter.run()


def _serde(kind: str) -> Serde:
    return Serdes.long() if kind == "long" else Serdes.string()


class Interpreter:
    """Builds and runs one description."""

    def __init__(self, description: Json) -> None:
        self.description = description
        self.builder = StreamsBuilder()
        self.nodes: dict[str, Any] = {}
        self.steps: dict[str, Json] = {}
        self.written: dict[str, Json] = {}
        self.seen: dict[str, list[list[Any]]] = {}

    # ---- running ----

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the application."""
        return {
            "application.id": "judge",
            "default.key.serde": "string",
            "default.value.serde": "string",
            **self.description.get("settings", {}),
        }

    def topology(self) -> Topology:
        """Calls the steps, once only; raises jesenska's error if they cannot be called."""
        for step in self.description["steps"]:
            self._build(step)
        return self.builder.build()

    def run(self) -> Json:
        found: Json = {}
        try:
            topology = self.topology()
            found["describe"] = shown_description(topology)
            driver = TopologyTestDriver(topology, self.settings, initial_wall_clock_time_ms=0)
        except Exception as error:
            return found | {"error": failure("build", -1, error)}
        at = 0
        try:
            for record in self.description["input"]:
                if "advance_ms" in record:
                    driver.advance_wall_clock_time(record["advance_ms"])
                else:
                    topic, given = piped(record)
                    driver.pipe_raw(topic, given.key, given.value, given.timestamp, given.headers)
                at += 1
        except Exception as error:
            found["error"] = failure("input", at, error)
        found["output"] = {topic: self.read(topic, _raw(driver, topic)) for topic in self.written}
        found["seen"] = self.seen
        found["internal"] = {
            topic: [
                [_hexadecimal(record.key), _hexadecimal(record.value), record.timestamp]
                for record in _raw(driver, topic)
            ]
            for topic in sorted(driver.produced_topic_names())
            if topic.startswith("judge-") and not any(part in topic for part in NOT_COMPARED)
        }
        found["stores"] = _stores(driver)
        found["dropped"] = driver.dropped_records
        driver.close()
        return found

    def read(self, topic: str, records: Iterable[Record]) -> list[list[Any]]:
        """The records of an output topic in the form of an outcome."""
        types = self.written[topic]
        keys, values = self._keys(types), _serde(types["value"])
        rows = []
        for record in records:
            row = [
                _shown_in_topic(keys.deserialize(topic, record.key), types["key"]),
                values.deserialize(topic, record.value),
                record.timestamp,
            ]
            if self.description.get("headers"):
                row.append([[name, None if value is None else value.decode()] for name, value in record.headers])
            rows.append(row)
        return rows

    # ---- building ----

    def _build(self, step: Json) -> None:
        result = getattr(self, f"_{step['do']}")(step)
        names = list(made(step))
        self.steps.update(dict.fromkeys(names, step))
        self.nodes.update(
            zip(
                names, result if isinstance(result, list) else [result], strict=bool(names) and isinstance(result, list)
            )
        )

    def _of(self, step: Json) -> Any:
        return self.nodes[step["of"]]

    def _keys(self, step: Json) -> Serde:
        if step["key"] == "window":
            return Serdes.time_windowed(Serdes.string(), step["size_ms"])
        return Serdes.session_windowed(Serdes.string()) if step["key"] == "session" else _serde(step["key"])

    def _serdes_of(self, name: str) -> dict[str, Serde]:
        """The serdes of a node."""
        return {"key": self._keys(self.steps[name]), "value": _serde(self.steps[name]["value"])}

    def _stream(self, step: Json) -> KStream:
        return self.builder.stream(
            step["topics"], key=_serde(step["key"]), value=_serde(step["value"]), name=step.get("named")
        )

    def _table(self, step: Json) -> KTable:
        return self.builder.table(
            step["topic"],
            key=_serde(step["key"]),
            value=_serde(step["value"]),
            store=step.get("store"),
            name=step.get("named"),
        )

    def _global_table(self, step: Json) -> GlobalKTable:
        return self.builder.global_table(
            step["topic"],
            key=_serde(step["key"]),
            value=_serde(step["value"]),
            store=step.get("store"),
            name=step.get("named"),
        )

    def _add_state_store(self, step: Json) -> None:
        self.builder.add_state_store(_store(step))

    def _filter(self, step: Json) -> Any:
        return self._filtered(step, self._of(step).filter)

    def _filter_not(self, step: Json) -> Any:
        return self._filtered(step, self._of(step).filter_not)

    def _filtered(self, step: Json, call: Callable[..., Any]) -> Any:
        predicate = self._predicate(step["predicate"], step)
        if "store" in step:
            return call(predicate, store=step["store"], name=step.get("named"), **self._serdes_of(step["of"]))
        return call(predicate, name=step.get("named"))

    def _map_values(self, step: Json) -> Any:
        mapper, value = self._function(step), _serde(step["value"])
        if "store" in step:
            return self._of(step).map_values(
                mapper, store=step["store"], key=self._keys(self.steps[step["of"]]), value=value, name=step.get("named")
            )
        return self._of(step).map_values(mapper, name=step.get("named"))

    def _map(self, step: Json) -> Any:
        return self._of(step).map(self._function(step), name=step.get("named"))

    def _flat_map(self, step: Json) -> Any:
        return self._of(step).flat_map(FUNCTIONS[step["function"]], name=step.get("named"))

    def _flat_map_values(self, step: Json) -> Any:
        return self._of(step).flat_map_values(FUNCTIONS[step["function"]], name=step.get("named"))

    def _select_key(self, step: Json) -> Any:
        return self._of(step).select_key(self._function(step), name=step.get("named"))

    def _peek(self, step: Json) -> Any:
        return self._of(step).peek(self._witness(step), name=step.get("named"))

    def _foreach(self, step: Json) -> None:
        self._of(step).foreach(self._witness(step))

    def _witness(self, step: Json) -> Callable[[Any, Any], None]:
        seen = self.seen.setdefault(step["as"], [])
        return lambda key, value: seen.append([shown_key(key), value])

    def _merge(self, step: Json) -> Any:
        one, other = step["of"]
        return self.nodes[one].merge(self.nodes[other], name=step.get("named"))

    def _split(self, step: Json) -> list[KStream]:
        branches: list[KStream] = []
        split = self._of(step).split(name=step.get("named"))
        for predicate, _ in step["branches"]:
            split = split.branch(self._predicate(predicate, step), chain=branches.append)
        if "default" in step:
            split.default_branch(chain=branches.append)
        else:
            split.no_default_branch()
        return branches

    def _branch(self, step: Json) -> Any:
        return self._of(step).branch(*(self._predicate(name, step) for name in step["predicates"]))

    def _through(self, step: Json) -> Any:
        return self._of(step).through(step["topic"], **self._serdes_of(step["of"]))

    def _repartition(self, step: Json) -> Any:
        return self._of(step).repartition(name=step.get("name"), **self._serdes_of(step["of"]))

    def _to(self, step: Json) -> None:
        topics = step.get("topics") or [step["topic"]]
        self.written.update(dict.fromkeys(topics, self.steps[step["of"]]))
        topic = self._topic_of_record(step) if "topics" in step else step["topic"]
        self._of(step).to(topic, name=step.get("named"), **self._serdes_of(step["of"]))

    def _topic_of_record(self, step: Json) -> Callable[[Any, Any], str]:
        function, prefix = FUNCTIONS[step["function"]], self.description.get("topic_prefix", "")
        return lambda key, value: prefix + function(key, value)

    def _to_table(self, step: Json) -> Any:
        return self._of(step).to_table(store=step.get("store"), name=step.get("named"), **self._serdes_of(step["of"]))

    def _to_stream(self, step: Json) -> Any:
        if "function" in step:
            return self._of(step).to_stream(self._function(step))
        return self._of(step).to_stream(name=step.get("named"))

    def _transform_values(self, step: Json) -> Any:
        kept: Json = {}
        if "store" in step:
            kept = {"store": step["store"], "key": self._keys(self.steps[step["of"]]), "value": _serde(step["value"])}
        return self._of(step).transform_values(
            lambda: TableProgram(step), *step.get("stores", ()), name=step.get("named"), **kept
        )

    def _flat_transform_values(self, step: Json) -> Any:
        return self._of(step).flat_transform_values(lambda: TableProgram(step), *step.get("stores", ()))

    def _transform(self, step: Json) -> Any:
        return self._of(step).transform(lambda: OldProgram(step), *step.get("stores", ()), name=step.get("named"))

    def _flat_transform(self, step: Json) -> Any:
        return self._of(step).flat_transform(lambda: OldProgram(step), *step.get("stores", ()))

    def _process(self, step: Json) -> Any:
        return self._of(step).process(lambda: Program(step), *step.get("stores", ()), name=step.get("named"))

    def _process_values(self, step: Json) -> Any:
        return self._of(step).process_values(lambda: Program(step), *step.get("stores", ()))

    # ---- functions ----

    def _says_expressions(self, step: Json) -> bool:
        """True if its functions are to be expressions, which do not support windowed keys."""
        of = step["of"] if isinstance(step["of"], str) else step["of"][0]
        return bool(self.description.get("expressions")) and self.steps[of]["key"] == "string"

    def _predicate(self, name: str, step: Json) -> Any:
        return named_expressions.PREDICATES[name] if self._says_expressions(step) else PREDICATES[name]

    def _function(self, step: Json) -> Any:
        """A function of key and value."""
        name = step["function"]
        return (
            named_expressions.FUNCTIONS[name]
            if self._says_expressions(step) and name in named_expressions.FUNCTIONS
            else FUNCTIONS[name]
        )

    def _of_two(self, step: Json, argument: str, roots: tuple[Expression, Expression]) -> Any:
        """A function of two values."""
        name = step[argument]
        if self._says_expressions(step) and name in named_expressions.OF_TWO:
            return named_expressions.OF_TWO[name](*roots)
        return FUNCTIONS[name]

    def _foreign_key(self, step: Json) -> Any:
        name = step["foreign_key"]
        function = FUNCTIONS[name]
        return (
            named_expressions.FUNCTIONS[name] if self._says_expressions(step) else lambda value: function(None, value)
        )

    def _aggregator(self, name: str) -> Any:
        if self.description.get("expressions") and name in named_expressions.OF_TWO:
            return named_expressions.OF_TWO[name](*named_expressions.OF_AGGREGATES)
        function = FUNCTIONS[name]
        return lambda key, value, aggregate: function(aggregate, value)

    def _merger(self, step: Json) -> Any:
        name = step["merger"]
        if self.description.get("expressions") and name in named_expressions.OF_TWO:
            return named_expressions.OF_TWO[name](*named_expressions.OF_SIDES)
        function = FUNCTIONS[name]
        return lambda key, one, other: function(one, other)

    # ---- groups, windows, aggregates ----

    def _group_by_key(self, step: Json) -> Any:
        return self._of(step).group_by_key(name=step.get("name"), **self._serdes_of(step["of"]))

    def _group_by(self, step: Json) -> Any:
        return self._of(step).group_by(
            self._function(step), key=_serde(step["key"]), value=_serde(step["value"]), name=step.get("name")
        )

    def _cogroup(self, step: Json) -> Any:
        first, *others = zip(step["of"], step["aggregators"], strict=True)
        cogrouped = self.nodes[first[0]].cogroup(self._aggregator(first[1]))
        for name, aggregator in others:
            cogrouped = cogrouped.cogroup(self.nodes[name], self._aggregator(aggregator))
        return cogrouped

    def _windowed_by(self, step: Json) -> Any:
        windows = step["windows"]
        chosen: TimeWindows | SlidingWindows | SessionWindows
        match windows["kind"]:
            case "session":
                chosen = SessionWindows(windows["gap_ms"], windows["grace_ms"])
            case "sliding":
                chosen = SlidingWindows(windows["difference_ms"], windows["grace_ms"])
            case _:
                chosen = TimeWindows(windows["size_ms"], windows.get("advance_ms"), windows["grace_ms"])
        windowed = self._of(step).windowed_by(chosen)
        return (
            windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if windows.get("emit") == "when closed" else windowed
        )

    def _kept(self, step: Json) -> Json:
        kept = {"store": step.get("store"), "key": Serdes.string(), "value": _serde(step["value"])}
        return (
            kept
            | ({"retention": step["retention_ms"]} if "retention_ms" in step else {})
            | ({"name": step["named"]} if "named" in step else {})
        )

    def _count(self, step: Json) -> Any:
        return self._of(step).count(**self._kept(step))

    def _reduce(self, step: Json) -> Any:
        functions = [self._of_two(step, "adder", named_expressions.OF_AGGREGATES)] + (
            [self._of_two(step, "subtractor", named_expressions.OF_AGGREGATES)] if "subtractor" in step else []
        )
        return self._of(step).reduce(*functions, **self._kept(step))

    def _aggregate(self, step: Json) -> Any:
        functions: list[Callable[..., Any]] = [self._aggregator(step["adder"])] if "adder" in step else []
        if isinstance(self._of(step), KGroupedTable):
            functions.append(self._aggregator(step["subtractor"]))
        if "merger" in step:
            functions.append(self._merger(step))
        return self._of(step).aggregate(step["initial"], *functions, **self._kept(step))

    def _suppress(self, step: Json) -> Any:
        buffer = None
        if "max_records" in step or "max_bytes" in step:
            buffer = BufferConfig(
                max_records=step.get("max_records"),
                max_bytes=step.get("max_bytes"),
                emit_early_when_full=step["when_full"] == "emit early",
            )
        if step["until"] == "window closes":
            return self._of(step).suppress(Suppressed.until_window_closes(buffer, name=step.get("named")))
        return self._of(step).suppress(
            Suppressed.until_time_limit(step["time_limit_ms"], buffer, name=step.get("named"))
        )

    # ---- joins ----

    def _join(self, step: Json) -> Any:
        left, right = step["of"]
        one, other = self.nodes[left], self.nodes[right]
        call = {"inner": one.join, "left": one.left_join, "outer": getattr(one, "outer_join", None)}[step["how"]]
        assert call is not None
        joiner = self._of_two(step, "joiner", named_expressions.OF_SIDES)
        named = {"name": step["named"]} if "named" in step else {}
        if isinstance(other, GlobalKTable):
            return call(other, joiner, key_selector=self._function(step), **named)
        if isinstance(other, KStream):
            serdes = self._serdes_of(left) | {"other_value": _serde(self.steps[right]["value"])}
            return call(other, joiner, _join_windows(step["windows"]), store=step.get("store"), **serdes, **named)
        if isinstance(one, KStream):
            return call(other, joiner, **self._serdes_of(left), **named)
        if "foreign_key" in step:
            serdes = {"key": self._keys(self.steps[left]), "value": _serde(step["value"])}
            return call(other, joiner, foreign_key=self._foreign_key(step), store=step.get("store"), **serdes, **named)
        if "store" in step:
            return call(
                other,
                joiner,
                store=step["store"],
                key=self._keys(self.steps[left]),
                value=_serde(step["value"]),
                **named,
            )
        return call(other, joiner, **named)


def _join_windows(windows: Json) -> JoinWindows:
    return JoinWindows(windows["before_ms"], windows["grace_ms"]).after(windows["after_ms"])


def _store(step: Json) -> Store:
    keys, values = Serdes.string(), _serde(step["value"])
    match step["kind"]:
        case "window":
            return Stores.window_store(
                step["store"], retention=step["retention_ms"], window_size=step["size_ms"], key=keys, value=values
            )
        case "session":
            return Stores.session_store(step["store"], retention=step["retention_ms"], key=keys, value=values)
        case _:
            return Stores.key_value_store(step["store"], key=keys, value=values)


def _bytes(value: str | int | None) -> bytes | None:
    if isinstance(value, int):
        return value.to_bytes(8, "big", signed=True)
    return None if value is None else value.encode()


def _raw(driver: TopologyTestDriver, topic: str) -> list[Record]:
    return driver.create_output_topic(topic, key=Serdes.bytes(), value=Serdes.bytes()).read_records_to_list()


def _hexadecimal(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def failure(when: str, at: int, error: Exception) -> Json:
    return {"when": when, "at": at, "kind": type(error).__name__, "text": str(error)}


def shown_key(key: Any) -> Any:
    """A key outside of topics."""
    if hasattr(key, "window"):
        return {"key": key.key, "start": key.window.start, "end": key.window.end}
    return key


def _shown_in_topic(key: Any, kind: str) -> Any:
    """Returns a key in the form of its bytes, which do not have the end of a time window."""
    shown = shown_key(key)
    if kind == "window" and shown is not None:
        del shown["end"]
    return shown


def _stores(driver: TopologyTestDriver) -> Json:
    return {name: rows(store.all()) for name, store in driver.get_all_state_stores().items() if is_table(name)}


def is_table(store: str) -> bool:
    """True if the content of a store is compared."""
    return not any(part in store for part in NOT_TABLES)


def rows(pairs: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    """Returns the content of a store in the form of an outcome."""
    return [[shown_key(key), *(value if isinstance(value, tuple) else (value,))] for key, value in pairs]


def piped(record: Json) -> tuple[str, Record]:
    """The topic and the bytes of a record of the input."""
    headers = tuple((name, value.encode()) for name, value in record.get("headers", ()))
    return record["topic"], Record(_bytes(record["key"]), _bytes(record["value"]), record["timestamp"], headers)


def shown_description(topology: Topology) -> str:
    """The text of `describe()` as an outcome has it."""
    return re.sub(r"extractor class: [^)]*", "extractor class: -", topology.describe())
