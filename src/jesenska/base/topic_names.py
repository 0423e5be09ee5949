"""Checks topic names by Kafka's rules, and has Kafka's messages for names that Kafka refuses.

    1 to 249 characters of [a-zA-Z0-9._-], but not `.` and not `..`

Two names that differ only in `.` and `_` collide: each is legal, but a cluster accepts only one of them, because names
of metrics have `_` for `.`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jesenska.base.errors import InvalidTopicException

TOPIC_NAME_MAX_CHARS = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """Returns Kafka's message for a topic name that it refuses; None for a legal name."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX_CHARS:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_MAX_CHARS}"
        )
    if not _LEGAL.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', "
            f"'_' and '-'"
        )
    return None


def is_legal_topic_name(name: str) -> bool:
    """Returns true if Kafka accepts the topic name."""
    return topic_name_problem(name) is None


def require_topic_name(name: str) -> None:
    """Raises InvalidTopicException if the topic name is not legal."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise InvalidTopicException(problem)


def colliding_topic(name: str, others: Iterable[str]) -> str | None:
    """Returns the first of `others` that equals `name` or differs from it only in `.` and `_`; None if there is no
    such name."""
    if "." not in name and "_" not in name:
        return None
    folded = name.replace(".", "_")
    return next((other for other in others if other.replace(".", "_") == folded), None)
