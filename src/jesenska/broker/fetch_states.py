"""The states of a fetch, and what leads from one to the next: one table.

    state           what a fetch does when it comes into it
    READING         reads what there is
    WARMING         lets go of what it has read; the pool brings into memory what finding the offsets takes
    WAITING         lets go of what it has read; stands in the waiting room
    ANSWERING       makes the answer
    READING_AHEAD   the pool reads the pages of records that are not in memory
    CONVERTING      the pool makes message sets of the batches (`down_conversion`), and reads ahead all others
    DONE            is answered
    GONE            lets go of what it has read; it is not answered

    state           what happens                             goes to
    READING         an offset could not be found             WARMING
                      without the disk
                    there are `min_bytes`, or it must be     ANSWERING
                      answered (a partition has an error,
                      or its segment ends: what follows is
                      in another one), or its time is up
                    there is less                            WAITING, where it keeps a place that it has, and the time
                                                             that is left
    WARMING         POOL_DONE                                READING, which waits for the disk after WARM_UPS_MAX of
                                                             them
                    POOL_FULL                                READING, which waits for the disk
                    CLIENT_GONE                              GONE
    WAITING         NEWS                                     READING
                    TIME_UP                                  READING, with no time left
                    STOP                                     READING, with no time left
                    CLIENT_GONE                              GONE
    ANSWERING       something is to be converted             CONVERTING
                    pages are not in memory                  READING_AHEAD
                    all is there                             DONE
    READING_AHEAD   POOL_DONE                                DONE
                    POOL_FULL                                DONE: sending waits for the disk
                    CLIENT_GONE                              GONE
    CONVERTING      POOL_DONE                                DONE
                    POOL_FULL                                GONE, and the connection is closed
                    CLIENT_GONE                              GONE

A fetch begins with READING. It never stays there, nor in ANSWERING: `after_read` and `after_answer` are their rows,
and the first row that holds counts. `HAPPENS` has the rows of events. Nothing leads out of DONE and GONE. When the
broker stops, a fetch that the pool works for is not told: its connection is closed, and then the client is gone.

A decider: `fetches` does what a state asks for.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

#: How often the pool may bring into memory what one fetch needs before the fetch waits for the disk.
WARM_UPS_MAX: Final = 3


class FetchState(IntEnum):
    """Numbers, as they are looked up for each fetch that waits, and a number is found soonest."""

    READING = auto()
    WARMING = auto()
    WAITING = auto()
    ANSWERING = auto()
    READING_AHEAD = auto()
    CONVERTING = auto()
    DONE = auto()
    GONE = auto()


class FetchEvent(IntEnum):
    """What a fetch waits for."""

    #: The pool has done its work.
    POOL_DONE = auto()
    #: The pool takes no work: too much waits for it.
    POOL_FULL = auto()
    #: Something happened to a partition, or to the session.
    NEWS = auto()
    #: It has waited as long as it may.
    TIME_UP = auto()
    #: The broker stops.
    STOP = auto()
    #: The connection is closed.
    CLIENT_GONE = auto()


READING: Final = FetchState.READING
WARMING: Final = FetchState.WARMING
WAITING: Final = FetchState.WAITING
ANSWERING: Final = FetchState.ANSWERING
READING_AHEAD: Final = FetchState.READING_AHEAD
CONVERTING: Final = FetchState.CONVERTING
DONE: Final = FetchState.DONE
GONE: Final = FetchState.GONE

POOL_DONE: Final = FetchEvent.POOL_DONE
POOL_FULL: Final = FetchEvent.POOL_FULL
NEWS: Final = FetchEvent.NEWS
TIME_UP: Final = FetchEvent.TIME_UP
STOP: Final = FetchEvent.STOP
CLIENT_GONE: Final = FetchEvent.CLIENT_GONE

#: Where each event leads to, out of the states in which a fetch waits for one.
HAPPENS: Final[dict[FetchState, dict[FetchEvent, FetchState]]] = {
    WARMING: {POOL_DONE: READING, POOL_FULL: READING, CLIENT_GONE: GONE},
    WAITING: {NEWS: READING, TIME_UP: READING, STOP: READING, CLIENT_GONE: GONE},
    READING_AHEAD: {POOL_DONE: DONE, POOL_FULL: DONE, CLIENT_GONE: GONE},
    CONVERTING: {POOL_DONE: DONE, POOL_FULL: GONE, CLIENT_GONE: GONE},
}


def after_read(is_cold: bool, found_bytes: int, min_bytes: int, must_end: bool, is_time_up: bool) -> FetchState:
    """Where a read leads to. `is_cold`: an offset could not be found without perhaps waiting for the disk. `must_end`:
    it is to be answered whatever else comes."""
    if is_cold:
        return WARMING
    if found_bytes >= min_bytes or must_end or is_time_up:
        return ANSWERING
    return WAITING


def after_answer(converts: bool, is_cold: bool) -> FetchState:
    """Where an answer that is made leads to. `is_cold`: some of its records are not in memory."""
    if converts:
        return CONVERTING
    if is_cold:
        return READING_AHEAD
    return DONE


def waits_for_disk(warm_ups: int, event: FetchEvent) -> bool:
    """Whether the read after so many warm-ups, of which the last ended with this event, finds its offsets even if that
    means to wait for the disk."""
    return event is POOL_FULL or warm_ups >= WARM_UPS_MAX
