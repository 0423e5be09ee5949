"""The progress of the work on a transactional id between two records. Progress is not stored: after a crash the work
begins again from the state in the last record (`states`).

  progress   meaning
  IDLE       no work: the table in `states` has the step for a request
  WRITING    a record is being written to the log
  DECIDED    the end is decided, and its markers must be sent: at once, or at a tick
  MARKING    the markers are being sent; the partitions in `Transaction.awaited` do not have their markers yet

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

No other event changes the progress. `PROGRESS_HAPPENS` contains these rows, and the rows of events that do not change
the progress. While there is work on an id, each request for the id is answered CONCURRENT_TRANSACTIONS, and timeouts
are ignored. So at most one record of an id is being written, and a decision is carried out before anything else.
`Transaction.take` changes the progress."""

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
    """The events in the work on a transactional id."""

    #: A client sends a request about the id.
    REQUEST = auto()
    #: Timeouts and expiry are checked.
    TIMES_CHECKED = auto()
    #: A record is sent to the log.
    RECORD_SENT = auto()
    #: The record is in the log. It contains no decision.
    RECORD_WRITTEN = auto()
    #: The record is in the log. It contains the decision to commit or to abort.
    DECISION_WRITTEN = auto()
    #: The record could not be written. The id's transaction has no decision (commit or abort).
    RECORD_FAILED = auto()
    #: The record CompleteCommit or CompleteAbort could not be written. The write is repeated.
    COMPLETION_FAILED = auto()
    #: The log has been read, and the id's last record contains a decision.
    DECISION_LOADED = auto()
    #: The pause before a decision is carried out has passed.
    RESUME_DUE = auto()
    MARKERS_SENT = auto()
    #: Partitions have their markers.
    MARKED = auto()


class ProgressStep(Enum):
    """The steps: the results of events that do not change the progress."""

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

#: For each event and progress: the next progress; the step if the progress is unchanged; or the error that is
#: answered.
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
    # If the progress is not MARKING, the markers were sent before a crash, or for a transaction that is already
    # complete.
    MARKED: {IDLE: IGNORE, WRITING: IGNORE, DECIDED: IGNORE, MARKING: GO_ON},
}
