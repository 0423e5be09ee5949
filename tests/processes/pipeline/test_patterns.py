"""Patterns of topic names have the same meaning as in Java."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.patterns import topic_pattern
from tests.profiles import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("flights", ["flights"], ["flights2", "xflights"]),
        ("fl.*", ["flights", "fl"], ["xfl"]),
        ("*", ["a", "b.c"], []),
        ("a,b", ["a", "b"], ["a,b"]),
        ("a{1,2}", ["a", "aa"], ["aaa"]),
        ("[a,b]", ["a", "b"], ["c"]),
        (r"\Qa.b\E.*", ["a.bc"], ["axbc"]),
        (r"a\.b", ["a.b"], ["axb"]),
        ("a(?i)b|c", ["aB", "C"], ["AB"]),
        ("(?:a(?i)b)c", ["aBc"], ["abC"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("[a-z&&[^bc]]+", ["ad"], ["ab", ""]),
        ("[a-c[x-z]]+", ["az"], ["ad"]),
        (r"\p{Lower}\p{Upper}\P{Digit}", ["aB."], ["aB1", "AB."]),
        (r"\p{L}+\p{N}+", ["ab12"], ["ab", "12"]),
        (r"\d+\D", ["12a"], ["1a2"]),
        (r"[\w-]+", ["a-b_1"], ["a.b"]),
        (r"[^._]+", ["a-b"], ["a.b"]),
        (r"x(?<n>a|b)\k<n>", ["xaa"], ["xab"]),
        (r"(a|b)\1", ["aa"], ["ab"]),
        ("a++b", ["aab"], ["b"]),
        ("(?>a|ab)c", ["ac"], ["abc"]),
        ("(?!internal).*", ["data"], ["internal-data"]),
        (r"^a\z", ["a"], ["ab"]),
        (r"\x61\u0062", ["ab"], ["xab"]),
        ("a-b", ["a-b"], ["ab"]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = topic_pattern(pattern)
    assert [name for name in matching if not compiled.fullmatch(name)] == []
    assert [name for name in other if compiled.fullmatch(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[a",
        "a{",
        "+",
        r"\y",
        "(?<1a>x)",
        "[z-a]",
        r"\p{Nonsense}",
        "\\",
        "(?x)a",
        "(?P<n>a)",
        r"\k<none>",
        "a" * 10_001,
    ],
)
def test_what_is_no_pattern_is_refused_in_one_sentence(pattern: str) -> None:
    with pytest.raises(JesenskaError, match=r"pattern of topics|is not a regular expression for names of topics"):
        topic_pattern(pattern)


@given(st.text(alphabet="ab.*+?()[]{}|\\^$,-&!<>:=iQEpdwzk0123", max_size=25))
def test_no_text_causes_anything_but_a_pattern_or_a_sentence(text: str) -> None:
    try:
        compiled = topic_pattern(text)
    except JesenskaError as error:
        assert str(error)
    else:
        assert isinstance(compiled, re.Pattern)


_PIECES = [
    "a",
    "b",
    "A",
    "1",
    ".",
    "-",
    "_",
    "*",
    "+",
    "?",
    "*?",
    "++",
    "|",
    "(",
    ")",
    "(?:",
    "(?i)",
    "(?i:",
    "(?-i)",
    "(?!",
    "(?=",
    "(?<n>",
    "\\k<n>",
    "\\1",
    "[",
    "[^",
    "]",
    "&&",
    "[a-c]",
    "[ab",
    "[^a-c&&[^b]]",
    "a-z",
    "{2}",
    "{1,}",
    "{0,1}",
    "^",
    "$",
    "\\z",
    "\\Z",
    "\\A",
    "\\b",
    "\\Q",
    "\\E",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\.",
    "\\-",
    "\\p{Lower}",
    "\\P{Lower}",
    "\\p{L}",
    "\\p{Punct}",
    "\\pN",
    "\\x61",
    "\\R",
    "\\h",
    "(?s)",
    "}",
]
_NAMES = [
    "",
    "a",
    "b",
    "A",
    "ab",
    "aB",
    "abc",
    "a.b",
    "a-b",
    "a_b",
    "1",
    "a1",
    "12",
    ".",
    "zz",
    "Q",
    "bd",
    "kd-w0",
    "i.E",
]


@pytest.mark.spark
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(_PIECES), max_size=9).map("".join))
def test_java_itself_agrees(spark: SparkSession, text: str) -> None:
    if text.strip() == "*":
        return  # all topics: Kafka's own meaning, which Java does not have
    java = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    try:
        judge = java.compile(text)
    except PySparkException:
        judge = None
    try:
        ours = topic_pattern(text)
    except JesenskaError:
        return  # more is refused here than by Java: a sentence, not another meaning
    assert judge is not None, f"Java refuses {text!r}"
    for name in _NAMES:
        assert judge.matcher(name).matches() == (ours.fullmatch(name) is not None), (text, name, ours.pattern)
