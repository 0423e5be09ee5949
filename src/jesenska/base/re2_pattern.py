"""Matches a whole text with a pattern in RE2's syntax (`re2_syntax`). The time is proportional to the text for every
pattern: input from the network must not cost more than its length.

A pattern becomes a program of few kinds of steps, and a text is read once with the set of steps at which the match may
be. The set that follows a set and a character is remembered, so that most texts cost one look-up a character.

    (CHARACTERS, set)       a character of the set, then the next step
    (SPLIT, step, step)     either
    (ASSERTION, kind)       nothing is consumed: ^ $ \\A \\z \\b \\B, then the next step
    (MATCH,)                the end

As in RE2: without flags the dot is no newline, ^ and $ are the ends of the text, \\d \\s \\w \\b and [[:alpha:]]
are ASCII. Whether a repetition takes much or little makes no difference to a match of the whole.

Left out: names of scripts after \\p (Greek), since Python knows none; and programs of more than PROGRAM_MAX steps."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from jesenska.base.re2_syntax import is_re2

#: Steps of a program: what one character may cost at most.
PROGRAM_MAX: Final = 5000
#: Characters between two points at which a match may pause for other work.
_CHARACTERS_A_SLICE: Final = 64
_REMEMBERED_MAX: Final = 20_000
_HIGHEST: Final = 0x10FFFF

_REPEAT = re.compile(r"\{(\d+)(,?)(\d*)\}", re.ASCII)
_GROUP = re.compile(r"\?P?<\w+>", re.ASCII)
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_HEX = re.compile(r"[0-9a-fA-F]{2}|\{[0-9a-fA-F]{1,6}\}")
_LETTERS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}

Ranges = tuple[tuple[int, int], ...]
_DIGITS: Final[Ranges] = ((48, 57),)
_SPACES: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
_WORDS: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_PERL: Final = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_NAMED: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORDS,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
#: Characters beyond lower and upper case that are the same without case: the Kelvin and Angstrom signs, the long s.
_SAME: Final = {"k": "\u212a", "å": "\u212b", "s": "\u017f"}


class PatternError(ValueError):
    """A pattern that cannot be matched; one sentence."""


@dataclass(frozen=True, slots=True)
class _Set:
    """Characters: those in a range, of a Unicode category ((negated, its beginning), "" for any), or not in one of the
    sets `outside`. `negated` inverts the set; `folds` ignores case."""

    ranges: Ranges = ()
    categories: tuple[tuple[bool, str], ...] = ()
    outside: tuple[Ranges, ...] = ()
    negated: bool = False
    folds: bool = False

    def holds(self, character: str) -> bool:
        forms = _fold(character) if self.folds else {character}
        found = (
            any(_within(self.ranges, ord(form)) for form in forms)
            or any(not any(_within(ranges, ord(form)) for form in forms) for ranges in self.outside)
            or any(
                any(unicodedata.category(form).startswith(name) for form in forms) != negated
                for negated, name in self.categories
            )
        )
        return found != self.negated


def _within(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


def _fold(character: str) -> set[str]:
    found = {character}
    for one in (character.lower(), character.upper(), character.lower().upper(), character.upper().lower()):
        if len(one) == 1:
            found.add(one)
    for letter, sign in _SAME.items():
        if letter in found or sign in found:
            found |= {letter, letter.upper(), sign}
    return found


# --- tree ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a pattern. `size` is how many steps it takes."""

    kind: str
    size: int
    parts: tuple[_Node, ...] = ()
    characters: _Set | None = None
    assertion: str = ""
    low: int = 0
    high: int | None = None


_EMPTY: Final = _Node("all", 0)


def _all(parts: list[_Node]) -> _Node:
    return parts[0] if len(parts) == 1 else _Node("all", sum(part.size for part in parts), tuple(parts))


def _either(parts: list[_Node]) -> _Node:
    return parts[0] if len(parts) == 1 else _Node("either", sum(part.size + 2 for part in parts), tuple(parts))


