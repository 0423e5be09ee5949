"""The decisions and input of a supervisor, without processes: orders, their lines, and the times of restarts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.cli.supervision.restarts import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Restarts
from jesenska.cli.supervision.tree_orders import (
    EndHolder,
    EndSession,
    Guard,
    OrderError,
    OrderLines,
    line_of,
    parse_order,
)

LIMIT = 20
_SHORT, _LONG = st.floats(0, LONGEST_PAUSE_SECONDS, exclude_max=True), st.floats(LONGEST_PAUSE_SECONDS, 1e6)


@given(
    numbers=st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), st.integers(1, 2**31 - 1)),
    grace_seconds=st.floats(0, 3600),
)
def test_orders_are_read_as_they_were_given(numbers: tuple[int, int, int], grace_seconds: float) -> None:
    number, session_id, process = numbers
    assert parse_order(line_of(number=number, order="end-session", path="/brokers/ids/1")) == EndHolder(
        number, "/brokers/ids/1"
    )
    assert parse_order(line_of(number=number, order="end-session", session=session_id)) == EndSession(
        number, session_id
    )
    assert parse_order(line_of(number=number, order="guard", process=process, grace_seconds=grace_seconds)) == Guard(
        number, process, grace_seconds
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_KEYS = ("number", "order", "path", "session", "process", "grace_seconds")


@given(
    line=st.binary()
    | _JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(_KEYS), _JSON | st.sampled_from(["end-session", "guard", "/a", 1])).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_any_line_is_an_order_or_refused(line: bytes) -> None:
    try:
        order = parse_order(line)
    except OrderError as error:
        assert str(error).endswith(".")
    else:
        assert order.number == json.loads(line)["number"]


@given(
    lines=st.lists(st.binary(max_size=2 * LIMIT).map(lambda line: line.replace(b"\n", b"")), max_size=10),
    cuts=st.lists(st.integers(1, 50), max_size=100),
)
def test_lines_are_found_however_their_bytes_arrive(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    found: list[bytes | None] = []
    cutter = OrderLines(LIMIT)
    while stream:
        size = cuts.pop() if cuts else len(stream)
        found += cutter.feed(stream[:size])
        stream = stream[size:]
    assert found == [line if len(line) <= LIMIT else None for line in lines]


def test_pauses_double_up_to_the_longest() -> None:
    restarts = Restarts()
    assert [restarts.pause_seconds(0) for _ in range(10)] == [0, 0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]


@given(lives=st.lists(_SHORT | _LONG, max_size=100))
def test_only_who_dies_again_and_again_waits_and_never_for_long(lives: list[float]) -> None:
    restarts = Restarts()
    before = -1.0
    for lived_seconds in lives:
        pause_seconds = restarts.pause_seconds(lived_seconds)
        if lived_seconds >= LONGEST_PAUSE_SECONDS or before < 0:
            assert pause_seconds == 0
        else:
            assert max(before, FIRST_PAUSE_SECONDS) <= pause_seconds <= LONGEST_PAUSE_SECONDS
        before = pause_seconds


@given(deaths=st.integers(0, 5000))
def test_a_long_life_makes_the_next_death_a_first_one(deaths: int) -> None:
    restarts = Restarts()
    for _ in range(deaths):
        restarts.pause_seconds(1.0)
    assert restarts.pause_seconds(LONGEST_PAUSE_SECONDS) == 0
    assert restarts.pause_seconds(1.0) == pytest.approx(FIRST_PAUSE_SECONDS)
