"""Matches of whole texts by patterns in RE2's syntax. The expected results are those of Apache Kafka 4.3.1
(ListTransactions version 2), and of RE2 itself where Kafka's ids cannot show it."""

from __future__ import annotations

import pytest

from jesenska.base.re2_pattern import PatternError, Re2Pattern

_TEXTS = ["", "a", "b", "ab", "AB", "a.b", "aXb", "ab-1", "a1", "1a", "(", "\n", "a\nb", "é", "K\u212a", "x" * 200]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a|b", ["a", "b"]),
        ("|a|b", ["", "a", "b"]),
        ("(?:a|ab)(b|)", ["a", "ab"]),
        ("a.*", ["a", "ab", "a.b", "aXb", "ab-1", "a1"]),
        ("a.b", ["a.b", "aXb"]),
        ("(?s)a.b", ["a.b", "aXb", "a\nb"]),
        (".", ["a", "b", "(", "é"]),
        ("[^a]", ["b", "(", "\n", "é"]),
        ("[]a-]", ["a"]),
        ("(?i)ab", ["ab", "AB"]),
        ("(?i:A)b", ["ab"]),
        ("(?i)k+", ["K\u212a"]),
        (r"\d\w|\w\d", ["a1", "1a"]),
        (r"\D+", ["a", "b", "ab", "AB", "a.b", "aXb", "(", "\n", "a\nb", "é", "K\u212a", "x" * 200]),
        (r"\w+\b-\b1", ["ab-1"]),
        (r"a\Bb", ["ab"]),
        (r"^a$", ["a"]),
        (r"\Aa\nb\z", ["a\nb"]),
        (r"(?m)a$\n^b", ["a\nb"]),
        ("a$\n^b", []),
        ("x{200}", ["x" * 200]),
        ("x{199,}", ["x" * 200]),
        ("x{0,199}", [""]),
        ("(ab?){0,2}", ["", "a", "ab"]),
        ("(x+x+)+", ["x" * 200]),
        (r"\pL+", ["a", "b", "ab", "AB", "aXb", "é", "K\u212a", "x" * 200]),
        (r"\p{Lu}+", ["AB", "K\u212a"]),
        (r"\P{L}|\p{^L}", ["(", "\n"]),
        ("[[:alpha:]]+", ["a", "b", "ab", "AB", "aXb", "x" * 200]),
        ("[[:^alpha:]]", ["(", "\n", "é"]),
        (r"\x41\102", ["AB"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Q(", ["("]),
        ("(?P<n>a)b", ["ab"]),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, matched: list[str]) -> None:
    found = Re2Pattern(pattern)
    for _ in range(2):  # the second time uses remembered results
        assert [text for text in _TEXTS if found.matches(text)] == matched


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("[", "not a regular expression in RE2's syntax"),
        ("a(?=b)", "not a regular expression in RE2's syntax"),
        (r"\p{Greek}", "The script Greek is not known here"),
        ("(a{1000}){1000}", "takes more than 5000 steps"),
        ("ab" * 3000, "takes more than 5000 steps"),
    ],
)
def test_what_cannot_be_matched_is_refused(pattern: str, sentence: str) -> None:
    with pytest.raises(PatternError, match=sentence):
        Re2Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("(x+x+)+y", 700),
        ("(x*)*y", 700),
        ("(x|x)*y", 700),
        ("(x?){40}x{40}y", 80),
        ("(" * 900 + "x*" + ")" * 900 + "y", 700),
    ],
)
def test_a_text_costs_one_pass_whatever_the_pattern(pattern: str, most: int) -> None:
    """A backtracking matcher takes years for these."""
    found = Re2Pattern(pattern)
    assert not found.matches("x" * 5000)
    assert found.matches("x" * most + "y")


def test_a_long_match_lets_others_in_between() -> None:
    assert sum(1 for _ in Re2Pattern("x*").matching("x" * 6400)) == 100