def _repeated(part: _Node, low: int, high: int | None) -> _Node:
    copies = max(low, 1) if high is None else high
    size = (part.size + 2) * copies
    if size > PROGRAM_MAX:
        raise PatternError(f"The pattern takes more than {PROGRAM_MAX} steps: write fewer or smaller repetitions.")
    return _Node("repeated", size, (part,), low=low, high=high)


class _Level:
    """An open group: its alternatives, and the flags to come back to."""

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags
        self.alternatives: list[_Node] = []
        self.parts: list[_Node] = []

    def close(self) -> _Node:
        return _either([*self.alternatives, _all(self.parts)])


class _Parser:
    """Makes a tree of a valid pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._levels = [_Level(self._flags)]

    def parse(self) -> _Node:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            level = self._levels[-1]
            if self._repeat():
                continue
            self._at += 1
            if character == "(":
                self._open()
            elif character == ")":
                self._levels.pop()
                self._flags = level.flags
                self._levels[-1].parts.append(level.close())
            elif character == "|":
                level.alternatives.append(_all(level.parts))
                level.parts = []
            elif character == "[":
                self._add(self._set())
            elif character == ".":
                self._add(_Set(((0, _HIGHEST),)) if "s" in self._flags else _Set(((10, 10),), negated=True))
            elif character in "^$":
                within = "m" in self._flags
                self._assert(
                    ("line begins" if within else "begins") if character == "^" else ("line ends" if within else "ends")
                )
            elif character == "\\":
                self._escaped()
            else:
                self._literal(character)
        return self._levels[0].close()

    def _add(self, characters: _Set) -> None:
        self._levels[-1].parts.append(_Node("characters", 1, characters=characters))

    def _literal(self, character: str) -> None:
        self._add(_Set(((ord(character), ord(character)),), folds="i" in self._flags))

    def _assert(self, kind: str) -> None:
        self._levels[-1].parts.append(_Node("assertion", 1, assertion=kind))

    def _repeat(self) -> bool:
        character = self._text[self._at]
        low, high = 0, None
        if character in "*+?":
            low, high = int(character == "+"), 1 if character == "?" else None
            self._at += 1
        elif character == "{" and (found := _REPEAT.match(self._text, self._at)):
            low = int(found[1])
            high = (int(found[3]) if found[3] else None) if found[2] else low
            self._at = found.end()
        else:
            return False
        if self._text.startswith("?", self._at):
            self._at += 1
        parts = self._levels[-1].parts
        parts[-1] = _repeated(parts[-1], low, high)
        return True

    def _open(self) -> None:
        if named := _GROUP.match(self._text, self._at):
            self._at = named.end()
        elif flags := _FLAGS.match(self._text, self._at):
            self._at = flags.end()
            before = self._flags
            self._flags = (before | frozenset(flags[1])) - frozenset(flags[2] or "")
            if flags[3] == ":":
                self._levels.append(_Level(before))
            return
        self._levels.append(_Level(self._flags))

    def _escaped(self) -> None:
        character = self._text[self._at]
        if character == "Q":
            ends = self._text.find("\\E", self._at)
            literal = self._text[self._at + 1 : ends if ends >= 0 else None]
            self._at = ends + 2 if ends >= 0 else len(self._text)
            for one in literal:
                self._literal(one)
            return
        if character in "AzbB":
            self._at += 1
            self._assert({"A": "begins", "z": "ends", "b": "word edge", "B": "no word edge"}[character])
            return
        found = self._escape()
        if isinstance(found, str):
            self._literal(found)
        else:
            self._add(_Set(found.ranges, found.categories, found.outside, folds="i" in self._flags))

    def _escape(self) -> str | _Set:
        """The character or class after a backslash."""
        character = self._text[self._at]
        self._at += 1
        if character in _PERL:
            return _Set(_PERL[character])
        if character.lower() in _PERL:
            return _Set(outside=(_PERL[character.lower()],))
        if character in "pP":
            return self._unicode(character == "P")
        if character in _LETTERS:
            return chr(_LETTERS[character])
        if character == "x":
            found = _HEX.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            return chr(int(found[0].strip("{}"), 16))
        if character in "01234567":
            digits = character
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                digits += self._text[self._at]
                self._at += 1
            return chr(int(digits, 8))
        return character

    def _unicode(self, negated: bool) -> _Set:
        if self._text[self._at] == "{":
            ends = self._text.index("}", self._at)
            name = self._text[self._at + 1 : ends]
            self._at = ends + 1
        else:
            name = self._text[self._at]
            self._at += 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name == "Any":
            return _Set(categories=((negated, ""),))
        if len(name) > 2:
            raise PatternError(f"The script {name} is not known here: name characters in another way.")
        return _Set(categories=((negated, name),))

    def _set(self) -> _Set:
        negated = self._text.startswith("^", self._at)
        self._at += negated
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[bool, str]] = []
        outside: list[Ranges] = []

        def add(found: _Set) -> None:
            ranges.extend(found.ranges)
            categories.extend(found.categories)
            outside.extend(found.outside)

        first = True
        while first or self._text[self._at] != "]":
            first = False
            if posix := _POSIX.match(self._text, self._at):
                self._at = posix.end()
                add(_Set(outside=(_NAMED[posix[2]],)) if posix[1] else _Set(_NAMED[posix[2]]))
                continue
            low = self._member()
            if isinstance(low, _Set):
                add(low)
                continue
            high: str | _Set = low
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._member()
            assert isinstance(high, str)
            ranges.append((ord(low), ord(high)))
        self._at += 1
        return _Set(tuple(ranges), tuple(categories), tuple(outside), negated, "i" in self._flags)

    def _member(self) -> str | _Set:
        character = self._text[self._at]
        self._at += 1
        return self._escape() if character == "\\" else character


# --- program ---------------------------------------------------------------------------------------------------------

_CHARACTERS, _SPLIT, _ASSERTION, _MATCH = range(4)


class _Program:
    """The steps of a tree, each with the numbers of those that follow."""

    def __init__(self, tree: _Node) -> None:
        if tree.size > PROGRAM_MAX:
            raise PatternError(f"The pattern takes more than {PROGRAM_MAX} steps: make it shorter.")
        self.kinds: list[int] = []
        self.sets: list[_Set | str | None] = []
        self.following: list[tuple[int, ...]] = []
        end = self._step(_MATCH, None, ())
        self.start = self._build(tree, end)

    def _step(self, kind: int, what: _Set | str | None, following: tuple[int, ...]) -> int:
        self.kinds.append(kind)
        self.sets.append(what)
        self.following.append(following)
        return len(self.kinds) - 1

    def _build(self, tree: _Node, end: int) -> int:
        """The first step of a tree that goes on at `end`. Not recursive, since groups may be nested a thousand deep:
        parts to build wait on a stack, and each result is the step at which the next part goes on."""
        work: list[tuple[str, _Node | int, int]] = [("build", tree, 0)]
        ends = [end]
        while work:
            what, item, extra = work.pop()
            if what == "split":
                # The alternatives are on the stack; all go on at the same step, which is below them.
                assert isinstance(item, int)
                starts = ends[-item:]
                del ends[-item - 1 :]
                ends.append(self._step(_SPLIT, None, tuple(starts)))
            elif what == "option":
                # For an optional part: its start, above the step after it.
                start, following = ends.pop(), ends.pop()
                ends.append(self._step(_SPLIT, None, (start, following)))
            elif what == "loop":
                start = ends.pop()
                assert isinstance(item, int)
                self.following[item] = (start, *self.following[item])
                ends.append(item)
            elif what == "copy end":
                ends.append(ends[-1 - extra])
            elif what == "begin loop":
                following = ends.pop()
                ends.append(self._step(_SPLIT, None, (following,)))
                assert isinstance(item, _Node)
                work.append(("loop", ends[-1], 0))
                work.append(("build", item, 0))
            else:
                assert isinstance(item, _Node)
                self._expand(item, ends, work)
        (start,) = ends
        return start

    def _expand(self, node: _Node, ends: list[int], work: list[tuple[str, _Node | int, int]]) -> None:
        if node.kind == "characters":
            ends.append(self._step(_CHARACTERS, node.characters, (ends.pop(),)))
        elif node.kind == "assertion":
            ends.append(self._step(_ASSERTION, node.assertion, (ends.pop(),)))
        elif node.kind == "all":
            work += [("build", part, 0) for part in node.parts]  # the last one is built first
        elif node.kind == "either":
            work.append(("split", len(node.parts), 0))
            for number in range(len(node.parts) - 1, -1, -1):
                work.append(("build", node.parts[number], 0))
                work.append(("copy end", 0, number))
        else:
            (part,) = node.parts
            work += [("build", part, 0)] * node.low
            if node.high is None:
                work.append(("begin loop", part, 0))
            else:
                for _ in range(node.high - node.low):
                    work += [("option", 0, 0), ("build", part, 0), ("copy end", 0, 0)]


class Re2Pattern:
    """A pattern that texts are matched with. PatternError if RE2 refuses it, or it is not supported here."""

    def __init__(self, pattern: str) -> None:
        if not is_re2(pattern):
            raise PatternError("It is not a regular expression in RE2's syntax.")
        self._program = _Program(_Parser(pattern).parse())
        #: The next set of steps, by the current set, by the character before, and by the next character (None: the
        #: end).
        self._known: dict[tuple[frozenset[int], str, str | None], frozenset[int] | bool] = {}

    def matches(self, text: str) -> bool:
        """True if it matches the whole text."""
        work = self.matching(text)
        while True:
            try:
                next(work)
            except StopIteration as done:
                return bool(done.value)

    def matching(self, text: str) -> Generator[None, None, bool]:
        """The same in pieces: it gives the result when it ends, and stops now and then on its way."""
        at = frozenset({self._program.start})
        before = ""
        for number, character in enumerate(text, 1):
            key = at, before, character
            found = self._known.get(key)
            if found is None:
                found = self._remember(key, self._after(at, before, character))
            assert isinstance(found, frozenset)
            if not found:
                return False
            at, before = (
                found,
                "word" if _within(_WORDS, ord(character)) else "newline" if character == "\n" else "other",
            )
            if number % _CHARACTERS_A_SLICE == 0:
                yield
        end = at, before, None
        is_end = self._known.get(end)
        if is_end is None:
            is_end = self._remember(
                end, any(self._program.kinds[step] == _MATCH for step in self._reached(at, before, None))
            )
        return bool(is_end)

    def _remember(
        self, key: tuple[frozenset[int], str, str | None], found: frozenset[int] | bool
    ) -> frozenset[int] | bool:
        if len(self._known) >= _REMEMBERED_MAX:
            self._known.clear()
        self._known[key] = found
        return found

    def _after(self, at: frozenset[int], before: str, character: str) -> frozenset[int]:
        program = self._program
        found = set()
        for step in self._reached(at, before, character):
            what = program.sets[step]
            if program.kinds[step] == _CHARACTERS and isinstance(what, _Set) and what.holds(character):
                found.add(program.following[step][0])
        return frozenset(found)

    def _reached(self, at: frozenset[int], before: str, character: str | None) -> set[int]:
        """Every step reached without a character. `before` is the character before: "" at the beginning."""
        program = self._program
        seen, work = set(at), list(at)
        while work:
            step = work.pop()
            kind = program.kinds[step]
            if kind == _SPLIT or (kind == _ASSERTION and _is_so(str(program.sets[step]), before, character)):
                for following in program.following[step]:
                    if following not in seen:
                        seen.add(following)
                        work.append(following)
        return seen


def _is_so(assertion: str, before: str, character: str | None) -> bool:
    if assertion == "begins":
        return before == ""
    if assertion == "line begins":
        return before in ("", "newline")
    if assertion == "ends":
        return character is None
    if assertion == "line ends":
        return character in (None, "\n")
    is_edge = (before == "word") != (character is not None and _within(_WORDS, ord(character)))
    return is_edge == (assertion == "word edge")
