"""Proposes a plain number when a user has written an amount with a unit (1h, 10MB), where Kafka takes a plain number.
The proposal is a part of the error message."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"(\d{1,12})\s*([a-z]+)", re.IGNORECASE)
_MS = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "days": 86_400_000,
}
_BYTES = {
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "gib": 1 << 30,
}
#: The unit of a setting by the end of its name, its name in messages, and the factors of the units that users write
#: instead.
_UNITS = ((".ms", "milliseconds", _MS), (".bytes", "bytes", _BYTES))


def meant(name: str, text: str) -> str:
    """Returns a hint for an error message: the plain number to write instead of `text`, such as 1h. Returns an empty
    text if the unit is not known."""
    written = _WRITTEN.fullmatch(text.strip())
    for suffix, unit, factors in _UNITS:
        if written is not None and name.endswith(suffix) and (factor := factors.get(written[2].lower())) is not None:
            return f" ({name} is a number of {unit}: write {int(written[1]) * factor})"
    return ""
