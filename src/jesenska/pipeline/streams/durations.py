"""Converts durations, which the API accepts as a number of milliseconds or as a timedelta."""

from __future__ import annotations

from datetime import timedelta

from jesenska.pipeline.streams.locations import refused

Duration = int | timedelta

_MS = timedelta(milliseconds=1)


def milliseconds(what: str, duration: Duration, lowest: int = 0) -> int:
    """Returns the duration in milliseconds. Raises TopologyError if it is not a duration, or shorter than `lowest` ms.
    `what` names the duration in the error."""
    if isinstance(duration, timedelta):
        ms = duration // _MS
    elif isinstance(duration, int) and not isinstance(duration, bool):
        ms = duration
    else:
        raise refused(
            f"{what} is {duration!r}, which is not a length of time: give milliseconds as an int, or a timedelta."
        )
    if ms < lowest:
        raise refused(f"{what} is {ms} ms: give at least {lowest} ms.")
    return ms
