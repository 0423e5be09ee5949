from __future__ import annotations

import pytest

from jesenska.base.errors import InvalidTopicException
from jesenska.base.topic_names import (
    TOPIC_NAME_MAX_CHARS,
    colliding_topic,
    is_legal_topic_name,
    require_topic_name,
    topic_name_problem,
)


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "-", "x" * TOPIC_NAME_MAX_CHARS])
def test_legal_names_pass(name: str) -> None:
    assert topic_name_problem(name) is None
    assert is_legal_topic_name(name)
    require_topic_name(name)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        (".", "not allowed"),
        ("..", "not allowed"),
        ("x" * (TOPIC_NAME_MAX_CHARS + 1), "longer"),
        ("a b", "ASCII"),
        ("ä", "ASCII"),
        ("a\n", "ASCII"),
    ],
)
def test_other_names_are_refused_with_the_reason(name: str, word: str) -> None:
    assert word in str(topic_name_problem(name))
    assert not is_legal_topic_name(name)
    with pytest.raises(InvalidTopicException, match=word):
        require_topic_name(name)


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    assert colliding_topic("a.b_c", ["abc", "a_b.c"]) == "a_b.c"
    assert colliding_topic("abc", ["abc"]) is None
    assert colliding_topic("a.b", ["a-b", "ab"]) is None
