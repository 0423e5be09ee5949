"""How much the tests do. The environment variable JESENSKA_TESTS names one of three profiles:

    quick        a part of what CI does, for a change that is being worked on
    ci           what CI does; this is the default
    everything   several times that, where more of it finds more: an hour with all tests

A test with Hypothesis that has no settings of its own tries as many examples as its profile says. One that needs more
or fewer says a factor: `@settings(max_examples=examples(times=1.5))`. Other tests say a number for each profile with
`rounds`, or something else that the profile chooses with `chosen`. JESENSKA_TIMES=10 makes all these numbers ten
times as large: a night's run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

QUICK, CI, EVERYTHING = "quick", "ci", "everything"
#: How many examples each profile has Hypothesis try.
EXAMPLES: Mapping[str, int] = {QUICK: 40, CI: 100, EVERYTHING: 400}
#: The variable that names the profile.
PROFILE = "JESENSKA_TESTS"
_TIMES = "JESENSKA_TIMES"

_Chosen = TypeVar("_Chosen")


def profile() -> str:
    """The name of the profile that was asked for. A name that is none raises ValueError."""
    name = os.environ.get(PROFILE) or CI
    if name not in EXAMPLES:
        raise ValueError(
            f"{PROFILE} is {name!r}, which is no profile of the tests: set it to {QUICK}, {CI} or {EVERYTHING}."
        )
    return name


def chosen(*, quick: _Chosen, ci: _Chosen, everything: _Chosen) -> _Chosen:
    """The argument that is named like the profile."""
    return {QUICK: quick, CI: ci, EVERYTHING: everything}[profile()]


def rounds(*, quick: int, ci: int, everything: int) -> int:
    """How often a test does what it repeats: crashes, seeds, frames, logs."""
    return chosen(quick=quick, ci=ci, everything=everything) * _times()


def examples(times: float = 1.0) -> int:
    """How many examples Hypothesis tries: `times` as many as the profile has, at least one."""
    return max(1, round(EXAMPLES[profile()] * times * _times()))


def _times() -> int:
    said = os.environ.get(_TIMES) or "1"
    if not said.isdecimal() or int(said) < 1:
        raise ValueError(f"{_TIMES} is {said!r}: set it to a whole number from 1 on.")
    return int(said)
