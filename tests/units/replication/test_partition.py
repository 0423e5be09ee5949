"""A partition with several replicas: its answers, and its notifications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import (
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TransactionCoordinatorFencedError,
    UnknownLeaderEpochError,
)
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.log.disk.background import DirectoryWriter, InlineBackground
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.log.partition.reading import aborted_transactions
from jesenska.records.decode import ControlMarker, ControlType
from jesenska.records.header import read_header
from jesenska.replication.leader.isr_syncs import IsrSyncs
from jesenska.replication.partition import ACKS_ALL, Partition
from jesenska.replication.replicas import Replicas
from tests.units.log.follower_harness import Follower, leader_batch
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch
from tests.units.log.manual_background import ManualBackground

_KEY = TopicPartition("t", 0)


class Harness:
    """Broker 1 leads with the followers 2 and 3."""

    def __init__(self, directory: Path) -> None:
        self.log = LogHarness(directory).log
        self.log.move_high_watermark(0)
        self.news: list[TopicPartition] = []
        self.now_ms = 0
        self.partition = Partition(
            _KEY, NO_UUID, Replicas(_KEY, 1, (1, 2, 3), 1, 100), self.news.append, lambda: self.now_ms
        )
        self.partition.found_log(self.log)
        self.partition.led_by(1, 0, (1, 2, 3), 0)
        self.outcomes: list[AppendResult | KafkaError] = []
        self.news.clear()

    def append(self, acks: int, records: int = 1) -> AppendResult | None:
        batch = make_batch(records)
        return self.partition.append(memoryview(batch), [read_header(batch)], acks, NOW_MS, self.outcomes.append)

    def all_fetched(self, offset: int) -> None:
        for follower in (2, 3):
            self.fetched(follower, offset)

    def fetched(self, follower: int, offset: int) -> None:
        self.partition.follower_fetched(follower, offset, self.log.log_end_offset)

    def codes(self) -> list[str]:
        return [type(outcome).__name__ for outcome in self.outcomes]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    close_log(made.log, clean=False)


def test_acks_1_is_answered_when_it_is_written_and_nobody_reads_it_before_it_is_committed(harness: Harness) -> None:
    result = harness.append(1, 3)
    assert result is not None
    assert result.last_offset == 2
    assert harness.partition.high_watermark == 0
    assert harness.partition.read(0, 1000, -1, True).region is None


def test_acks_all_is_answered_when_every_replica_in_sync_has_it(harness: Harness) -> None:
    assert harness.append(ACKS_ALL, 3) is None
    assert harness.append(ACKS_ALL, 2) is None
    harness.fetched(2, 5)
    assert harness.outcomes == []
    harness.fetched(3, 4)
    assert [outcome.last_offset for outcome in harness.outcomes if isinstance(outcome, AppendResult)] == [2]
    harness.fetched(3, 5)
    assert harness.codes() == ["AppendResult", "AppendResult"]
    assert harness.partition.high_watermark == 5


def test_a_replica_that_leaves_lets_what_waits_for_it_be_answered(harness: Harness) -> None:
    assert harness.append(ACKS_ALL) is None
    harness.fetched(2, 1)
    harness.now_ms = 200
    assert harness.partition.drop_lagging()
    assert harness.partition.proposed_isr == (1, 2)
    assert harness.outcomes == []
    harness.partition.isr_written((1, 2), 0, 1)
    assert harness.codes() == ["AppendResult"]


def test_too_few_in_sync_take_no_write_with_acks_all_and_commit_nothing_until_more_are(harness: Harness) -> None:
    harness.partition.configure(LogConfig(), 2)
    assert harness.append(ACKS_ALL) is None
    harness.now_ms = 200
    assert harness.partition.drop_lagging()
    harness.partition.isr_written((1,), 0, 1)
    with pytest.raises(NotEnoughReplicasError):
        harness.append(ACKS_ALL)
    assert harness.log.log_end_offset == 1
    assert harness.append(1) is not None
    assert harness.outcomes == []
    assert harness.partition.high_watermark == 0
    harness.fetched(2, 2)
    assert harness.partition.proposed_isr == (1, 2)
    harness.partition.isr_written((1, 2), 0, 2)
    assert harness.codes() == ["AppendResult"]
    assert harness.partition.high_watermark == 2


def test_the_log_is_synced_before_an_isr_with_too_few_may_be_written(tmp_path: Path) -> None:
    flusher = ManualBackground()
    with LogHarness(tmp_path, writer=DirectoryWriter(InlineBackground(), flusher)) as files:
        log, partition = (
            files.log,
            Partition(_KEY, NO_UUID, Replicas(_KEY, 1, (1, 2), 2, 100), lambda key: None, lambda: 200),
        )
        partition.found_log(log)
        partition.led_by(1, 0, (1, 2), 0)
        batch = make_batch(3)
        assert partition.append(memoryview(batch), [read_header(batch)], 1, NOW_MS, lambda outcome: None) is not None
        partition.follower_fetched(2, 3, 3)
        log.move_high_watermark(3)
        partition._replicas.proposed_isr = (1,)
        outcomes: list[KafkaError | None] = []
        partition.sync(outcomes.append)
        assert (partition.waits_for_sync, outcomes) == (True, [])
        flusher.run_all()
        assert (partition.waits_for_sync, outcomes) == (False, [None])
        assert log.recovery_point == 3


def test_a_log_that_is_synced_already_is_not_synced_again(tmp_path: Path) -> None:
    flusher = ManualBackground()
    with LogHarness(tmp_path, writer=DirectoryWriter(InlineBackground(), flusher)) as files:
        partition = Partition(_KEY, NO_UUID, Replicas(_KEY, 1, (1, 2), 2, 100), lambda key: None, lambda: 0)
        partition.found_log(files.log)
        partition.led_by(1, 0, (1,), 0)
        batch = make_batch(3)
        assert partition.append(memoryview(batch), [read_header(batch)], 1, NOW_MS, lambda outcome: None) is not None
        files.log.flush()
        flusher.run_all()
        outcomes: list[KafkaError | None] = []
        partition.sync(outcomes.append)
        assert (partition.is_to_be_synced, outcomes) == (False, [None])


@pytest.mark.parametrize("goes", ["vanish", "give_up"])
def test_a_partition_that_goes_while_its_log_is_synced_waits_for_nothing_more(tmp_path: Path, goes: str) -> None:
    flusher = ManualBackground()
    with LogHarness(tmp_path, writer=DirectoryWriter(InlineBackground(), flusher)) as files:
        partition = Partition(_KEY, NO_UUID, Replicas(_KEY, 1, (1, 2), 2, 100), lambda key: None, lambda: 200)
        partition.found_log(files.log)
        partition.led_by(1, 0, (1, 2), 0)
        batch = make_batch(3)
        assert partition.append(memoryview(batch), [read_header(batch)], 1, NOW_MS, lambda outcome: None) is not None
        partition._replicas.proposed_isr = (1,)
        syncs, written = IsrSyncs(), list[bool]()

        def propose() -> None:
            # As `IsrChanges.propose`.
            if partition.waits_for_sync:
                syncs.ask(partition, propose)
            else:
                written.append(partition.proposed_isr is not None)

        propose()
        getattr(partition, goes)()
        flusher.run_all()
        assert (partition.waits_for_sync, partition.is_to_be_synced, written, syncs.is_idle) == (
            False,
            False,
            [False],
            True,
        )


def test_a_log_that_could_not_be_synced_is_to_be_synced_still(harness: Harness) -> None:
    harness.partition.configure(LogConfig(), 2)
    assert harness.append(1) is not None
    harness.partition.led_by(1, 1, (1,), 0)
    harness.log.flushes.failure = "broken"
    outcomes: list[KafkaError | None] = []
    harness.partition.sync(outcomes.append)
    assert [type(outcome).__name__ for outcome in outcomes] == ["KafkaStorageError"]
    assert harness.partition.is_to_be_synced


def test_a_smaller_isr_in_the_same_epoch_lets_what_waits_be_answered(harness: Harness) -> None:
    assert harness.append(ACKS_ALL) is None
    harness.fetched(2, 1)
    harness.now_ms = 200
    harness.partition.led_by(1, 0, (1, 2), 1)
    assert harness.codes() == ["AppendResult"]


def test_a_batch_that_was_sent_again_does_not_wait_behind_a_later_one(harness: Harness) -> None:
    assert harness.append(ACKS_ALL, 3) is None
    assert harness.append(ACKS_ALL, 3) is None
    partition = harness.partition
    assert partition._uncommitted is not None
    partition._uncommitted.reverse()
    harness.all_fetched(3)
    assert [outcome.last_offset for outcome in harness.outcomes if isinstance(outcome, AppendResult)] == [2]


def test_a_follower_that_knows_another_epoch_is_refused(harness: Harness) -> None:
    with pytest.raises(UnknownLeaderEpochError):
        harness.partition.follower_fetched(2, 0, 0, 1)


def test_what_waits_for_a_commit_is_told_when_another_broker_leads(harness: Harness) -> None:
    assert harness.append(ACKS_ALL) is None
    harness.partition.led_by(2, 1, (2, 3), 1)
    assert [type(outcome) for outcome in harness.outcomes] == [NotLeaderOrFollowerError]
    with pytest.raises(NotLeaderOrFollowerError, match="broker 2 leads"):
        harness.append(1)
    with pytest.raises(FencedLeaderEpochError):
        harness.partition.read(0, 1000, 0, True)
    with pytest.raises(NotLeaderOrFollowerError):
        harness.partition.read(0, 1000, -1, True)


def test_what_waits_for_a_commit_is_told_when_the_topic_goes(harness: Harness) -> None:
    assert harness.append(ACKS_ALL) is None
    harness.partition.vanish()
    assert [type(outcome) for outcome in harness.outcomes] == [NotLeaderOrFollowerError]
    assert harness.partition.leader == -1
    assert not harness.partition.has_log


def test_whoever_waits_is_told_of_commits_and_not_of_fetches_that_commit_nothing(harness: Harness) -> None:
    harness.append(1)
    harness.news.clear()
    harness.fetched(2, 1)
    assert harness.news == []
    harness.fetched(3, 1)
    assert harness.news == [_KEY]
    harness.all_fetched(1)
    assert harness.news == [_KEY]


def test_the_epoch_begins_where_the_log_of_the_new_leader_ends(harness: Harness) -> None:
    harness.append(1, 4)
    harness.partition.led_by(2, 1, (1, 2, 3), 1)
    assert harness.log.leader_epochs.latest_epoch == 0
    harness.partition.led_by(1, 2, (1, 2, 3), 2)
    assert harness.log.end_offset_for_epoch(0) == (0, 4)
    assert harness.log.end_offset_for_epoch(2) == (2, 4)


def test_a_leader_of_several_keeps_its_high_watermark_until_its_followers_have_fetched(harness: Harness) -> None:
    harness.append(1, 4)
    harness.all_fetched(3)
    assert harness.partition.high_watermark == 3
    harness.partition.led_by(1, 1, (1, 2, 3), 1)
    assert harness.partition.high_watermark == 3


def test_a_new_epoch_begins_behind_what_is_queued_in_the_one_before(tmp_path: Path) -> None:
    writer, flusher = ManualBackground(), ManualBackground()
    with LogHarness(tmp_path, writer=DirectoryWriter(writer, flusher)) as files:
        partition = Partition(_KEY, NO_UUID, Replicas(_KEY, 1, (1,), 1, 100), lambda key: None, lambda: 0)
        partition.found_log(files.log)
        partition.led_by(1, 0, (1,), 0)
        answers: list[AppendResult | KafkaError] = []
        for _ in range(2):
            batch = make_batch(3)
            result = partition.append(memoryview(batch), [read_header(batch)], 1, NOW_MS, answers.append)
            files.log.flush()
        assert result is None, "it waits behind the flush"
        partition.led_by(1, 1, (1,), 1)
        writer.run_all()
        assert files.log.leader_epochs.entries() == [(0, 0), (1, 6)]
        flusher.run_all()


# --- as a follower ---------------------------------------------------------------------------------------------------


def _follow(harness: Harness) -> Partition:
    """Makes broker 2 the leader in epoch 1. This broker has five records, three of which are known to be committed."""
    harness.append(1, 3)
    harness.append(1, 2)
    harness.partition.led_by(2, 1, (1, 2, 3), 1)
    harness.log.move_high_watermark(3)
    harness.news.clear()
    return harness.partition


def _size(partition: Partition, offset: int, epoch: int = -1) -> int:
    region = partition.read(offset, 1000, epoch, True, True, False).region
    if region is None:
        return 0
    region.release()
    return region.size_bytes


def test_a_follower_gives_what_it_knows_to_be_committed(harness: Harness) -> None:
    partition = _follow(harness)
    assert [_size(partition, offset) for offset in (0, 3, 4, 5)] == [len(make_batch(3)), 0, 0, 0]
    with pytest.raises(OffsetOutOfRangeError):
        _size(partition, 6)
    harness.log.move_high_watermark(5)
    assert _size(partition, 4) == len(make_batch(2))
    with pytest.raises(NotLeaderOrFollowerError):
        partition.read(0, 1000, -1, True)


def test_a_follower_refuses_who_knows_another_epoch(harness: Harness) -> None:
    partition = _follow(harness)
    assert _size(partition, 0, 1) > 0
    with pytest.raises(FencedLeaderEpochError):
        _size(partition, 0, 0)
    with pytest.raises(UnknownLeaderEpochError):
        _size(partition, 0, 2)


def test_a_replica_that_nobody_follows_with_sends_consumers_elsewhere_until_it_takes_part_again(
    harness: Harness,
) -> None:
    partition = _follow(harness)
    partition.withdraw()
    assert harness.news == [_KEY]
    with pytest.raises(NotLeaderOrFollowerError):
        _size(partition, 0)
    partition.take_part()
    assert _size(partition, 0) > 0
    partition.give_up()
    assert harness.news == [_KEY, _KEY]
    with pytest.raises(NotLeaderOrFollowerError):
        _size(partition, 0)


def test_a_leader_reads_for_those_that_may_read_from_followers_as_for_others(harness: Harness) -> None:
    harness.append(1, 3)
    harness.all_fetched(3)
    assert _size(harness.partition, 0, 0) == len(make_batch(3))
    with pytest.raises(UnknownLeaderEpochError):
        _size(harness.partition, 0, 1)
    harness.partition.vanish()
    with pytest.raises(NotLeaderOrFollowerError):
        _size(harness.partition, 0)


def test_who_may_read_from_a_follower_is_told_when_it_is_in_sync(harness: Harness) -> None:
    harness.append(1, 3)
    harness.all_fetched(3)
    harness.partition.led_by(1, 0, (1, 2), 1)
    harness.fetched(3, 3)
    assert [follower.broker_id for follower in harness.partition.readable_from(3)] == [2]
    harness.news.clear()
    harness.partition.isr_written((1, 2, 3), 0, 2)
    assert harness.news == [_KEY]
    assert [follower.broker_id for follower in harness.partition.readable_from(3)] == [2, 3]


def test_what_was_queued_before_it_led_is_news_when_it_is_written(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    log, news = follower.harness.log, list[TopicPartition]()
    partition = Partition(_KEY, NO_UUID, Replicas(_KEY, 1, (1, 2, 3), 2, 100), news.append, lambda: 0)
    partition.found_log(log)
    partition.led_by(2, 0, (1, 2, 3), 0)
    follower.fill(1)
    log.flush()
    assert follower.append(leader_batch(1, 3)) is None
    partition.led_by(1, 1, (1,), 1)
    news.clear()
    follower.settle()
    assert log.log_end_offset == 4
    assert news == [_KEY]
    close_log(log, clean=False)


def _in_transaction(harness: Harness, sequence: int) -> None:
    batch = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    harness.partition.append(memoryview(batch), [read_header(batch)], 1, NOW_MS, harness.outcomes.append)


def test_consumers_of_committed_records_wait_until_a_transactions_end_is_committed(harness: Harness) -> None:
    harness.append(1)
    _in_transaction(harness, 0)
    harness.all_fetched(2)
    assert (harness.partition.high_watermark, harness.partition.last_stable_offset) == (2, 1)
    assert harness.partition.read(1, 1000, -1, True, stable_only=True).region is None
    assert (
        harness.partition.append_marker(7, 0, ControlMarker(ControlType.ABORT, 0), NOW_MS, harness.outcomes.append)
        is None
    )
    harness.fetched(2, 3)
    assert harness.partition.last_stable_offset == 1
    assert not harness.outcomes
    harness.fetched(3, 3)
    assert harness.partition.last_stable_offset == 3
    assert isinstance(harness.outcomes[0], AppendResult)
    result = harness.partition.read(0, 1000, -1, True, stable_only=True)
    assert [(item.producer_id, item.first_offset) for item in aborted_transactions(harness.log, 0, result)] == [(7, 1)]
    assert result.region is not None
    result.region.release()


def test_a_marker_of_an_older_coordinator_or_producer_is_refused(harness: Harness) -> None:
    harness.partition.append_marker(7, 1, ControlMarker(ControlType.COMMIT, 5), NOW_MS, harness.outcomes.append)
    with pytest.raises(TransactionCoordinatorFencedError):
        harness.partition.append_marker(7, 1, ControlMarker(ControlType.COMMIT, 4), NOW_MS, harness.outcomes.append)
    with pytest.raises(InvalidProducerEpochError):
        harness.partition.append_marker(7, 0, ControlMarker(ControlType.COMMIT, 5), NOW_MS, harness.outcomes.append)
