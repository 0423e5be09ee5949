"""Matches a whole text with a pattern in RE2's syntax, by the library RE2 (google-re2). The time is proportional to
the text for every pattern: input from the network must not cost more than its length.

Apache Kafka uses RE2/J, a translation of the library. A few patterns differ: the library refuses repetitions of
repetitions beyond 1000 in all and a backslash before a letter beyond ASCII, and takes a group's name twice."""

from __future__ import annotations

from typing import Any, Final

import re2

#: Steps of a program: what one character may cost at most.
PROGRAM_MAX: Final = 5000
#: RE2's memory for a pattern and its remembered states.
_MEMORY_BYTES: Final = 1 << 20


class PatternError(ValueError):
    """A pattern that cannot be matched; one sentence."""


class Re2Pattern:
    """A compiled pattern. PatternError if it is not valid, or is larger than PROGRAM_MAX steps."""

    def __init__(self, pattern: str) -> None:
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY_BYTES
        try:
            self._compiled: Any = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise PatternError("It is not a regular expression in RE2's syntax.") from error
        # \C is one byte, which may be a part of a character: Kafka refuses it.
        if r"\C" in pattern.replace(r"\\", ""):
            raise PatternError("It is not a regular expression in RE2's syntax.")
        if self._compiled.programsize > PROGRAM_MAX:
            raise PatternError(f"It takes more than {PROGRAM_MAX} steps: write a shorter one.")

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None
