"""Patterns of topic names, with the meaning of Java's regular expressions. The option subscribePattern and all tools
that take patterns of topics use this module.

A pattern must match the whole name. It is translated to a regular expression of Python. The constructs that are
translated, and their replacement:

    Java                          here
    \\Q...\\E                       the text between, taken literally
    (?<name>...)  \\k<name>        (?P<name>...)  (?P=name)
    (?i) in the middle            a group from there to the end of the enclosing one
    \\p{Alpha} \\p{L} \\P{Digit} ...  the characters of topic names that belong to it
    [a-z&&[^bc]] [a[bc]]          the characters of topic names that belong to it: a name has only 65 different ones,
                                  so a class is a set of them
    \\d \\w \\s \\h \\v \\R            ASCII, as in Java without its flag for Unicode
    \\z \\Z \\A \\G                    ends and beginnings of a name
    {,n} and lone { or *          errors, as in Java; but `*` alone means all topics and a comma outside of braces and
                                  brackets `|`, as in Kafka's own lists of topics (mirror maker, TopicFilter)
"""

from __future__ import annotations

import re
import string

from jesenska.base.errors import JesenskaError
from jesenska.base.limits import TOPIC_PATTERN_MAX_CHARS

_LETTERS = string.ascii_letters + string.digits + "._-"
_NAMED_SETS = {
    "lower": string.ascii_lowercase,
    "ll": string.ascii_lowercase,
    "islowercase": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "lu": string.ascii_uppercase,
    "isuppercase": string.ascii_uppercase,
    "alpha": string.ascii_letters,
    "l": string.ascii_letters,
    "isl": string.ascii_letters,
    "isalphabetic": string.ascii_letters,
    "isletter": string.ascii_letters,
    "islatin": string.ascii_letters,
    "digit": string.digits,
    "n": string.digits,
    "nd": string.digits,
    "isdigit": string.digits,
    "alnum": string.ascii_letters + string.digits,
    "punct": "._-",
    "p": "._-",
    "ispunctuation": "._-",
    "pd": "-",
    "pc": "_",
    "po": ".",
    "xdigit": string.hexdigits,
    "ascii": _LETTERS,
    "graph": _LETTERS,
    "print": _LETTERS,
    "blank": "",
    "cntrl": "",
    "space": "",
    "z": "",
    "s": "",
    "m": "",
    "c": "",
}
_SHORT_SETS = {"d": string.digits, "w": string.ascii_letters + string.digits + "_", "s": "", "h": "", "v": ""}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?(\)|:)")
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_BACK_REFERENCE = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")


def topic_pattern(text: str) -> re.Pattern[str]:
    """Returns a compiled pattern; use its `fullmatch` on a topic's name. Raises JesenskaError for a pattern that Java
    would refuse."""
    if len(text) > TOPIC_PATTERN_MAX_CHARS:
        raise JesenskaError(f"The pattern of topics has {len(text)} characters, more than {TOPIC_PATTERN_MAX_CHARS}.")
    if text.strip() == "*":
        return re.compile("(?s:.*)")
    try:
        return re.compile(_Translator(text).translate(), re.ASCII)
    except (re.error, _NotAPattern, RecursionError, OverflowError) as error:
        raise JesenskaError(f"{text!r} is not a regular expression for names of topics: {error}.") from None


class _NotAPattern(Exception):
    pass


