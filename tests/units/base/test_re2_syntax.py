"""RE2's syntax. The expected results are those of Apache Kafka 4.3.1 (ListTransactions version 2)."""

from __future__ import annotations

import time

import pytest

from jesenska.base.re2_syntax import is_re2

_TAKEN = r"""
a* a*? a?? (a*)* | a| (a|) () (?:) (?i) (?i:) (?-i) (?s-i:a) (?U)a (?P<n>a) (?<n>a) (?P<1n>a) ^* $+ \b+ \z+ . \. \- \/ \" \_ \ä x{ x{a} {} { } ] a] a{2} a{2,}
a{,2} a{,} a{0} a{01} a{1,1000} a{1 a{1, a{-1} a{1}{ (a{1000}){1000} (a{2}){501} \d\D\s\S\w\W \a\f\n\r\t\v \A\b\B\z \0 \07 \12 \07777 \x41 \x{41} \x{10FFFF}
\pL \pN1 \PZ \p{N} \p{Nd} \P{Lu} \p{^L} \p{Any} \p{Greek} \p{Old_Italic} \Qa( \Qabc\E* []a] []-a] [^]a] [-a] [a-] [a-b-c] [--/] [[a]] [\d-z] [a\pN] [\x41-\x42]
[[:alpha:]] [[:^alpha:]] [[:alpha:]-z] [:alpha:] \z(?s){2}
"""  # noqa: E501
_REFUSED = r"""
* + ? {2} a|* (*) (?i)* a** a++ a{2}{2} a*{2} a{1}* a??? a+?+ a{2,1} a{1001} a{1000,1001} a{99999999999} a{1000}{1} {{2,} ( ) a( (? (?i (?: (?= (?=a) (?<=a)
(?>a) (?P=a) (?P<>x) (?P<n>a)(?<n>b) (?P<ä>a) (?#a) (?x)a (?i-) (?i-s-m:a) \ a\ \1 \8 \1a \Z \C \h \N \y \e \E \G \cA \u0041 \x4 \x{} \x{110000} \Q\E* \p \p{
\p{} \pX \p{lu} \p{Nope} \p{IsGreek} [ [] [^] [a- [a\ [a\] [b-a] [\1] [\b] [\Q] [\x42-\x41] [a-\d] [a-[:digit:]] [[:nix:]] [[:alpha:
"""  # noqa: E501


@pytest.mark.parametrize("pattern", [*_TAKEN.split(), "", "(" * 900 + ")" * 900, "(?-i)a{ 1}"])
def test_what_re2_takes_is_taken(pattern: str) -> None:
    assert is_re2(pattern)


@pytest.mark.parametrize("pattern", _REFUSED.split())
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    assert not is_re2(pattern)


@pytest.mark.parametrize("piece", ["(", "a", "[:", "[[:", "\\Q", "{9", "[a]", "\\p{", "a{9", "(?P<a", "(?i", "9"])
def test_a_long_pattern_costs_one_pass(piece: str) -> None:
    pattern = ("a{" if piece == "9" else "") + piece * (32_000 // len(piece))
    begun = time.process_time()
    is_re2(pattern)
    assert time.process_time() - begun < 1.0
