"""The progress of the work on a transactional id between two records: one table. Progress is not written: after a
crash it begins again from the state of the last record (`states`).

    progress   means
    IDLE       nothing is on its way: a request gets the step of its row in `states`
    WRITING    a record is on its way into the log
    DECIDED    the end is decided, and its markers are to be sent: at once, or at a tick
    MARKING    the markers are on their way; the partitions in `Transaction.awaited` lack theirs

    progress   event               goes to
    IDLE       RECORD_SENT         WRITING
               DECISION_LOADED     DECIDED
    WRITING    RECORD_WRITTEN      IDLE
               RECORD_FAILED       IDLE
               DECISION_WRITTEN    DECIDED
               COMPLETION_FAILED   DECIDED
    DECIDED    MARKERS_SENT        MARKING
               RECORD_SENT         WRITING: no partition needs a marker
    MARKING    RECORD_SENT         WRITING: every partition has its marker

Nothing else changes the progress. `PROGRESS_HAPPENS` has these rows and those of events that do not change it. While
there is any work on an id, each request for it is answered CONCURRENT_TRANSACTIONS, and time does nothing to it. So
there is one record at a time on its way, and a decision is carried out before anything else.

`Transaction.take` changes the progress.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final

from jesenska.base.errors import ErrorCode


class Progress(IntEnum):
    """The progress values. They are integers and names of this module, because they are looked up for each request."""

    IDLE = auto()
    WRITING = auto()
    DECIDED = auto()
    MARKING = auto()


class ProgressEvent(IntEnum):
    """The events in the work on an id."""

    #: A client sends a request about the id.
    REQUEST = auto()
    #: Time-outs and expiry are checked.
    TIMES_CHECKED = auto()
    #: A record is sent to the log.
    RECORD_SENT = auto()
    #: The record is in the log. It has no decision.
    RECORD_WRITTEN = auto()
    #: The record is in the log. It has the decision on the end.
    DECISION_WRITTEN = auto()
    #: The record is not in the log. No decision was there before it.
    RECORD_FAILED = auto()
    #: The record that says that the end is complete is not in the log. It is written again.
    COMPLETION_FAILED = auto()
    #: The log is read, and the id's last record has a decision.
    DECISION_LOADED = auto()
    #: The pause before a decision is carried out is over.
    RESUME_DUE = auto()
    MARKERS_SENT = auto()
    #: Partitions have their markers.
    MARKED = auto()


class ProgressStep(Enum):
    """The step for an event that does not change the progress."""

    #: The event takes effect.
    GO_ON = auto()
    #: The event has no effect.
    IGNORE = auto()
    CANNOT_HAPPEN = auto()


IDLE: Final = Progress.IDLE
WRITING: Final = Progress.WRITING
DECIDED: Final = Progress.DECIDED
MARKING: Final = Progress.MARKING

REQUEST: Final = ProgressEvent.REQUEST
TIMES_CHECKED: Final = ProgressEvent.TIMES_CHECKED
RECORD_SENT: Final = ProgressEvent.RECORD_SENT
RECORD_WRITTEN: Final = ProgressEvent.RECORD_WRITTEN
DECISION_WRITTEN: Final = ProgressEvent.DECISION_WRITTEN
RECORD_FAILED: Final = ProgressEvent.RECORD_FAILED
COMPLETION_FAILED: Final = ProgressEvent.COMPLETION_FAILED
DECISION_LOADED: Final = ProgressEvent.DECISION_LOADED
RESUME_DUE: Final = ProgressEvent.RESUME_DUE
MARKERS_SENT: Final = ProgressEvent.MARKERS_SENT
MARKED: Final = ProgressEvent.MARKED

GO_ON: Final = ProgressStep.GO_ON
IGNORE: Final = ProgressStep.IGNORE
CANNOT_HAPPEN: Final = ProgressStep.CANNOT_HAPPEN
_CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS

#: For each event and progress: the progress that it goes to, the step if it stays, or the error that is answered.
PROGRESS_HAPPENS: Final[dict[ProgressEvent, dict[Progress, Progress | ProgressStep | ErrorCode]]] = {
    REQUEST: {IDLE: GO_ON, WRITING: _CONCURRENT, DECIDED: _CONCURRENT, MARKING: _CONCURRENT},
    TIMES_CHECKED: {IDLE: GO_ON, WRITING: IGNORE, DECIDED: IGNORE, MARKING: IGNORE},
    RECORD_SENT: {IDLE: WRITING, WRITING: CANNOT_HAPPEN, DECIDED: WRITING, MARKING: WRITING},
    RECORD_WRITTEN: {IDLE: CANNOT_HAPPEN, WRITING: IDLE, DECIDED: CANNOT_HAPPEN, MARKING: CANNOT_HAPPEN},
    DECISION_WRITTEN: {IDLE: CANNOT_HAPPEN, WRITING: DECIDED, DECIDED: CANNOT_HAPPEN, MARKING: CANNOT_HAPPEN},
    RECORD_FAILED: {IDLE: CANNOT_HAPPEN, WRITING: IDLE, DECIDED: CANNOT_HAPPEN, MARKING: CANNOT_HAPPEN},
    COMPLETION_FAILED: {IDLE: CANNOT_HAPPEN, WRITING: DECIDED, DECIDED: CANNOT_HAPPEN, MARKING: CANNOT_HAPPEN},
    DECISION_LOADED: {IDLE: DECIDED, WRITING: CANNOT_HAPPEN, DECIDED: CANNOT_HAPPEN, MARKING: CANNOT_HAPPEN},
    RESUME_DUE: {IDLE: CANNOT_HAPPEN, WRITING: CANNOT_HAPPEN, DECIDED: GO_ON, MARKING: CANNOT_HAPPEN},
    MARKERS_SENT: {IDLE: CANNOT_HAPPEN, WRITING: CANNOT_HAPPEN, DECIDED: MARKING, MARKING: CANNOT_HAPPEN},
    # Outside of MARKING they were sent before a crash, or for an end that was complete already.
    MARKED: {IDLE: IGNORE, WRITING: IGNORE, DECIDED: IGNORE, MARKING: GO_ON},
}