class _Translator:
    """Translates one pattern from Java's syntax to Python's in one pass. For each open group, `_open` contains the
    groups that inline flags such as (?i) opened inside it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []
        self._open: list[list[str]] = [[]]
        self._ignores_case = [False]  # for each open group: a negated class leaves out both cases of a letter then

    def translate(self) -> str:
        while self._at < len(self._text):
            self._one()
        if len(self._open) > 1:
            raise _NotAPattern("a group is not closed")
        self._out.append(")" * len(self._open[0]))
        return "".join(self._out)

    def _one(self) -> None:
        text, at = self._text, self._at
        character = text[at]
        if character == "\\":
            self._escape()
        elif character == "[":
            self._out.append(_class_of(self._character_class()))
        elif character == "(":
            self._group()
        elif character == ")":
            if len(self._open) == 1:
                raise _NotAPattern("a group is closed that was not opened")
            self._out.append(")" * (len(self._open.pop()) + 1))
            self._ignores_case.pop()
            self._at += 1
        elif character in "|,":
            # An inline flag applies up to the end of the enclosing group. So the next alternative begins with the
            # flags of the previous alternative.
            flags = self._open[-1]
            self._out.append(")" * len(flags) + "|" + "".join(flags))
            self._at += 1
        elif character == "{":
            repeat = _REPEAT.match(text, at)
            if repeat is None:
                raise _NotAPattern("a brace has no count")
            self._out.append(repeat[0])
            self._at = repeat.end()
        else:
            self._out.append(
                character if character in ".*+?^$" or character.isalnum() or character == "_" else re.escape(character)
            )
            self._at += 1

    def _group(self) -> None:
        text, at = self._text, self._at
        flags = _FLAGS.match(text, at)
        named = _NAMED_GROUP.match(text, at)
        if flags is not None:
            on = "".join(flag for flag in flags[1] if flag in "ims")
            off = "".join(flag for flag in flags[2] or "" if flag in "ims")
            if set(flags[1] + (flags[2] or "")) - set("imsduxU"):
                raise _NotAPattern(f"{flags[0]} has a flag that does not exist")
            if "x" in flags[1]:
                raise _NotAPattern("the flag x (comments) is not taken")
            opening = f"(?{on}{'-' + off if off else ''}:"
            self._out.append(opening)
            ignores_case = "i" in on or (self._ignores_case[-1] and "i" not in off)
            if flags[3] == ")":
                self._open[-1].append(opening)
                self._ignores_case[-1] = ignores_case
            else:
                self._begin_group(ignores_case)
            self._at = flags.end()
        elif named is not None:
            self._out.append(f"(?P<{named[1]}>")
            self._begin_group(self._ignores_case[-1])
            self._at = named.end()
        else:
            opening = next((item for item in ("(?<=", "(?<!", "(?=", "(?!", "(?>") if text.startswith(item, at)), "(")
            if opening == "(" and text.startswith("(?", at):
                raise _NotAPattern(f"{text[at : at + 3]} opens no kind of group")
            self._out.append(opening)
            self._begin_group(self._ignores_case[-1])
            self._at += len(opening)

    def _begin_group(self, ignores_case: bool) -> None:
        self._open.append([])
        self._ignores_case.append(ignores_case)

    def _escape(self) -> None:
        text = self._text
        reference = _BACK_REFERENCE.match(text, self._at)
        if reference is not None:
            self._out.append(f"(?P={reference[1]})")
            self._at = reference.end()
            return
        if text.startswith("\\Q", self._at):
            end = text.find("\\E", self._at + 2)
            literal = text[self._at + 2 : end if end >= 0 else len(text)]
            self._out.append(re.escape(literal))
            self._at = len(text) if end < 0 else end + 2
            return
        following = text[self._at + 1 : self._at + 2]
        if following in ("b", "B", "A"):
            self._out.append("\\" + following)
        elif following in ("z", "Z"):
            self._out.append("\\Z")
        elif following == "G":
            self._out.append("\\A")
        elif following == "R":
            self._out.append("(?:\\r\\n|[\\n\\r\\f\\v])")
        elif following.isdigit() and following != "0":
            self._out.append("(?:\\" + following + ")")
        else:
            self._out.append(_class_of(self._escaped_set()))
            return
        self._at += 2

    def _escaped_set(self) -> frozenset[str]:
        """Returns the set of characters that an escape sequence stands for, inside or outside of a character class."""
        text = self._text
        following = text[self._at + 1 : self._at + 2]
        if not following:
            raise _NotAPattern("it ends with a lone backslash")
        self._at += 2
        if following in "pP":
            if text.startswith("{", self._at):
                end = text.find("}", self._at)
                if end < 0:
                    raise _NotAPattern(f"\\{following}{{ is not closed")
                name, self._at = text[self._at + 1 : end], end + 1
            else:
                name, self._at = text[self._at : self._at + 1], self._at + 1
            name = re.sub(r"(?i)^(general_category|gc|script|sc)=", "", name).removeprefix("java").lower()
            found = _NAMED_SETS.get(name, _NAMED_SETS.get(name.removeprefix("is")))
            if found is None:
                raise _NotAPattern(f"\\p{{{name}}} is not a known class")
            return self._everything_but(found) if following == "P" else frozenset(found)
        if following.lower() in _SHORT_SETS:
            found = _SHORT_SETS[following.lower()]
            return self._everything_but(found) if following.isupper() else frozenset(found)
        if following in "xu":
            digits = re.compile(r"[0-9a-fA-F]{2}" if following == "x" else r"[0-9a-fA-F]{4}").match(text, self._at)
            if digits is None:
                raise _NotAPattern(f"\\{following} needs hexadecimal digits")
            self._at = digits.end()
            return frozenset(chr(int(digits[0], 16)))
        if following in _CONTROLS:
            return frozenset(_CONTROLS[following])
        if following.isalnum():
            raise _NotAPattern(f"\\{following} means nothing")
        return frozenset(following)

    # --- character classes: each is the set of characters of topic names that it contains ----------------------------

    def _character_class(self) -> frozenset[str]:
        self._at += 1
        negated = self._text.startswith("^", self._at)
        if negated:
            self._at += 1
        found: frozenset[str] | None = None  # the set left of the last &&
        part: frozenset[str] = frozenset()
        first = True
        while True:
            if self._at >= len(self._text):
                raise _NotAPattern("a class is not closed")
            if self._text.startswith("]", self._at) and not first:
                self._at += 1
                break
            if self._text.startswith("&&", self._at):
                self._at += 2
                found = part if found is None else found & part
                part = frozenset()
            elif self._text.startswith("[", self._at):
                part |= self._character_class()
            else:
                part |= self._range()
            first = False
        if found is not None:
            part = found & part
        return self._everything_but(part) if negated else part

    def _range(self) -> frozenset[str]:
        low = self._member()
        if (
            len(low) == 1
            and self._text.startswith("-", self._at)
            and self._text[self._at + 1 : self._at + 2] not in ("", "]", "[")
        ):
            self._at += 1
            high = self._member()
            begin, end = ord(next(iter(low))), ord(next(iter(high)) if len(high) == 1 else "\0")
            if end < begin:
                raise _NotAPattern("a range in a class runs backwards")
            return frozenset(letter for letter in _LETTERS if begin <= ord(letter) <= end)
        return low

    def _member(self) -> frozenset[str]:
        if self._text[self._at] == "\\":
            if self._text.startswith("\\Q", self._at):
                end = self._text.find("\\E", self._at)
                literal = self._text[self._at + 2 : end if end >= 0 else len(self._text)]
                self._at = len(self._text) if end < 0 else end + 2
                return frozenset(literal)
            return self._escaped_set()
        self._at += 1
        return frozenset(self._text[self._at - 1])

    def _everything_but(self, letters: frozenset[str] | str) -> frozenset[str]:
        left_out = frozenset(letters)
        if self._ignores_case[-1]:
            left_out |= {letter.swapcase() for letter in left_out}
        return frozenset(_LETTERS) - left_out


def _class_of(letters: frozenset[str]) -> str:
    """Returns a character class in Python's notation that matches these characters."""
    return "[" + "".join(re.escape(letter) for letter in sorted(letters)) + "]" if letters else "(?!)"
