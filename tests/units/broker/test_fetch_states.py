"""The table of a fetch's states: each of its rows. `test_fetches` tries them on a broker."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from jesenska.broker.fetching.fetch_states import (
    HAPPENS,
    WARM_UPS_MAX,
    FetchEvent,
    FetchState,
    after_answer,
    after_read,
    waits_for_disk,
)

READING, WARMING, WAITING, ANSWERING, READING_AHEAD, CONVERTING, DONE, GONE = FetchState
POOL_DONE, POOL_FULL, NEWS, TIME_UP, STOP, CLIENT_GONE = FetchEvent

_SOURCE = Path(__file__).parents[3] / "src" / "jesenska" / "broker" / "fetching" / "fetch_states.py"

_EVENTS = [
    (WARMING, POOL_DONE, READING),
    (WARMING, POOL_FULL, READING),
    (WARMING, CLIENT_GONE, GONE),
    (WAITING, NEWS, READING),
    (WAITING, TIME_UP, READING),
    (WAITING, STOP, READING),
    (WAITING, CLIENT_GONE, GONE),
    (READING_AHEAD, POOL_DONE, DONE),
    (READING_AHEAD, POOL_FULL, DONE),
    (READING_AHEAD, CLIENT_GONE, GONE),
    (CONVERTING, POOL_DONE, DONE),
    (CONVERTING, POOL_FULL, GONE),
    (CONVERTING, CLIENT_GONE, GONE),
]


@pytest.mark.parametrize(("state", "event", "then"), _EVENTS)
def test_an_event_leads_where_the_table_says(state: FetchState, event: FetchEvent, then: FetchState) -> None:
    assert HAPPENS[state][event] is then


def test_the_table_has_no_other_events() -> None:
    assert {(state, event) for state, events in HAPPENS.items() for event in events} == {
        (state, event) for state, event, _ in _EVENTS
    }


def test_the_table_that_is_written_down_is_the_one_that_holds() -> None:
    rows: set[tuple[str, str, str]] = set()
    state = ""
    for line in _SOURCE.read_text().partition("goes to\n")[2].partition("\n\n")[0].splitlines():
        state = line[4:20].strip() or state
        if re.fullmatch("[A-Z_]+", what := line[20:61].strip()):
            rows.add((state, what, re.split("[ ,:]", line[61:])[0]))
    assert rows == {(state.name, event.name, then.name) for state, event, then in _EVENTS}


@pytest.mark.parametrize(
    ("found_bytes", "must_end", "is_time_up"), list(product([0, 9, 10, 11], [False, True], [False, True]))
)
def test_a_read_that_would_wait_for_the_disk_is_warmed_up_whatever_it_has_found(
    found_bytes: int, must_end: bool, is_time_up: bool
) -> None:
    assert after_read(True, found_bytes, 10, must_end, is_time_up) is WARMING


@pytest.mark.parametrize(
    ("found_bytes", "min_bytes", "must_end", "is_time_up", "then"),
    [
        (9, 10, False, False, WAITING),
        (0, 1, False, False, WAITING),
        (10, 10, False, False, ANSWERING),
        (11, 10, False, False, ANSWERING),
        (0, 0, False, False, ANSWERING),
        (0, -1, False, False, ANSWERING),
        (0, 10, True, False, ANSWERING),
        (0, 10, False, True, ANSWERING),
        (0, 10, True, True, ANSWERING),
        (10, 10, True, True, ANSWERING),
    ],
)
def test_a_read_is_answered_with_enough_or_where_nothing_more_is_to_be_waited_for(
    found_bytes: int, min_bytes: int, must_end: bool, is_time_up: bool, then: FetchState
) -> None:
    assert after_read(False, found_bytes, min_bytes, must_end, is_time_up) is then


@pytest.mark.parametrize(
    ("converts", "is_cold", "then"),
    [(False, False, DONE), (False, True, READING_AHEAD), (True, False, CONVERTING), (True, True, CONVERTING)],
)
def test_the_pool_has_its_turn_before_an_answer_that_is_not_ready(
    converts: bool, is_cold: bool, then: FetchState
) -> None:
    assert after_answer(converts, is_cold) is then


def test_the_disk_is_waited_for_after_the_last_warm_up_and_where_there_can_be_none() -> None:
    assert [waits_for_disk(warm_ups, POOL_DONE) for warm_ups in range(1, WARM_UPS_MAX + 2)] == [
        False,
        False,
        True,
        True,
    ]
    assert waits_for_disk(1, POOL_FULL)
