"""Joins: each kind, nulls, order of arrival, late records. The expected records are Apache Kafka Streams 3.9.1's."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.pipeline.streams import JoinWindows, StreamsBuilder, TopologyError, concat, key, left, right, value
from tests.units.pipeline.streams.running import STRING, Row, S, driver_of, outcome, pair, pipe, read


def _call(this: Any, kind: str) -> Any:
    return {"inner": this.join, "left": this.left_join, "outer": getattr(this, "outer_join", None)}[kind]


# Streams with streams


def _streams(kind: str, windows: JoinWindows) -> StreamsBuilder:
    builder = StreamsBuilder()
    _call(builder.stream("l", **S), kind)(builder.stream("r", **S), pair, windows, other_value=STRING, **S).to(
        "out", **S
    )
    return builder


LATE: list[Row] = [
    ("l", "a", "l1", 10),
    ("l", "b", "l2", 11),
    ("r", "c", "r1", 12),
    ("l", "d", "x", 18),
    ("l", "d", "x", 19),
    ("r", "d", "x", 20),
    ("l", "a", "late", 10),
    ("r", "e", "late", 12),
    ("l", "d", "x", 30),
    ("r", "b", "r", 11),
]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [("d", "(x,x)", 20), ("d", "(x,x)", 20)]),
        (
            "left",
            [
                ("a", "(l1,None)", 10),
                ("d", "(x,x)", 20),
                ("d", "(x,x)", 20),
                ("a", "(late,None)", 10),
                ("b", "(l2,None)", 11),
            ],
        ),
        (
            "outer",
            [
                ("a", "(l1,None)", 10),
                ("d", "(x,x)", 20),
                ("d", "(x,x)", 20),
                ("a", "(late,None)", 10),
                ("e", "(None,late)", 12),
                ("b", "(l2,None)", 11),
                ("c", "(None,r1)", 12),
                ("b", "(None,r)", 11),
            ],
        ),
    ],
)
def test_records_without_a_partner_come_out_when_their_window_is_closed(kind: str, expected: list[Any]) -> None:
    assert outcome(_streams(kind, JoinWindows(5, grace=3)), LATE) == expected


def test_a_join_may_look_back_and_ahead_differently_far() -> None:
    windows = JoinWindows(0, grace=100).before(2).after(10)
    rows: list[Row] = [
        ("l", "a", "l", 10),
        ("r", "a", "7", 7),
        ("r", "a", "8", 8),
        ("r", "a", "20", 20),
        ("r", "a", "21", 21),
    ]
    assert outcome(_streams("inner", windows), rows) == [("a", "(l,8)", 10), ("a", "(l,20)", 20)]


def test_a_record_waits_for_a_partner_as_long_as_its_window_is_open() -> None:
    rows: list[Row] = [
        ("l", "a", "1", 10),
        ("r", "a", "2", 10),
        ("l", "a", "3", 12),
        ("r", "z", "end", 100),
        ("l", "z", "end", 200),
    ]
    assert outcome(_streams("left", JoinWindows(0, grace=5)), rows) == [("a", "(1,2)", 10), ("a", "(3,None)", 12)]


def test_a_joiner_may_see_the_key_and_may_be_an_expression() -> None:
    builder = StreamsBuilder()
    builder.stream("l", **S).join(builder.stream("r", **S), concat(key, left, right), JoinWindows(5)).to("out", **S)
    assert outcome(builder, [("l", "a", "1", 1), ("r", "a", "2", 2)]) == [("a", "a12", 2)]


@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
def test_null_values_are_dropped_and_null_keys_have_no_partner(kind: str) -> None:
    rows: list[Row] = [("l", "k", None, 10), ("r", "k", None, 11), ("l", None, "kN", 12), ("r", None, "kM", 13)]
    expected = {
        "inner": [],
        "left": [(None, "(kN,None)", 12)],
        "outer": [(None, "(kN,None)", 12), (None, "(None,kM)", 13)],
    }[kind]
    with driver_of(_streams(kind, JoinWindows(5, grace=10))) as driver:
        pipe(driver, rows)
        assert read(driver) == expected
        assert driver.dropped_records == 4 - len(expected)


def test_a_stream_joins_itself() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("l", **S)
    stream.join(stream, pair, JoinWindows(5)).to("out", **S)
    assert outcome(builder, [("l", "a", "1", 1), ("l", "a", "2", 2)]) == [
        ("a", "(1,1)", 1),
        ("a", "(2,1)", 2),
        ("a", "(1,2)", 2),
        ("a", "(2,2)", 2),
    ]


def test_streams_with_new_keys_are_joined_through_internal_topics() -> None:
    builder = StreamsBuilder()
    moved = builder.stream("l", **S).select_key(value, key=STRING)
    moved.join(builder.stream("r", **S), pair, JoinWindows(5), name="both").to("out", **S)
    with driver_of(builder) as driver:
        pipe(driver, [("l", "x", "a", 1), ("r", "a", "2", 2)])
        assert read(driver) == [("a", "(a,2)", 2)]
        assert "test-both-left-repartition" in driver.produced_topic_names()


def test_records_without_a_key_pass_the_internal_topic_in_front_of_a_left_join_and_of_no_inner_one() -> None:
    for kind, expected in (("left", [(None, "(x,None)", 1)]), ("inner", [])):
        builder = StreamsBuilder()
        without_keys = builder.stream("l", **S).select_key(lambda key, value: None, key=STRING)
        _call(without_keys, kind)(builder.stream("r", **S), pair, JoinWindows(5)).to("out", **S)
        with driver_of(builder) as driver:
            pipe(driver, [("l", "k", "x", 1)])
            assert read(driver) == expected
            assert ("test-KSTREAM-KEY-SELECT-0000000001-repartition" in driver.produced_topic_names()) is (
                kind == "left"
            )


# Streams with tables


def test_a_record_is_joined_with_what_the_table_has_at_that_moment() -> None:
    builder = StreamsBuilder()
    builder.stream("l", **S).join(builder.table("r", **S), pair).to("out", **S)
    rows: list[Row] = [
        ("l", "a", "1", 10),
        ("r", "a", "t", 20),
        ("l", "a", "2", 5),
        ("r", "a", None, 30),
        ("l", "a", "3", 40),
    ]
    assert outcome(builder, rows) == [("a", "(2,t)", 5)]


def test_a_left_join_with_a_table_gives_every_record_with_a_value() -> None:
    builder = StreamsBuilder()
    builder.stream("l", **S).left_join(builder.table("r", **S), pair).to("out", **S)
    with driver_of(builder) as driver:
        pipe(
            driver,
            [("l", "a", "1", 10), ("l", None, "2", 11), ("l", "a", None, 12), ("r", "a", "t", 13), ("l", "a", "4", 14)],
        )
        assert read(driver) == [("a", "(1,None)", 10), (None, "(2,None)", 11), ("a", "(4,t)", 14)]
        assert driver.dropped_records == 1


def test_a_table_that_is_computed_is_looked_up_through_its_parent() -> None:
    builder = StreamsBuilder()
    computed = builder.table("r", **S).filter(value != "hidden").map_values(value.upper())
    builder.stream("l", **S).left_join(computed, pair).to("out", **S)
    rows: list[Row] = [("r", "a", "t", 1), ("r", "b", "hidden", 2), ("l", "a", "1", 3), ("l", "b", "2", 4)]
    assert outcome(builder, rows) == [("a", "(1,T)", 3), ("b", "(2,None)", 4)]


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_global_table_is_joined_by_a_key_that_the_record_gives(kind: str) -> None:
    builder = StreamsBuilder()
    users = builder.global_table("r", store="users", **S)
    _call(builder.stream("l", **S), kind)(users, pair, key_selector=value.substring(0, 1)).to("out", **S)
    with driver_of(builder) as driver:
        pipe(
            driver,
            [("r", "u", "Till", 1), ("l", "k", "u1", 2), ("l", "k", "v2", 3), ("l", "k", None, 4), ("r", None, "x", 5)],
        )
        assert read(driver) == (
            [("k", "(u1,Till)", 2)] if kind == "inner" else [("k", "(u1,Till)", 2), ("k", "(v2,None)", 3)]
        )
        assert driver.get_key_value_store("users").all() == [("u", "Till")]
        assert driver.dropped_records == 2


# Tables with tables


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [("k", "(1,2)", 11), ("k", None, 13), ("k", "(1,3)", 14), ("k", None, 14)]),
        (
            "left",
            [("k", "(1,None)", 10), ("k", "(1,2)", 11), ("k", "(1,None)", 13), ("k", "(1,3)", 14), ("k", None, 14)],
        ),
        (
            "outer",
            [
                ("k", "(1,None)", 10),
                ("k", "(1,2)", 11),
                ("k", "(1,None)", 13),
                ("k", "(1,3)", 14),
                ("k", "(None,3)", 14),
            ],
        ),
    ],
)
def test_a_change_of_either_table_changes_the_result(kind: str, expected: list[Any]) -> None:
    builder = StreamsBuilder()
    _call(builder.table("l", **S), kind)(builder.table("r", **S), pair, store="kept", **S).to_stream().to("out")
    rows: list[Row] = [
        ("l", "k", "1", 10),
        ("r", "k", "2", 11),
        ("r", "k", None, 13),
        ("r", "k", "3", 14),
        ("l", "k", None, 12),
        ("l", None, "x", 20),
    ]
    with driver_of(builder) as driver:
        pipe(driver, rows)
        assert read(driver) == expected
        assert driver.get_key_value_store("kept").get("k") == expected[-1][1]
        assert driver.dropped_records == 1


def test_a_join_of_tables_that_is_not_kept_is_looked_up_through_both() -> None:
    builder = StreamsBuilder()
    joined = builder.table("l", **S).left_join(builder.table("r", **S), pair)
    builder.stream("s", **S).join(joined, pair).to("out", **S)
    assert outcome(builder, [("l", "k", "1", 1), ("s", "k", "x", 2), ("r", "k", "2", 3), ("s", "k", "y", 4)]) == [
        ("k", "(x,(1,None))", 2),
        ("k", "(y,(1,2))", 4),
    ]


@pytest.mark.parametrize("kind", ["left", "outer"])
def test_a_deletion_of_what_neither_table_has_gives_nothing(kind: str) -> None:
    builder = StreamsBuilder()
    _call(builder.table("l", **S), kind)(builder.table("r", **S), pair).to_stream().to("out", **S)
    assert outcome(builder, [("l", "k", None, 1), ("r", "k", None, 2)]) == []


# Tables by a foreign key


def _by_foreign_key(kind: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    first = lambda value: value[0] if value else None  # noqa: E731
    _call(builder.table("l", **S), kind)(
        builder.table("r", **S), pair, foreign_key=first, store="kept", **S
    ).to_stream().to("out")
    return builder


FOREIGN: list[Row] = [
    ("l", "p2", "x1", 1),
    ("l", "p1", "x2", 3),
    ("r", "x", "R", 2),
    ("l", "p1", "y", 4),
    ("r", "y", "S", 1),
    ("l", "p1", "", 6),
    ("l", "p2", "x1", 9),
    ("l", "p3", "q", 9),
    ("l", "p3", None, 10),
]


def test_a_foreign_key_join_follows_both_tables() -> None:
    with driver_of(_by_foreign_key("inner")) as driver:
        pipe(driver, FOREIGN)
        assert read(driver) == [
            ("p1", "(x2,R)", 2),
            ("p2", "(x1,R)", 2),
            ("p1", None, 4),
            ("p1", "(y,S)", 1),
            ("p1", None, 6),
            ("p2", "(x1,R)", 9),
            ("p3", None, 10),
        ]
        assert driver.get_key_value_store("kept").all() == [("p2", "(x1,R)")]


def test_a_left_join_by_a_foreign_key_keeps_rows_without_a_partner() -> None:
    assert outcome(_by_foreign_key("left"), FOREIGN) == [
        ("p2", "(x1,None)", 1),
        ("p1", "(x2,None)", 3),
        ("p1", "(x2,R)", 2),
        ("p2", "(x1,R)", 2),
        ("p1", "(y,None)", 4),
        ("p1", "(y,S)", 1),
        ("p1", "(,None)", 6),
        ("p2", "(x1,R)", 9),
        ("p3", "(q,None)", 9),
        ("p3", None, 10),
    ]


def test_an_answer_for_a_value_that_has_changed_meanwhile_is_dropped() -> None:
    builder = StreamsBuilder()
    several = builder.stream("l", **S).flat_map_values(value.split(" "), value=STRING).to_table()
    several.join(builder.table("r", **S), pair, foreign_key=value.substring(0, 1)).to_stream().to("out", **S)
    with driver_of(builder) as driver:
        pipe(driver, [("r", "x", "X", 1), ("r", "y", "Y", 2), ("l", "p", "x1 y2", 3)])
        assert read(driver) == [("p", "(y2,Y)", 3)]
        assert driver.dropped_records == 1


def test_records_of_either_table_without_a_key_are_left_out_of_a_foreign_key_join() -> None:
    with driver_of(_by_foreign_key("inner")) as driver:
        pipe(driver, [("l", None, "x1", 1), ("r", None, "R", 2), ("l", "p", "", 3), ("l", "p", None, 4)])
        assert read(driver) == []
        assert driver.dropped_records == 4


def test_an_empty_value_of_the_other_table_is_not_taken_for_none() -> None:
    assert outcome(_by_foreign_key("left"), [("r", "x", "", 1), ("l", "p", "x1", 2)]) == [("p", "(x1,)", 2)]


@pytest.mark.parametrize(
    ("join", "sentence"),
    [
        (lambda s, t, g: s.join(t, pair, JoinWindows(5)), "join with a table takes no windows"),
        (lambda s, t, g: s.join(g, pair), "needs key_selector="),
        (
            lambda s, t, g: s.left_join(g, lambda k, v: k, pair),
            "give the function for the table's key as key_selector=",
        ),
        (
            lambda s, t, g: s.join(t, pair, key_selector=value),
            "join with a table has no use for key_selector=: it takes key=, value=, name=",
        ),
        (lambda s, t, g: s.outer_join(t, pair), "outer_join of a stream takes a KStream, and not"),
        (lambda s, t, g: t.join(s, pair), "join of a table takes a KTable"),
        (
            lambda s, t, g: s.join(s, lambda one: one, JoinWindows(5)),
            r"it is called with \(key, left, right\) or \(left, right\)",
        ),
        (lambda s, t, g: t.join(t, value), "the expression of join cannot use value: it may use left, right"),
        (lambda s, t, g: s.join(s, pair, JoinWindows(5).before(-6)), "is never met"),
    ],
)
def test_joins_that_cannot_be_are_refused(join: Any, sentence: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=sentence):
        join(builder.stream("l", **S), builder.table("r", **S), builder.global_table("g", **S))
