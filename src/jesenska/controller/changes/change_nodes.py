"""Change nodes: sequential nodes under /config/changes, /kafka-acl-changes, /kafka-acl-extended-changes and
/delegation_token/token_changes that announce a change to every broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jesenska.controller.changes.change_state import Asking, ChangeState, Steps, write
from jesenska.controller.effects import Children, Get, Read
from jesenska.controller.plans.config_changes import ChangeNodes
from jesenska.metadata.tree_operations import MultiError, NoNodeError, TreeError

#: The maximum number of old change nodes that are deleted in one transaction of the metadata tree.
_OLD_AT_ONCE: Final = 1000
#: The tree adds a number of this many digits to the name of a sequential node.
_DIGITS: Final = 10


def node_number(name: str) -> int:
    """Returns the number at the end of a sequential node's name; -1 for any other name."""
    digits = name[-_DIGITS:]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def new_changes(directory: str, last: int, remember: Callable[[str], None]) -> Asking:
    """Returns the change nodes under `directory` whose number is above `last`, oldest first, and the number of the
    newest node (`last` if there is no new node). A change node is its path and its content. Nodes that have been
    deleted meanwhile are left out. `remember` is called with the path of each new node. Watches `directory` from now
    on."""
    (names,) = yield Read((Children(directory, directory),))
    if names is None:
        raise NoNodeError(directory)
    new = sorted((number, name) for name in names if (number := node_number(name)) > last)
    at = [f"{directory}/{name}" for _, name in new]
    nodes = yield Read(tuple(map(Get, at)))
    for path in at:
        remember(path)
    found = [(path, node[0]) for path, node in zip(at, nodes, strict=True) if node is not None]
    return found, new[-1][0] if new else last


def delete_old(shared: ChangeState, nodes: ChangeNodes, directory: str) -> Steps:
    """Deletes the change nodes that are old enough. If the deletion fails, logs a warning that names `directory`."""
    old = nodes.due(shared.now_ms)
    for start in range(0, len(old), _OLD_AT_ONCE):
        try:
            yield from write(old[start : start + _OLD_AT_ONCE])
        except (MultiError, TreeError) as error:
            shared.say("warning", f"old nodes under {directory} could not be deleted: {error}; they do no harm")
