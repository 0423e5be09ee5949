from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import CorruptMessageError
from jesenska.base.identifiers import TopicPartition
from jesenska.transactions.records import TransactionRecord, TransactionValue, encode_record, read_record
from jesenska.transactions.states import TransactionState

_INT64 = st.integers(-1, 2**63 - 1)
_PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(("a", "b", "__consumer_offsets")), st.integers(0, 100)), max_size=5
)
VALUES = st.builds(
    TransactionValue,
    _INT64,
    st.integers(-1, 2**15 - 1),
    st.integers(1, 2**31 - 1),
    st.sampled_from(TransactionState),
    _PARTITIONS,
    _INT64,
    _INT64,
    _INT64,
    _INT64,
    st.sampled_from((0, 2)),
)


def _settled(value: TransactionValue) -> TransactionValue:
    return value._replace(partitions=frozenset()) if value.state is TransactionState.EMPTY else value


@given(name=st.text(max_size=30), value=VALUES)
def test_version_1_says_everything(name: str, value: TransactionValue) -> None:
    record = TransactionRecord(name, _settled(value))
    assert read_record(*encode_record(record, 1)) == record


@given(name=st.text(max_size=30), value=VALUES)
def test_version_0_says_what_old_releases_know(name: str, value: TransactionValue) -> None:
    value = _settled(value)
    read = read_record(*encode_record(TransactionRecord(name, value), 0))
    assert read == TransactionRecord(
        name, value._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    )


def test_a_tombstone_has_no_value() -> None:
    encoded = encode_record(TransactionRecord("a", None), 1)
    assert encoded.value is None
    assert read_record(*encoded) == TransactionRecord("a", None)


def test_keys_of_later_releases_are_left_alone() -> None:
    assert read_record(b"\0\1abc", b"") is None
    assert read_record(b"\0\1", b"") is None


@pytest.mark.parametrize(
    "key, value",
    [
        (None, b""),
        (b"\0", b""),
        (b"\0\0\0", b""),
        (b"\0\0\0\1a", b"\0\2"),
        (b"\0\0\0\1a", b"\0\0\0"),
        (b"\0\0\0\1a", b""),
    ],
)
def test_bytes_that_say_nothing_are_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        read_record(key, value)
