"""The effect of a leader's data on a follower's log: on a real log, whose queued writes run on the test's request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import CorruptMessageError, KafkaError, OffsetOutOfRangeError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.leader_appends import append_or_queue
from jesenska.records.batch import iter_headers
from jesenska.replication.follower.fetcher import Cut, GoOn, Position, Received, go_on_at
from jesenska.replication.follower.replica_log import cut, go_on, position_of, receive, settle
from tests.units.log.follower_harness import Follower, leader_batch
from tests.units.log.log_harness import NOW_MS

KEY = TopicPartition("t", 0)
EPOCH = 9


class Followed:
    """A follower's log, and the reported results."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.log = follower.harness.log
        self.outcomes: list[KafkaError | None] = []

    def receive(self, *batches: bytes, high_watermark: int = 0, log_start_offset: int = 0) -> None:
        receive(
            self.log,
            Received(KEY, EPOCH, b"".join(batches), high_watermark, log_start_offset),
            NOW_MS,
            self.outcomes.append,
        )

    def taken(self) -> list[KafkaError | None]:
        taken = list(self.outcomes)
        self.outcomes.clear()
        return taken


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    follower = Follower(tmp_path / "t-0", LogConfig(index_interval_bytes=100))
    with follower.harness:
        yield Followed(follower)


def test_what_the_leader_sends_is_appended_as_far_as_it_is_whole(followed: Followed) -> None:
    followed.receive(leader_batch(0, 2, epoch=3), leader_batch(2, 3, epoch=4), leader_batch(5)[:-1], high_watermark=4)
    assert followed.taken() == [None]
    assert position_of(followed.log) == Position(5, 0, 4)
    assert followed.log.high_watermark == 4
    followed.receive(leader_batch(5, epoch=4))
    assert followed.taken() == [None]
    assert followed.follower.harness.offsets() == [0, 1, 2, 3, 4, 5]


def test_an_answer_without_records_moves_offsets_as_far_as_this_log_goes_and_never_back(followed: Followed) -> None:
    followed.receive(leader_batch(0, 4))
    for high_watermark, log_start_offset, ends in [
        (3, 1, (1, 3, 4)),
        (2, 0, (1, 3, 4)),
        (100, 2, (2, 4, 4)),
        (100, 50, (4, 4, 4)),
    ]:
        followed.receive(high_watermark=high_watermark, log_start_offset=log_start_offset)
        assert followed.follower.ends() == ends
    assert followed.taken() == [None] * 5


def test_a_batch_that_was_changed_on_its_way_is_not_appended_nor_what_comes_behind_it(followed: Followed) -> None:
    changed = bytearray(leader_batch(1))
    changed[-1] ^= 1
    followed.receive(leader_batch(0), bytes(changed), leader_batch(2), high_watermark=3)
    (outcome,) = followed.taken()
    assert isinstance(outcome, CorruptMessageError)
    assert (followed.log.next_offset, followed.log.high_watermark) == (0, 0)


def test_a_batch_of_a_newer_epoch_than_its_leaders_is_refused(followed: Followed) -> None:
    followed.receive(leader_batch(0, epoch=EPOCH + 1))
    (outcome,) = followed.taken()
    assert isinstance(outcome, CorruptMessageError)


def test_what_was_sent_before_is_not_appended_twice(followed: Followed) -> None:
    for _ in range(2):
        followed.receive(leader_batch(0, 2))
    first, second = followed.taken()
    assert first is None
    assert isinstance(second, OffsetOutOfRangeError)
    assert followed.follower.harness.offsets() == [0, 1]


def test_during_a_flush_it_is_done_when_the_records_can_be_read(followed: Followed) -> None:
    followed.receive(leader_batch(0))
    followed.log.flush()
    followed.receive(leader_batch(1), high_watermark=2)
    assert followed.taken() == [None]
    assert followed.log.high_watermark == 0
    followed.follower.settle()
    assert followed.taken() == [None]
    assert (followed.log.log_end_offset, followed.log.high_watermark) == (2, 2)


def test_a_log_that_was_led_stands_where_its_queued_records_end(followed: Followed) -> None:
    """If it reported a higher end earlier, the next leader would count records that it may still lose."""
    followed.receive(leader_batch(0))
    followed.log.flush()
    batch = memoryview(bytearray(leader_batch(0, 2)))
    append_or_queue(
        followed.log, batch, [header for _, header in iter_headers(batch)], 5, 0, followed.follower.answers.append
    )
    settle(followed.log, NOW_MS, followed.outcomes.append)
    assert followed.taken() == [None]  # of the first batch
    followed.follower.settle()
    assert followed.taken() == [None]
    assert position_of(followed.log) == Position(3, 0, 5)


def test_a_log_that_is_being_cut_stands_where_the_cut_ends(followed: Followed) -> None:
    followed.receive(leader_batch(0, 2), leader_batch(2, 2))
    cut(followed.log, Cut(KEY, EPOCH, 0, 2), NOW_MS, followed.outcomes.append)
    settle(followed.log, NOW_MS, followed.outcomes.append)
    assert followed.taken() == [None]
    followed.follower.settle()
    assert followed.taken() == [None, None]
    assert position_of(followed.log) == Position(2, 0, 0)


def test_the_epoch_of_a_leader_that_wrote_nothing_is_forgotten(followed: Followed) -> None:
    followed.receive(leader_batch(0, epoch=2))
    followed.log.assign_leader_epoch(6, 1)
    settle(followed.log, NOW_MS, followed.outcomes.append)
    assert position_of(followed.log) == Position(1, 0, 2)


def test_where_the_logs_part_is_cut_and_below_what_was_committed_it_is_said(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.receive(leader_batch(0, 2, epoch=1), leader_batch(2, epoch=2), leader_batch(3, epoch=4), high_watermark=3)
    cut(followed.log, Cut(KEY, EPOCH, 2, 9), NOW_MS, followed.outcomes.append)
    followed.follower.settle()
    assert position_of(followed.log) == Position(3, 0, 2)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        cut(followed.log, Cut(KEY, EPOCH, 1, 2), NOW_MS, followed.outcomes.append)
    followed.follower.settle()
    assert position_of(followed.log) == Position(2, 0, 1)
    assert "below its high watermark 3" in caplog.text
    assert followed.taken() == [None] * 3


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "wanted"),
    [(0, 2, GoOn(2, False)), (7, 9, GoOn(7, True)), (0, 4, None), (4, 4, None), (1, 9, None)],
)
def test_a_log_whose_end_the_leader_does_not_have_goes_on_where_the_leader_has_something(
    followed: Followed, leader_start: int, leader_end: int, wanted: GoOn | None
) -> None:
    followed.receive(leader_batch(0, 2), leader_batch(2, 2))
    assert go_on_at(followed.log.log_end_offset, leader_start, leader_end) == wanted
    if wanted is None:
        return
    go_on(followed.log, wanted, NOW_MS, followed.outcomes.append)
    followed.follower.settle()
    assert followed.taken() == [None, None]
    assert position_of(followed.log)[:2] == ((wanted.offset, wanted.offset) if wanted.restarts else (wanted.offset, 0))
