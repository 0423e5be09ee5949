"""Merges the topics of an answer so that the answer contains each topic once. Kafka answers in this form to requests
that may name a topic twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar


class TopicAnswer(Protocol):
    """A topic in an answer, with the results of its partitions."""

    name: str
    partitions: list[Any]


class TopicAnswerWithId(TopicAnswer, Protocol):
    topic_id: uuid.UUID


Answer = TypeVar("Answer", bound=TopicAnswer)


def name_of(answer: TopicAnswer) -> str:
    return answer.name


def name_and_id_of(answer: TopicAnswerWithId) -> tuple[str, uuid.UUID]:
    return answer.name, answer.topic_id


def merged_topics(answers: Iterable[Answer], key_of: Callable[[Answer], Hashable] = name_of) -> list[Answer]:
    """Returns each topic once, in the order of first mention. If a topic is mentioned again, the partitions of the
    later mention are appended to the first. `key_of` returns a topic's identity."""
    merged: dict[Hashable, Answer] = {}
    for answer in answers:
        first = merged.setdefault(key_of(answer), answer)
        if first is not answer:
            first.partitions += answer.partitions
    return list(merged.values())
