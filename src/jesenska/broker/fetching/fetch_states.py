"""The states of a fetch, and the transitions between the states.

    state           what the fetch does in the state
    READING         reads the available records
    WARMING         releases what it has read; the thread pool loads the data that is needed to look up offsets
    WAITING         releases what it has read; waits in the waiting room (`broker.waiting`)
    ANSWERING       makes the answer
    READING_AHEAD   the thread pool reads pages of records that are not in memory
    CONVERTING      the thread pool converts batches to message sets (`down_conversion`), and reads pages of other
                    records
    DONE            the answer is sent
    GONE            releases what it has read; it is not answered

    state           what happens                             goes to
    READING         an offset could not be looked up         WARMING
                      without the disk
                    there are `min_bytes`, or the fetch      ANSWERING
                      must be answered (a partition has an
                      error, or its segment ends, so that
                      the next records are in another
                      file), or its time is up
                    there are fewer bytes                    WAITING; a fetch that has waited before only waits for the
                                                             time that is left
    WARMING         POOL_DONE                                READING, which waits for the disk after WARM_UPS_MAX
                                                             warm-ups
                    POOL_FULL                                READING, which waits for the disk
                    CLIENT_GONE                              GONE
    WAITING         NEWS                                     READING
                    TIME_UP                                  READING, with no time left
                    STOP                                     READING, with no time left
                    CLIENT_GONE                              GONE
    ANSWERING       records must be converted                CONVERTING
                    pages are not in memory                  READING_AHEAD
                    all pages are in memory                  DONE
    READING_AHEAD   POOL_DONE                                DONE
                    POOL_FULL                                DONE: sending waits for the disk
                    CLIENT_GONE                              GONE
    CONVERTING      POOL_DONE                                DONE
                    POOL_FULL                                GONE, and the connection is closed
                    CLIENT_GONE                              GONE

A fetch begins with READING. It never waits in READING or ANSWERING: `after_read` and `after_answer` return the next
state, by the first row of the table that applies. `HAPPENS` contains the transitions of the other states, by event.
DONE and GONE are final. When the broker stops, a fetch whose work is in the thread pool gets no event; its connection
is closed, which ends the fetch.

This module only computes the next state: `fetches` does the work of each state."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

#: The maximum number of times that the thread pool loads data for one fetch. After that the event loop itself waits
#: for the disk.
WARM_UPS_MAX: Final = 3


class FetchState(IntEnum):
    """The states of a fetch. They are integers, because they are looked up for each waiting fetch, and integers are
    fastest."""

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

    #: The thread pool has done the work of this fetch.
    POOL_DONE = auto()
    #: The thread pool accepts no work, because its queue is full.
    POOL_FULL = auto()
    #: A watched partition or the session has changed.
    NEWS = auto()
    #: The fetch has waited as long as it may.
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

#: The next state after each event, for the states in which a fetch waits.
HAPPENS: Final[dict[FetchState, dict[FetchEvent, FetchState]]] = {
    WARMING: {POOL_DONE: READING, POOL_FULL: READING, CLIENT_GONE: GONE},
    WAITING: {NEWS: READING, TIME_UP: READING, STOP: READING, CLIENT_GONE: GONE},
    READING_AHEAD: {POOL_DONE: DONE, POOL_FULL: DONE, CLIENT_GONE: GONE},
    CONVERTING: {POOL_DONE: DONE, POOL_FULL: GONE, CLIENT_GONE: GONE},
}


def after_read(is_cold: bool, found_bytes: int, min_bytes: int, must_end: bool, is_time_up: bool) -> FetchState:
    """Returns the state after a read. `is_cold`: an offset was not looked up, because the look-up could have waited
    for the disk. `must_end`: the fetch must be answered now."""
    if is_cold:
        return WARMING
    if found_bytes >= min_bytes or must_end or is_time_up:
        return ANSWERING
    return WAITING


def after_answer(converts: bool, is_cold: bool) -> FetchState:
    """Returns the state after the answer is made. `converts`: records must be converted. `is_cold`: some records of
    the answer are not in memory."""
    if converts:
        return CONVERTING
    if is_cold:
        return READING_AHEAD
    return DONE


def waits_for_disk(warm_ups: int, event: FetchEvent) -> bool:
    """Returns True if the next read may wait for the disk. `warm_ups` is how often the thread pool has loaded data for
    this fetch, and `event` ended the last attempt."""
    return event is POOL_FULL or warm_ups >= WARM_UPS_MAX
