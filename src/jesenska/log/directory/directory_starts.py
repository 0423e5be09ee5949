"""The file `jesenska-starts` of a log directory: the id of the directory, and the ids of the broker's last starts with
it, the newest first.

    {"version":0,"directory":"9tbXHgBvRzO0K-63RUy5HQ","starts":["LdCsVtfpSTuHs4aBJ2QvhA","kZ0nG4cYQ9qz8yPT5JvYbw"]}

The metadata tree of a cluster also records the last start with each directory (`metadata.nodes.BrokerStarts`). If a
directory's file does not have that start, the directory is an older disk of the broker, or an old copy
(`replication.older_directories`). The file is always replaced as a whole."""

from __future__ import annotations

import json
from typing import Final, NamedTuple
from uuid import UUID

from jesenska.base.identifiers import uuid_from_text, uuid_to_text

FILE_NAME: Final = "jesenska-starts"
_VERSION: Final = 0
#: Number of start ids in the file. This many starts in a row may fail before the metadata tree records a start.
_STARTS_MAX: Final = 20


class DirectoryStarts(NamedTuple):
    """The id of a log directory, and the ids of the broker's last starts with it, the newest first."""

    directory_id: UUID
    starts: tuple[UUID, ...] = ()

    def then(self, start: UUID) -> DirectoryStarts:
        """Returns a copy of this value with `start` as the newest start."""
        return DirectoryStarts(self.directory_id, (start, *self.starts)[:_STARTS_MAX])


def encode_directory_starts(found: DirectoryStarts) -> bytes:
    """Returns the content of the file `jesenska-starts`."""
    starts = [uuid_to_text(start) for start in found.starts]
    return json.dumps(
        {"version": _VERSION, "directory": uuid_to_text(found.directory_id), "starts": starts}, separators=(",", ":")
    ).encode()


def decode_directory_starts(data: bytes) -> DirectoryStarts:
    """Returns the decoded content of the file `jesenska-starts`. Raises ValueError if the content cannot be
    decoded."""
    try:
        value = json.loads(data)
        if value["version"] != _VERSION or not isinstance(value["starts"], list):
            raise ValueError("its version is not known, or it has no list of starts")
        return DirectoryStarts(
            uuid_from_text(str(value["directory"])),
            tuple(uuid_from_text(str(text)) for text in value["starts"][:_STARTS_MAX]),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
