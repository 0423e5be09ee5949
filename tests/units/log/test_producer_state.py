from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.segments.producer_state import ProducerState, Undo, Verification, decode_snapshot, encode_snapshot
from jesenska.records.decode import ControlMarker, ControlType, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.header import BatchHeader, read_header
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch

# The snapshot of Apache Kafka 3.9.1 for one producer: last offset 167, sequence 167, 8 records.
KAFKA_SNAPSHOT = bytes.fromhex(
    "0001 15068535 000000010000000000000000 0000 000000a7 00000000000000a7 00000007 000001a1fbea9267 ffffffff "
    "ffffffffffffffff"
)


def header(sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, txn: bool = False) -> BatchHeader:
    return read_header(
        make_batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn), 0
    )


def feed(state: ProducerState, one: BatchHeader, offset: int) -> tuple[int, int] | None:
    """The offsets of the earlier batch for a duplicate, None if it was taken."""
    earlier = state.check(one)
    if earlier is not None:
        return earlier.first_offset, earlier.last_offset
    state.apply(one, offset, one.max_timestamp, NOW_MS)
    return None


def test_batch_sent_twice_is_answered_with_the_first_offsets() -> None:
    state = ProducerState()
    assert feed(state, header(0, 3), 10) is None
    assert feed(state, header(3, 2), 13) is None
    assert feed(state, header(0, 3), 15) == (10, 12)
    assert feed(state, header(3, 2), 15) == (13, 14)


def test_only_the_last_five_batches_are_known_as_duplicates() -> None:
    state = ProducerState()
    for sequence in range(6):
        assert feed(state, header(sequence), sequence) is None
    assert feed(state, header(1), 6) == (1, 1)
    with pytest.raises(OutOfOrderSequenceNumberError):
        feed(state, header(0), 6)


