"""The states of a fetch, and the transitions between them: one table.

    state           what a fetch does when it comes into it
    READING         reads what there is
    WARMING         releases what it has read; the pool loads what finding the offsets needs
    WAITING         releases what it has read; is in the waiting room
    ANSWERING       makes the answer
    READING_AHEAD   the pool reads the pages of records that are not in memory
    CONVERTING      the pool makes message sets of the batches (`down_conversion`), and reads the rest ahead
    DONE            is answered
    GONE            releases what it has read; it is not answered

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
and the first row that holds counts. `HAPPENS` has the rows of events. DONE and GONE are final. When the broker stops,
a fetch that the pool works for gets no event: its connection is closed, and then the client is gone.

A decider: `fetches` carries out the states.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

#: How often the pool may load data for one fetch before the fetch waits for the disk.
WARM_UPS_MAX: Final = 3


class FetchState(IntEnum):
    """The values are integers: they are looked up for each waiting fetch, and integers are fastest."""

    READING = auto()
    WARMING = auto()
    WAITING = auto()
    ANSWERING = auto()
    READING_AHEAD = auto()
    CONVERTING = auto()
    DONE = auto()
    GONE = auto()


class FetchEvent(IntEnum):
    """The events that a fetch waits for."""

    #: The pool has done its work.
    POOL_DONE = auto()
    #: The pool takes no work: its queue is full.
    POOL_FULL = auto()
    #: A partition or the session has changed.
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

#: The next state for each event, in the states in which a fetch waits.
HAPPENS: Final[dict[FetchState, dict[FetchEvent, FetchState]]] = {
    WARMING: {POOL_DONE: READING, POOL_FULL: READING, CLIENT_GONE: GONE},
    WAITING: {NEWS: READING, TIME_UP: READING, STOP: READING, CLIENT_GONE: GONE},
    READING_AHEAD: {POOL_DONE: DONE, POOL_FULL: DONE, CLIENT_GONE: GONE},
    CONVERTING: {POOL_DONE: DONE, POOL_FULL: GONE, CLIENT_GONE: GONE},
}


def after_read(is_cold: bool, found_bytes: int, min_bytes: int, must_end: bool, is_time_up: bool) -> FetchState:
    """The state after a read. `is_cold`: finding an offset could have waited for the disk. `must_end`: the fetch must
    be answered now."""
    if is_cold:
        return WARMING
    if found_bytes >= min_bytes or must_end or is_time_up:
        return ANSWERING
    return WAITING


def after_answer(converts: bool, is_cold: bool) -> FetchState:
    """The state after the answer is made. `is_cold`: some of its records are not in memory."""
    if converts:
        return CONVERTING
    if is_cold:
        return READING_AHEAD
    return DONE


def waits_for_disk(warm_ups: int, event: FetchEvent) -> bool:
    """True if the next read may wait for the disk: after so many warm-ups, of which the last ended with this event."""
    return event is POOL_FULL or warm_ups >= WARM_UPS_MAX
