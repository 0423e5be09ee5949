"""Answers with each topic once (`broker.requests.merged_topics`)."""

from __future__ import annotations

import uuid

from jesenska.broker.requests.merged_topics import merged_topics, name_and_id_of
from jesenska.wire.messages.k08_offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic


def _answer(name: str, *partitions: int, topic_id: int = 0) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=name,
        topic_id=uuid.UUID(int=topic_id),
        partitions=[OffsetCommitResponsePartition(partition_index=number) for number in partitions],
    )


def test_topics_stay_in_the_order_of_their_first_mention_with_the_partitions_of_all_mentions() -> None:
    answers = [_answer("b", 2), _answer("a"), _answer("b", 0, 2), _answer("a", 1)]
    assert merged_topics(answers) == [_answer("b", 2, 0, 2), _answer("a", 1)]


def test_topics_that_are_named_by_their_ids_are_told_apart_by_these() -> None:
    answers = [_answer("", 0, topic_id=1), _answer("", 0, topic_id=2), _answer("", 1, topic_id=1)]
    assert merged_topics(answers, name_and_id_of) == [_answer("", 0, 1, topic_id=1), _answer("", 0, topic_id=2)]
