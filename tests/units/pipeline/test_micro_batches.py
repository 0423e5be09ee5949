"""Which micro-batch is written already, which is not, and which is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.micro_batches import MicroBatch

NAME = "invoices"
LAST = MicroBatch.of(7, "a-checkpoint", '{"orders": {"0": 70}}', "invoices")


def test_the_first_micro_batch_of_a_name_is_not_written() -> None:
    assert not LAST.is_written(NAME, None)


def test_the_micro_batch_that_spark_begins_again_is_written() -> None:
    assert LAST.is_written(NAME, LAST)


def test_a_later_one_is_not_written() -> None:
    assert not replace(LAST, number=8, ends='{"orders": {"0": 80}}').is_written(NAME, LAST)


@pytest.mark.parametrize("number", [0, 7, 8])
def test_a_query_with_another_checkpoint_is_refused(number: int) -> None:
    other = replace(LAST, number=number, query_id="another")
    with pytest.raises(JesenskaError, match=r"name of its own.*startingOffsets=\{\"orders\": \{\"0\": 70\}\}"):
        other.is_written(NAME, LAST)


@pytest.mark.parametrize(
    "again", [replace(LAST, ends='{"orders": {"0": 90}}'), replace(LAST, number=6, ends='{"orders": {"0": 60}}')]
)
def test_a_checkpoint_that_was_put_back_from_a_copy_is_refused(again: MicroBatch) -> None:
    with pytest.raises(JesenskaError, match=r"written up to micro-batch 7, .* restore the newest checkpoint"):
        again.is_written(NAME, LAST)


def test_one_name_for_two_topics_is_refused() -> None:
    with pytest.raises(
        JesenskaError,
        match="was not written to the topic refunds, because it was already written to the topic invoices",
    ):
        replace(LAST, topic="refunds").is_written(NAME, LAST)


def test_where_the_last_one_is_a_number_alone_the_numbers_say_it() -> None:
    last = MicroBatch.from_bytes(b"7")
    assert LAST.is_written(NAME, last)
    assert not replace(LAST, number=8).is_written(NAME, last)
    with pytest.raises(JesenskaError, match="restore the newest checkpoint"):
        replace(LAST, number=6).is_written(NAME, last)


@pytest.mark.parametrize(("number", "written"), [(6, True), (7, True), (8, False)])
def test_without_a_stream_the_numbers_say_it(number: int, written: bool) -> None:
    assert MicroBatch(number).is_written(NAME, replace(LAST, query_id="", ends="")) is written


def test_ends_that_spark_does_not_tell_are_not_compared() -> None:
    assert replace(LAST, ends="").is_written(NAME, LAST)
    assert LAST.is_written(NAME, replace(LAST, ends=""))


@given(st.integers(0, 2**63), st.text(), st.text(), st.text())
def test_what_the_topic_keeps_is_read_as_it_was(number: int, query_id: str, ends: str, topic: str) -> None:
    batch = MicroBatch.of(number, query_id, ends, topic)
    assert MicroBatch.from_bytes(batch.to_bytes()) == batch


def test_long_ends_are_a_digest_that_tells_them_apart() -> None:
    first, second = (MicroBatch.of(0, "query", "x" * 50_000 + end, "") for end in "ab")
    assert first.ends != second.ends
    assert len(first.to_bytes()) < 200


@pytest.mark.parametrize("value", [b"", b"seven", b"[7]", b"{}", b'{"number": "x"}', b"\xff"])
def test_a_record_that_is_none_of_ours_is_one_sentence(value: bytes) -> None:
    with pytest.raises(JesenskaError, match=r"batches\.topic"):
        MicroBatch.from_bytes(value)


def test_a_checkpoint_that_has_the_last_one_elsewhere_is_refused() -> None:
    later = replace(LAST, number=9, ends='{"orders": {"0": 90}}')
    later.check_past(NAME, LAST, LAST.ends)
    later.check_past(NAME, LAST, "")  # the checkpoint has it no more
    later.check_past(NAME, replace(LAST, ends=""), '{"orders": {"0": 60}}')
    with pytest.raises(
        JesenskaError,
        match=r"micro-batch 7 ends at other offsets in its checkpoint.*startingOffsets=\{\"orders\": \{\"0\": "
        r"70\}\}",
    ):
        later.check_past(NAME, LAST, '{"orders": {"0": 60}}')
    with pytest.raises(JesenskaError, match="but micro-batch 8 is not done in its checkpoint and would be skipped"):
        later.check_past(NAME, LAST, LAST.ends, False)
    long = json.dumps({"orders": dict.fromkeys(map(str, range(3000)), 1)})
    later.check_past(NAME, MicroBatch.of(7, "a-checkpoint", long, "invoices"), long)
