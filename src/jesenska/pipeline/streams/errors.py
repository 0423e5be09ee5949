"""The errors of the Streams API: one sentence with the cause and the remedy.

TopologyError          the program describes something that cannot be built; names the line of the program
StreamsError           something failed while records were processed
  SerializationError   a key or a value cannot be written, or bytes cannot be read, with the serde that is in use
  ProcessorFailedError a function of the program raised; its own exception is the cause (`__cause__`)
SettingError           a setting cannot be used
"""

from __future__ import annotations

from jesenska.base.errors import JesenskaError


class StreamsError(JesenskaError):
    """Processing cannot go on. `is_located`: the message names the line of the program already. `is_decided`: a
    handler has been asked."""

    is_located = False
    is_decided = False


class TopologyError(StreamsError):
    """The program describes a topology that cannot be built."""


class SerializationError(StreamsError):
    """A serde cannot write that value, or cannot read those bytes."""


class ProcessorFailedError(StreamsError):
    """A function of the user's program raised an exception, which is the cause of this one."""


class SettingError(StreamsError):
    """A setting is unknown, has a value that cannot be used, or has no meaning here."""