def test_gap_in_the_sequence_is_refused() -> None:
    state = ProducerState()
    feed(state, header(0), 0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        feed(state, header(2), 1)


def test_same_first_sequence_with_another_length_is_no_duplicate() -> None:
    state = ProducerState()
    feed(state, header(0, 3), 0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        feed(state, header(0, 2), 3)


def test_unknown_producer_may_begin_anywhere() -> None:
    assert feed(ProducerState(), header(41), 0) is None


def test_sequence_wraps_to_zero() -> None:
    state = ProducerState()
    feed(state, header(2**31 - 2, 2), 0)
    assert feed(state, header(0), 2) is None
    state = ProducerState()
    feed(state, header(2**31 - 1, 3), 0)
    assert feed(state, header(2**31 - 1, 3), 3) == (0, 2)
    assert feed(state, header(2), 3) is None


def test_new_epoch_begins_with_sequence_zero_and_fences_the_old() -> None:
    state = ProducerState()
    feed(state, header(0, 5), 0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        feed(state, header(5, epoch=1), 5)
    assert feed(state, header(0, epoch=1), 5) is None
    with pytest.raises(InvalidProducerEpochError):
        feed(state, header(5, epoch=0), 6)


def test_duplicate_of_an_old_epoch_is_fenced_and_not_answered() -> None:
    state = ProducerState()
    feed(state, header(0), 0)
    feed(state, header(0, epoch=1), 1)
    with pytest.raises(InvalidProducerEpochError):
        feed(state, header(0, epoch=0), 2)


def test_a_batch_of_a_new_epoch_is_no_duplicate_of_one_of_the_old_epoch() -> None:
    state = ProducerState()
    assert [feed(state, header(sequence), sequence) for sequence in (0, 1)] == [None, None]
    assert feed(state, header(0, epoch=1), 2) is None
    assert feed(state, header(0, epoch=1), 3) == (2, 2)
    assert feed(state, header(1, epoch=1), 3) is None


def begin(
    state: ProducerState, sequence: int = 0, *, epoch: int = 0, now_ms: int = NOW_MS, is_for_new_clients: bool = False
) -> Verification:
    return state.begin_verification(1, epoch, sequence, now_ms, is_for_new_clients=is_for_new_clients)


def test_a_verification_lasts_until_a_transaction_begins_or_ends() -> None:
    state = ProducerState()
    verification = begin(state)
    assert begin(state) is verification
    assert state.is_verified(1, 0, verification)
    state.clear()
    assert not state.is_verified(1, 0, verification)
    assert not state.is_verified(1, 0, None)
    again = begin(state)
    feed(state, header(0, txn=True), 0)
    assert state.is_verified(1, 0, None)
    assert begin(state) is not again
    assert not state.is_verified(1, 1, again)


def test_what_was_sent_after_a_batch_that_was_not_verified_is_not_written_before_it() -> None:
    state = ProducerState()
    for sequence in (5, 2, 7):
        begin(state, sequence)
    for sequence in (5, 3):
        with pytest.raises(OutOfOrderSequenceNumberError):
            state.check(header(sequence, txn=True))
    assert feed(state, header(2, txn=True), 0) is None
    assert feed(state, header(3, txn=True), 1) is None


def test_a_newer_epoch_begins_with_its_own_lowest_sequence() -> None:
    state = ProducerState()
    begin(state, 0)
    begin(state, 4, epoch=1)
    begin(state, 1)
    with pytest.raises(OutOfOrderSequenceNumberError):
        state.check(header(5, epoch=1, txn=True))
    assert state.check(header(4, epoch=1, txn=True)) is None


def test_a_client_that_leaves_partitions_to_their_leader_begins_with_sequence_0() -> None:
    state = ProducerState()
    begin(state, 3, is_for_new_clients=True)
    with pytest.raises(OutOfOrderSequenceNumberError):
        state.check(header(3, txn=True))
    assert state.check(header(0, txn=True)) is None


def test_old_verifications_and_too_many_are_forgotten() -> None:
    state = ProducerState(expiration_ms=1000, max_producers=2)
    verification = begin(state)
    state.expire(NOW_MS + 999)
    assert state.is_verified(1, 0, verification)
    state.expire(NOW_MS + 1000)
    assert not state.is_verified(1, 0, verification)
    several = [state.begin_verification(number, 0, 0, NOW_MS, is_for_new_clients=False) for number in range(3)]
    assert [state.is_verified(number, 0, each) for number, each in enumerate(several)] == [False, True, True]


def test_silent_producers_are_forgotten_but_not_in_a_transaction() -> None:
    state = ProducerState(expiration_ms=1000)
    feed(state, header(0, producer=1), 0)
    feed(state, header(0, producer=2, txn=True), 1)
    assert state.expire(NOW_MS + 999) == 0
    assert state.expire(NOW_MS + 1000) == 1
    assert state.get(1) is None
    assert state.get(2) is not None


def test_records_of_the_past_do_not_make_their_producer_forgotten() -> None:
    state = ProducerState(expiration_ms=1000)
    old = read_header(make_batch(timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0))
    state.apply(old, 0, old.max_timestamp, NOW_MS)
    assert state.expire(NOW_MS + 500) == 0
    assert feed(state, old, 1) == (0, 0)


def test_number_of_producers_is_limited_and_the_longest_silent_goes_first() -> None:
    state = ProducerState(max_producers=3)
    for producer in (1, 2, 3):
        feed(state, header(0, producer=producer), producer)
    feed(state, header(1, producer=1), 4)
    feed(state, header(0, producer=4), 5)
    assert sorted(entry.producer_id for entry in state.entries()) == [1, 3, 4]


def marker(kind: ControlType, coordinator_epoch: int, *, producer: int = 1, epoch: int = 0) -> bytearray:
    return encode_batch(
        [marker_record(ControlMarker(kind, coordinator_epoch), NOW_MS)],
        producer_id=producer,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def test_open_transaction_holds_back_the_last_stable_offset_until_its_marker_is_replicated(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(2))
        harness.append(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        harness.append(make_batch(1, producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True))
        assert harness.log.last_stable_offset == 2
        with pytest.raises(InvalidTxnStateError):
            harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2))
        harness.append(marker(ControlType.COMMIT, 0), commits=False)
        assert harness.log.last_stable_offset == 2
        harness.log.move_high_watermark(6)
        assert harness.log.last_stable_offset == 4
        harness.append(marker(ControlType.ABORT, 0, producer=2))
        assert harness.log.last_stable_offset == 7


def test_open_transaction_is_found_again_after_crash_and_stop(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=400)) as harness:
        harness.append(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        for _ in range(6):
            harness.append(make_batch(1))
        assert len(harness.log.segments) > 1
        harness.crash()
        assert harness.log.last_stable_offset == 0
        harness.reopen()
        assert harness.log.last_stable_offset == 0
        harness.append(marker(ControlType.COMMIT, 0))
        harness.crash()
        harness.log.producers.high_watermark_moved(harness.log.log_end_offset)
        assert harness.log.last_stable_offset == harness.log.log_end_offset


def test_marker_of_an_older_coordinator_is_fenced(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        harness.append(marker(ControlType.COMMIT, 5))
        with pytest.raises(TransactionCoordinatorFencedError):
            harness.append(marker(ControlType.COMMIT, 4))
        assert harness.log.log_end_offset == 2


def test_snapshot_of_apache_kafka_is_read_and_written_byte_for_byte() -> None:
    entries = decode_snapshot(KAFKA_SNAPSHOT, NOW_MS)
    (entry,) = entries
    assert (entry.producer_id, entry.producer_epoch, entry.last_sequence) == (0, 0, 167)
    batch = entry.batches[-1]
    assert (batch.first_sequence, batch.first_offset, batch.last_offset, batch.timestamp) == (
        160,
        160,
        167,
        1795227816551,
    )
    assert encode_snapshot(entries) == KAFKA_SNAPSHOT


@given(st.integers(0, len(KAFKA_SNAPSHOT) - 1), st.integers(1, 255))
def test_damaged_snapshot_is_refused(position: int, flip: int) -> None:
    damaged = bytearray(KAFKA_SNAPSHOT)
    damaged[position] ^= flip
    with pytest.raises(CorruptMessageError):
        decode_snapshot(bytes(damaged), NOW_MS)
    with pytest.raises(CorruptMessageError):
        decode_snapshot(KAFKA_SNAPSHOT[:position], NOW_MS)


@pytest.mark.parametrize("crash", [True, False])
def test_duplicate_is_recognised_after_a_restart(tmp_path: Path, crash: bool) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=500)) as harness:
        for sequence in range(10):
            harness.append(make_batch(1, producer_id=4, producer_epoch=2, base_sequence=sequence))
        if crash:
            harness.crash()
        else:
            harness.reopen()
        again = harness.append(make_batch(1, producer_id=4, producer_epoch=2, base_sequence=9))
        assert (again.duplicate, again.base_offset) == (True, 9)
        with pytest.raises(OutOfOrderSequenceNumberError):
            harness.append(make_batch(1, producer_id=4, producer_epoch=2, base_sequence=11))
        assert harness.append(make_batch(1, producer_id=4, producer_epoch=2, base_sequence=10)).base_offset == 10


def test_damaged_snapshot_only_makes_the_replay_longer(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=500)) as harness:
        for sequence in range(10):
            harness.append(make_batch(1, producer_id=4, producer_epoch=2, base_sequence=sequence))
        close_log(harness.log)
        for path in harness.directory.glob("*.snapshot"):
            path.write_bytes(b"torn")
        harness.open(clean=True)
        entry = harness.log.producers.get(4)
        assert entry is not None
        assert entry.last_sequence == 9
        assert len(entry.batches) == 5


@dataclass
class Model:
    """The rules of one producer as a list of everything that was ever taken."""

    epoch: int = -1
    taken: list[tuple[int, int, int]] = field(default_factory=list)

    def offer(self, epoch: int, sequence: int, count: int, offset: int) -> str:
        if self.taken or self.epoch >= 0:
            if epoch < self.epoch:
                return "fenced"
            if epoch > self.epoch:
                if sequence != 0:
                    return "out of order"
                self.taken.clear()
            else:
                for first, length, earlier in self.taken[-5:]:
                    if (first, length) == (sequence, count):
                        return f"duplicate {earlier}"
                if sequence != self.taken[-1][0] + self.taken[-1][1]:
                    return "out of order"
        self.epoch = epoch
        self.taken.append((sequence, count, offset))
        return "taken"


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 8), st.integers(1, 3), st.booleans()),
        max_size=60,
    ),
)
def test_sequence_check_agrees_with_a_model_and_an_undo_leaves_no_trace(
    steps: list[tuple[int, int, int, int, bool]],
) -> None:
    state = ProducerState()
    models = {1: Model(), 2: Model()}
    offset = 0
    for producer, epoch, sequence, count, fails in steps:
        one = header(sequence, count, producer=producer, epoch=epoch)
        before = state.entries()
        changes: list[Undo] = []
        try:
            earlier = state.check(one)
            if earlier is None:
                changes.append(state.apply(one, offset, one.max_timestamp, NOW_MS))
            outcome = "taken" if earlier is None else f"duplicate {earlier.first_offset}"
        except KafkaError as error:
            outcome = {InvalidProducerEpochError: "fenced", OutOfOrderSequenceNumberError: "out of order"}[type(error)]
        if outcome == "taken" and fails:
            state.undo(changes)
            assert sorted(state.entries()) == sorted(before)
            continue
        assert outcome == models[producer].offer(epoch, sequence, count, offset)
        offset += count
    restored = ProducerState()
    restored.load(decode_snapshot(encode_snapshot(state.entries()), NOW_MS))
    for entry in state.entries():
        copy = restored.get(entry.producer_id)
        assert copy is not None
        assert (copy.producer_epoch, copy.batches[-1]) == (entry.producer_epoch, entry.batches[-1])


def test_room_for_new_producers_is_made_for_many_at_once() -> None:
    """The search for the oldest producer walks over the places of all forgotten ones."""
    state = ProducerState(max_producers=1000)
    for number in range(1000):
        state.apply(header(0, producer=number), number, NOW_MS, NOW_MS)
    state.apply(header(0, producer=1000), 1000, NOW_MS, NOW_MS)
    assert len(state) == 991
    assert state.get(9) is None
    assert state.get(10) is not None
    assert state.get(1000) is not None
