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
    assert [text for text in _TEXTS if found.matches(text)] == matched


_TAKEN = r"""
a* a*? a?? (a*)* | a| (a|) () (?:) (?i) (?i:) (?-i) (?s-i:a) (?U)a (?P<n>a) (?<n>a) (?P<1n>a) ^* $+ \b+ \z+ . \. \- \/ \" \_ x{ x{a} {} { } ] a] a{2} a{2,}
a{,2} a{,} a{0} a{01} a{1,1000} a{1 a{1, a{-1} a{1}{ \d\D\s\S\w\W \a\f\n\r\t\v \A\b\B\z \0 \07 \12 \07777 \x41 \x{41} \x{10FFFF} \\C
\pL \pN1 \PZ \p{N} \p{Nd} \P{Lu} \p{^L} \p{Any} \p{Greek} \p{Old_Italic} \Qa( \Qabc\E* []a] []-a] [^]a] [-a] [a-] [a-b-c] [--/] [[a]] [\d-z] [a\pN] [\x41-\x42]
[[:alpha:]] [[:^alpha:]] [[:alpha:]-z] [:alpha:] \z(?s){2}
"""  # noqa: E501
_REFUSED = r"""
* + ? {2} a|* (*) (?i)* a** a++ a{2}{2} a*{2} a{1}* a??? a+?+ a{2,1} a{1001} a{1000,1001} a{1000}{1} ( ) a( (? (?i (?: (?= (?=a) (?<=a)
(?>a) (?P=a) (?P<>x) (?#a) (?x)a (?i-) (?i-s-m:a) \ a\ \1 \8 \1a \Z \C a\\\C \h \N \y \e \E \G \cA \u0041 \x4 \x{} \x{110000} \Q\E* \p \p{
\p{} \pX \p{lu} \p{Nope} \p{IsGreek} [ [] [^] [a- [a\ [a\] [b-a] [\1] [\b] [\Q] [\x42-\x41] [a-\d] [a-[:digit:]] [[:nix:]] [[:alpha:
"""  # noqa: E501


@pytest.mark.parametrize("pattern", [*_TAKEN.split(), "", "(" * 900 + ")" * 900, "(?-i)a{ 1}"])
def test_a_valid_pattern_is_taken(pattern: str) -> None:
    Re2Pattern(pattern)


@pytest.mark.parametrize("pattern", [*_REFUSED.split(), "\ud800"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="not a regular expression in RE2's syntax"):
        Re2Pattern(pattern)


def test_a_pattern_of_too_many_steps_is_refused() -> None:
    with pytest.raises(PatternError, match="takes more than 5000 steps"):
        Re2Pattern("ab" * 3000)


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
