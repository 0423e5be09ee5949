"""Matches a whole text with a regular expression in RE2's syntax, by the library RE2 (google-re2). The time is
proportional to the length of the text for every pattern, so that a pattern from the network cannot block the broker.

Apache Kafka uses RE2/J, a translation of RE2 to Java. A few patterns that RE2/J accepts are refused by google-re2:
nested repetitions of more than 1000 in all, and a backslash before a letter beyond ASCII. google-re2 allows a pattern
to use the same group name twice."""

from __future__ import annotations

from typing import Any, Final

import re2

#: The limit on the size of a compiled pattern, in steps of RE2's program. It bounds the cost of matching one
#: character.
PROGRAM_MAX: Final = 5000
#: The memory limit that RE2 has for a pattern and its cached states.
_MEMORY_BYTES: Final = 1 << 20


class PatternError(ValueError):
    """A pattern that cannot be compiled. The message is one sentence."""


class Re2Pattern:
    """A compiled pattern. Raises PatternError if the pattern is not valid, or if its compiled program has more than
    PROGRAM_MAX steps."""

    def __init__(self, pattern: str) -> None:
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY_BYTES
        try:
            self._compiled: Any = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise PatternError("It is not a regular expression in RE2's syntax.") from error
        # \C matches one byte, which may be a part of a character. Kafka refuses it.
        if r"\C" in pattern.replace(r"\\", ""):
            raise PatternError("It is not a regular expression in RE2's syntax.")
        if self._compiled.programsize > PROGRAM_MAX:
            raise PatternError(f"It takes more than {PROGRAM_MAX} steps: write a shorter pattern.")

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None
