from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.metadata.tree_operations import SessionExpiredError
from jesenska.metadata.zookeeper.server.sessions import Sessions

SECRET = b"s" * 32


def sessions() -> Sessions[str]:
    return Sessions(SECRET, tick_ms=1000)


def test_timeouts_lie_between_two_and_twenty_ticks_unless_said_otherwise() -> None:
    assert [sessions().negotiated(wanted) for wanted in (-1, 0, 2000, 7000, 20_000, 10**9)] == [
        2000,
        2000,
        2000,
        7000,
        20_000,
        20_000,
    ]
    assert [Sessions[str](SECRET, 1000, 50, 100).negotiated(wanted) for wanted in (10, 70, 1000)] == [50, 70, 100]


def test_passwords_follow_from_id_and_secret() -> None:
    mine = sessions()
    assert len(mine.password(5)) == 16
    assert mine.password(5) == sessions().password(5)
    assert mine.password(5) != mine.password(6)
    assert mine.password(5) != Sessions[str](b"t" * 32, 1000).password(5)


def test_a_session_expires_when_nothing_was_heard_for_its_timeout() -> None:
    mine = sessions()
    mine.begin(1, 3000, "a", 0)
    mine.begin(2, 5000, "b", 0)
    mine.heard(1, 2500)
    assert mine.expired(4999) == []
    assert mine.expired(5000) == [2]
    assert mine.next_look_ms() == 5500
    assert mine.expired(5500) == [1]
    assert mine.expired(9999) == []
    assert mine.closed(1) == "a"
    assert len(mine) == 1


def test_a_session_comes_back_with_its_password_and_leaves_its_old_connection() -> None:
    mine = sessions()
    mine.begin(1, 5000, "a", 0)
    for password in (b"", bytes(16), mine.password(2)):
        with pytest.raises(SessionExpiredError):
            mine.reattach(1, password, 5000, "b", 10)
    assert mine.connection(1) == "a"
    assert mine.reattach(1, mine.password(1), 1, "b", 10) == (2000, "a")
    mine.left(1, "a")
    assert mine.connection(1) == "b"
    mine.left(1, "b")
    assert mine.connection(1) is None
    assert mine.expired(2009) == []
    assert mine.expired(2010) == [1]  # the new timeout, though the old one was longer
    with pytest.raises(SessionExpiredError):
        mine.reattach(1, mine.password(1), 5000, "c", 2011)
    mine.heard(1, 2012)
    assert mine.expired(10**6) == []


def test_a_session_whose_end_found_no_room_is_named_again() -> None:
    mine = sessions()
    mine.begin(1, 2000, None, 0)
    assert mine.expired(2000) == [1]
    mine.not_closed(1, 2000)
    assert mine.expired(2999) == []
    assert mine.expired(3000) == [1]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "heard", "left", "back", "look"]), st.integers(1, 3), st.integers(0, 3000)),
        max_size=40,
    )
)
def test_nobody_expires_early_and_everybody_in_time(steps: list[tuple[str, int, int]]) -> None:
    mine, now = sessions(), 0
    until: dict[int, int] = {}
    for what, number, pause in steps:
        now += pause
        if what == "begin" and number not in until:
            mine.begin(number, 2000 + number, "a", now)
            until[number] = now + 2000 + number
        elif what == "heard" and number in until:
            mine.heard(number, now)
            until[number] = now + 2000 + number
        elif what == "back" and number in until:
            mine.reattach(number, mine.password(number), 2000 + number, "b", now)
            until[number] = now + 2000 + number
        elif what == "left":
            mine.left(number, "a")
        elif what == "look":
            due = {number for number, when in until.items() if when <= now}
            assert set(mine.expired(now)) == due
            for gone in due:
                mine.closed(gone)
                del until[gone]
    look = mine.next_look_ms()
    assert not until or (look is not None and look <= min(until.values()))


def test_a_session_that_its_client_closes_does_not_expire_beside_that() -> None:
    mine = sessions()
    mine.begin(1, 3000, "a", 0)
    mine.ending(1)
    assert mine.expired(3000) == []
    mine.not_closed(1, 3000)
    assert mine.expired(4000) == [1]


def test_the_end_of_a_session_that_is_not_there_changes_nothing() -> None:
    mine = sessions()
    mine.begin(1, 5000, "a", 0)
    mine.ending(2)
    mine.not_closed(2, 10)
    assert mine.closed(2) is None
    assert (len(mine), mine.connection(1), mine.next_look_ms()) == (1, "a", 5000)
