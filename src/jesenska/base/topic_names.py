"""The names a topic may have, and Kafka's messages for names that it refuses.

    1 to 249 characters of [a-zA-Z0-9._-], but not `.` and not `..`

Two names that differ in `.` and `_` only are each legal, but no cluster takes both: the names of metrics have `_` for
`.`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jesenska.base.errors import InvalidTopicException

TOPIC_NAME_MAX_CHARS = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_problem(name: str) -> str | None:
    """Kafka's reason for refusing a topic's name, in its words; None for a legal name."""
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
    """True where Kafka would accept the name."""
    return topic_name_problem(name) is None


def require_topic_name(name: str) -> None:
    """InvalidTopicException for a name that is not legal."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise InvalidTopicException(problem)


def colliding_topic(name: str, others: Iterable[str]) -> str | None:
    """The first of `others` that equals `name`, or differs from it in `.` and `_` only; None if no name does."""
    if "." not in name and "_" not in name:
        return None
    folded = name.replace(".", "_")
    return next((other for other in others if other.replace(".", "_") == folded), None)
