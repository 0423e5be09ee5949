from __future__ import annotations

from jesenska.coordination.loading import Loading
from jesenska.records.decode import ControlMarker, ControlType, decode_batch, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.header import read_header
from jesenska.records.record import RecordInput


class Log:
    """Batches that are given to a `Loading` one after the other."""

    def __init__(self) -> None:
        self.loading = Loading()
        self._next_offset = 0

    def _take(
        self,
        records: list[RecordInput],
        producer_id: int = -1,
        *,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        batch = encode_batch(
            records,
            base_offset=self._next_offset,
            producer_id=producer_id,
            is_transactional=is_transactional,
            is_control=is_control,
        )
        self._next_offset += len(records)
        self.loading.take(read_header(batch), decode_batch(batch))

    def plain(self, **values: bytes | None) -> None:
        self._take([(0, key.encode(), value, ()) for key, value in values.items()])

    def within(self, producer_id: int, **values: bytes | None) -> None:
        self._take([(0, key.encode(), value, ()) for key, value in values.items()], producer_id, is_transactional=True)

    def end(self, producer_id: int, marker: ControlType) -> None:
        self._take([marker_record(ControlMarker(marker, 0), 0)], producer_id, is_transactional=True, is_control=True)

    def settled(self) -> dict[bytes | None, bytes | None]:
        return {record.key: record.value for record in self.loading.settled()}


def test_the_newest_record_of_a_key_counts() -> None:
    log = Log()
    log.plain(a=b"1", b=b"1")
    log.plain(a=b"2")
    assert list(log.settled().items()) == [(b"b", b"1"), (b"a", b"2")]
    log.plain(b=None)
    assert log.settled() == {b"b": None}


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    log = Log()
    log.plain(a=b"5", b=b"5")
    log.within(1, a=b"100")
    log.within(2, b=b"100")
    assert log.settled() == {b"a": b"5", b"b": b"5"}
    log.end(1, ControlType.COMMIT)
    log.end(2, ControlType.ABORT)
    assert log.settled() == {b"a": b"100"}
    assert log.loading.open_transactions == 0


def test_offsets_of_an_open_transaction_do_not_count() -> None:
    log = Log()
    log.within(1, a=b"100")
    assert log.settled() == {}
    assert log.loading.open_transactions == 1


def test_a_commit_outside_of_the_transaction_that_came_later_stays() -> None:
    log = Log()
    log.within(1, a=b"50", b=b"50")
    log.plain(a=b"7")
    assert log.settled() == {b"a": b"7"}
    log.end(1, ControlType.COMMIT)
    assert log.settled() == {b"b": b"50"}


def test_an_offset_that_is_forgotten_outside_of_the_transaction_does_not_undo_what_the_transaction_commits() -> None:
    log = Log()
    log.within(1, a=b"50")
    log.plain(a=None)
    assert log.settled() == {b"a": None}
    log.end(1, ControlType.COMMIT)
    assert log.settled() == {b"a": b"50"}


def test_a_marker_of_an_unknown_kind_ends_nothing() -> None:
    log = Log()
    log.within(1, a=b"50")
    log.end(1, ControlType.UNKNOWN)
    assert (log.settled(), log.loading.open_transactions) == ({}, 1)
    log.end(1, ControlType.COMMIT)
    assert log.settled() == {b"a": b"50"}


def test_the_next_transaction_of_a_producer_is_another() -> None:
    log = Log()
    log.within(1, a=b"1")
    log.end(1, ControlType.ABORT)
    log.within(1, b=b"2")
    log.end(1, ControlType.COMMIT)
    assert log.settled() == {b"b": b"2"}
    log.plain(a=b"3")
    log.within(1, a=b"4")
    log.end(1, ControlType.COMMIT)
    assert log.settled() == {b"a": b"4"}


def test_what_an_open_transaction_has_written_is_handed_on_with_whether_it_counts() -> None:
    log = Log()
    log.within(1, a=b"50", b=b"50")
    log.within(2, c=b"60")
    log.plain(a=b"7")
    log.end(2, ControlType.ABORT)
    log.within(3, c=b"70")
    found = [(record.key, record.value, of.producer_id, counts) for record, of, counts in log.loading.left_open()]
    assert found == [(b"a", b"50", 1, False), (b"b", b"50", 1, True), (b"c", b"70", 3, True)]
