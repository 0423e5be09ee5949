"""Change nodes: sequential nodes under /config/changes, /kafka-acl-changes and /kafka-acl-extended-changes that
announce a change to every broker."""

from __future__ import annotations

from typing import Final

from jesenska.controller.changes.change_state import ChangeState, Steps, write
from jesenska.controller.plans.config_changes import ChangeNodes
from jesenska.metadata.tree_operations import MultiError, TreeError

#: The maximum number of old change nodes that are deleted in one transaction of the metadata tree.
_OLD_AT_ONCE: Final = 1000
#: The tree adds a number of this many digits to the name of a sequential node.
_DIGITS: Final = 10


def node_number(name: str) -> int:
    """Returns the number at the end of a sequential node's name; -1 for any other name."""
    digits = name[-_DIGITS:]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def delete_old(shared: ChangeState, nodes: ChangeNodes, directory: str) -> Steps:
    """Deletes the change nodes that are old enough. If the deletion fails, logs a warning that names `directory`."""
    old = nodes.due(shared.now_ms)
    for start in range(0, len(old), _OLD_AT_ONCE):
        try:
            yield from write(old[start : start + _OLD_AT_ONCE])
        except (MultiError, TreeError) as error:
            shared.say("warning", f"old nodes under {directory} could not be deleted: {error}; they do no harm")
