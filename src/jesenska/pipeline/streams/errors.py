"""The errors of the Streams API. Each message is one sentence with the cause and the remedy.

TopologyError          the program describes a topology that cannot be built; the message names the line
StreamsError           something failed while records were processed
  SerializationError   a key or a value cannot be written, or bytes cannot be read, with the serde that is in use
  ProcessorFailedError a function of the program raised an exception, which is the cause (`__cause__`) of this error
SettingError           a setting cannot be used
"""

from __future__ import annotations

from jesenska.base.errors import JesenskaError


class StreamsError(JesenskaError):
    """The error that is raised when processing cannot continue. `is_located` is True if the message already names the
    line of the program. `is_decided` is True if an exception handler has already decided about the error."""

    is_located = False
    is_decided = False


class TopologyError(StreamsError):
    """The error that is raised when the program describes a topology that cannot be built."""


class SerializationError(StreamsError):
    """The error that is raised when a serde cannot serialize a value or deserialize bytes."""


class ProcessorFailedError(StreamsError):
    """The error that is raised when a function of the user's program raised an exception. That exception is its
    `__cause__`."""


class SettingError(StreamsError):
    """The error that is raised when a setting is unknown, has an invalid value, or has no effect here."""
