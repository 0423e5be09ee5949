"""`Topology.describe()` returns the text of Apache Kafka Streams 3.9.1 for the same program.

`descriptions.txt` has Java's output. Each function here is the same program with jesenska's API."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    BufferConfig,
    JoinWindows,
    Processor,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from jesenska.pipeline.streams.description import hash_order
from tests.units.pipeline.streams.running import S

TEXTS = Path(__file__).with_name("descriptions.txt")


def _yes(key: Any, value: Any) -> bool:
    return True


def _value(value: Any) -> Any:
    return value


def _pair(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def _swap(key: Any, value: Any) -> tuple[Any, Any]:
    return value, key


def _key(key: Any, value: Any) -> Any:
    return key


def _first(one: Any, other: Any) -> Any:
    return one


class _Idle(Processor):
    def process(self, record: Record) -> None:
        pass


def stateless(b: StreamsBuilder) -> None:
    s = b.stream(["orders", "payments", "refunds"], **S)
    p = b.stream(re.compile("log-.*"), **S)
    s.map_values(_value).to("a")
    s.filter(_yes).to("b")
    s.flat_map_values(lambda value: [value]).peek(_pair).to("c")
    s.foreach(_pair)
    s.merge(p).to("d")
    s.map(_pair).print()
    s.to("e")
    p.to(_key, name="dynamic-sink")


def branches(b: StreamsBuilder) -> None:
    s = b.stream("in", name="reader", **S)
    named = (
        s.split(name="by-").branch(_yes, name="one").branch(_yes).branch(_yes, name="three").default_branch(name="rest")
    )
    for name in sorted(named):
        named[name].to(f"out-{name}", name=f"sink-{name}")
    old = s.branch(_yes, _yes, name="old")
    old[0].to("o0")
    old[1].to("o1")
    s.branch(_yes, _yes)[1].merge(old[1], name="again").to("o2")


def aggregations(b: StreamsBuilder) -> None:
    s, t = b.stream("in", **S), b.stream("in", **S)
    g = s.group_by(lambda key, value: value, name="grouped", **S)
    g.count(store="counts").to_stream().to("a")
    g.reduce(_first).to_stream().to("b")
    t.group_by_key().aggregate("", lambda key, value, aggregate: aggregate, **S).to_stream(_key).to("c")
    t.select_key(_key).group_by_key().count().to_stream().to("d")
    counted = t.group_by_key().count(key=Serdes.string(), value=Serdes.long())
    counted.filter(_yes).map_values(_value, store="mapped").to_stream().to("e")


def windows(b: StreamsBuilder) -> None:
    s = b.stream("in", **S)
    g = s.group_by_key()
    g.windowed_by(TimeWindows(10, grace=5)).count().suppress(Suppressed.until_window_closes()).to_stream().to("a")
    held = Suppressed.until_time_limit(3, BufferConfig(max_records=2, emit_early_when_full=True), name="held")
    g.windowed_by(SlidingWindows(10)).reduce(_first, name="reducing", store="kept").suppress(held).to_stream().to("b")
    g.windowed_by(SessionWindows(10)).aggregate(
        "", lambda key, value, aggregate: aggregate, lambda key, left, right: left
    ).to_stream().to("c")
    tumbling = s.map(_pair).group_by_key(**S).windowed_by(TimeWindows(10))
    tumbling.count(key=Serdes.string(), value=Serdes.long()).to_stream().to("d")


def joins_of_streams(b: StreamsBuilder) -> None:
    left, right = b.stream("left", **S), b.stream("right", **S)
    w = JoinWindows(10)
    left.join(right, _first, w).to("a")
    left.left_join(right, _first, w, name="named", store="stored", other_value=Serdes.string(), **S).to("b")
    left.select_key(lambda key, value: value).outer_join(right.map(_pair), _first, w).to("c")
    rekeyed = left.select_key(lambda key, value: value)
    rekeyed.join(right, _first, w).to("d")
    rekeyed.left_join(right, _first, w).to("e")
    left.join(left, _first, w).to("f")
    rekeyed.join(right.select_key(lambda key, value: value), _first, w, name="both", store="stored-both").to("g")


def tables_looked_up(b: StreamsBuilder) -> None:
    s = b.stream("stream", **S)
    t, u = b.table("table", **S), b.table("other", store="other-store", **S)
    g = b.global_table("global", **S)
    s.join(t, _first).to("a")
    s.left_join(u, _first, name="looked-up").to("b")
    s.join(g, _first, key_selector=_key).to("c")
    s.left_join(g, _first, key_selector=_key, name="globally").to("d")
    s.select_key(lambda key, value: value).join(t.filter(_yes), _first).to("e")
    s.select_key(lambda key, value: value).left_join(t.map_values(_value).filter_not(_yes), _first).to("f")
    s.select_key(lambda key, value: value).to_table().to_stream().to("g")
    s.to_table(name="tabled", store="tabled-store")


def joins_of_tables(b: StreamsBuilder) -> None:
    t, u, v = b.table("table", **S), b.table("other", **S), b.table("third", **S)
    t.join(u, _first).to_stream().to("a")
    t.left_join(u, _first, name="leftly").to_stream().to("b")
    t.outer_join(u, _first, store="outerly").outer_join(v, _first, **S).to_stream().to("c")
    t.join(u, _first).join(v, _first).filter(_yes).to_stream().to("d")
    t.group_by(_swap).count().to_stream().to("e")
    g = t.group_by(_swap, name="regrouped")
    g.reduce(_first, _first).to_stream().to("f")
    g.aggregate(
        "", lambda key, value, aggregate: value, lambda key, value, aggregate: value, name="agg"
    ).to_stream().to("g")


def foreign_keys(b: StreamsBuilder) -> None:
    t, u = b.table("table", **S), b.table("other", **S)
    t.join(u, _first, foreign_key=_value).to_stream().to("a")
    t.left_join(u, _first, foreign_key=_value, name="fk", store="fk-store").to_stream().to("b")
    twice = t.filter(_yes).left_join(u.map_values(_value), _first, foreign_key=_value)
    twice.join(u, _first, foreign_key=_value).to_stream().to("c")


def processors(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("seen", **S))
    b.add_state_store(Stores.key_value_store("shared", **S))
    s, t = b.stream("one", **S), b.stream("two", **S)
    s.process(_Idle, "seen", "shared").to("a")
    t.process_values(_Idle, "shared", name="fixed").to("b")
    s.process(_Idle, name="own").repartition(name="spread").to("c")
    t.repartition().group_by_key().count().to_stream().to("d")
    t.through("through-topic").to("e")


def cogroups(b: StreamsBuilder) -> None:
    def keep(key: Any, value: Any, aggregate: Any) -> Any:
        return aggregate

    g = b.stream("one", **S).group_by_key()
    h = b.stream("two", **S).group_by(lambda key, value: value)
    n = b.stream("three", **S).group_by(lambda key, value: value, name="third")
    c = g.cogroup(keep).cogroup(h, keep).cogroup(n, keep)
    c.aggregate("", store="together").filter(_yes).to_stream().to("a")
    c.windowed_by(TimeWindows(10)).aggregate("", name="windowed").to_stream().to("b")
    g.cogroup(keep).windowed_by(SessionWindows(10)).aggregate("", lambda key, left, right: left).to_stream().to("c")


PROGRAMS: list[Callable[[StreamsBuilder], None]] = [
    stateless,
    branches,
    aggregations,
    windows,
    joins_of_streams,
    tables_looked_up,
    joins_of_tables,
    foreign_keys,
    processors,
    cogroups,
]


def _expected() -> dict[str, str]:
    parts = re.split(r"^== (.*)\n", TEXTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _without_extractor(text: str) -> str:
    return re.sub(r"extractor class: .*\)", "extractor class)", text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_text_is_kafkas(program: Callable[[StreamsBuilder], None]) -> None:
    builder = StreamsBuilder()
    program(builder)
    assert _without_extractor(builder.build().describe()) == _without_extractor(
        _expected()[program.__name__.replace("_", " ")]
    )


def test_all_texts_are_compared() -> None:
    assert set(_expected()) == {program.__name__.replace("_", " ") for program in PROGRAMS}


def test_a_topology_that_is_put_together_by_hand_is_described_as_well() -> None:
    topology = (
        Topology()
        .add_source("in", ["a", "b"], **S)
        .add_processor("work", _Idle, "in")
        .add_sink("out", "c", "work", **S)
    )
    topology.add_state_store(Stores.key_value_store("kept", **S), "work")
    assert topology.describe() == (
        "Topologies:\n   Sub-topology: 0\n    Source: in (topics: [a, b])\n      --> work\n    Processor: work "
        "(stores: [kept])\n"
        "      --> out\n      <-- in\n    Sink: out (topic: c)\n      <-- work\n\n"
    )


def test_names_are_in_the_order_of_javas_hash_set() -> None:
    # As Java prints new HashSet<>(List.of(…)) of these.
    assert hash_order(["orders", "payments", "refunds"]) == ["payments", "orders", "refunds"]
    assert hash_order([str(number) for number in range(13)]) == [
        "11",
        "12",
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "10",
    ]
