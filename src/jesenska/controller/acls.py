"""The ACLs that one broker knows, and their changes. Clients change ACLs through any broker. The broker writes the
change to the metadata tree (ZooKeeper's nodes), and announces it to every broker by a node under /kafka-acl-changes or
/kafka-acl-extended-changes.

Every broker has a copy of all ACLs, and checks requests with its copy (`security.acls`). A change is written only if
the ACL's node still has the version that was read. If another broker was faster, the change is planned again. If an
ACL cannot be read at the start, the start fails. If an ACL cannot be read later, or the tree cannot be reached, the
broker keeps the ACLs that it knows. This module does no input or output: it gets events and returns effects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from jesenska.base.errors import InvalidRequestError
from jesenska.config.layers import BrokerConfig
from jesenska.controller.changes.change_machine import ChangeMachine, Work
from jesenska.controller.changes.change_nodes import delete_old, new_changes
from jesenska.controller.changes.change_state import Asking, ChangeState, Steps, write_plan
from jesenska.controller.context import ControllerContext
from jesenska.controller.effects import Children, Get, Read, Write
from jesenska.controller.events import EVERYTHING, CreateAcls, DeleteAcls, Look, ReadAcls
from jesenska.controller.plans.config_changes import ChangeNodes
from jesenska.metadata import paths
from jesenska.metadata.acl_nodes import (
    acl_path,
    can_be_named,
    change_prefix,
    decode_acl_change,
    decode_acls,
    encode_acl_change,
    encode_acls,
)
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.tree_operations import (
    Create,
    Delete,
    Operation,
    SetData,
)
from jesenska.security.acls import AclBinding, Acls, Entries, PatternType, ResourcePattern, ResourceType

#: The maximum number of times that a change is planned before it fails.
_ATTEMPTS_MAX: Final = 10
#: The parent nodes of the nodes that announce changes. The value is True for changes of ACLs with prefixed patterns.
_CHANGES: Final = {paths.ACL_CHANGES: False, paths.PREFIXED_ACL_CHANGES: True}
_TYPES: Final = tuple(kind for kind in ResourceType if kind.label in paths.ACL_TYPES)
_STORES: Final = ((paths.ACLS, PatternType.LITERAL), (paths.PREFIXED_ACLS, PatternType.PREFIXED))


class AclChanges(ChangeMachine):
    """The state machine that reads and changes the ACLs that one broker knows. `acls` has the current ACLs."""

    def __init__(self, broker_id: int, acls: Acls, config: BrokerConfig) -> None:
        self._shared = shared = ChangeState(broker_id, ControllerContext(), config)
        self._acls = acls
        self._last_change = dict.fromkeys(_CHANGES, -1)
        self._change_nodes = ChangeNodes()
        super().__init__(
            shared, {ReadAcls: self._start, CreateAcls: self._create, DeleteAcls: self._delete, Look: self._look}
        )

    def _error_for_client(self, event: Work, error: Exception) -> Exception:
        """Returns the error that the requester gets. A starting broker gets the unchanged error of the metadata tree,
        because it tries again while the tree cannot be reached."""
        return error if isinstance(event, ReadAcls) else super()._error_for_client(event, error)

    # --- reading ACLs from the tree ----------------------------------------------------------------------------------

    def _start(self, event: ReadAcls) -> Steps:
        yield from self._everything()
        self._shared.answer(event.token)

    def _look(self, event: Look) -> Steps:
        if event.at == EVERYTHING:
            yield from self._everything()
        else:
            yield from self._changes_at(event.at)

    def _changes_at(self, directory: str) -> Steps:
        """Reads the ACLs that new change nodes under `directory` name."""
        patterns, last = yield from self._changed(directory)
        yield from self._read(patterns)
        self._last_change[directory] = last

    def _everything(self) -> Steps:
        """Reads all ACLs. The nodes that announce changes are read first, so that a later change causes another
        read."""
        last = {}
        for directory in _CHANGES:
            _, last[directory] = yield from self._changed(directory)
        places = [(root, kind, pattern_type) for root, pattern_type in _STORES for kind in _TYPES]
        found = yield Read(tuple(Children(f"{root}/{kind.label}") for root, kind, _ in places))
        patterns = [
            ResourcePattern(kind, name, pattern_type)
            for (_, kind, pattern_type), names in zip(places, found, strict=True)
            for name in names or ()
        ]
        known = set(patterns)
        for gone in [pattern for pattern in self._acls.patterns() if pattern not in known]:
            self._acls.put(gone, ())
        yield from self._read(patterns)
        self._last_change.update(last)

    def _changed(self, directory: str) -> Asking:
        """Returns the resource patterns that new change nodes under `directory` name, and the number of the last node.
        Watches `directory` from now on."""
        new, last = yield from new_changes(directory, self._last_change[directory], self._remember)
        patterns: dict[ResourcePattern, None] = {}
        for path, content in new:
            try:
                patterns[decode_acl_change(content, is_prefixed=_CHANGES[directory])] = None
            except NodeFormatError as error:
                self._shared.say("error", f"{path} is ignored: {error}")
        return list(patterns), last

    def _remember(self, path: str) -> None:
        """Stores the path of a change node, so that the node is deleted when it is old."""
        self._change_nodes.add(path, self._shared.now_ms)

    def _read(self, patterns: Sequence[ResourcePattern]) -> Steps:
        """Reads the ACLs of these patterns. If the ACLs of a pattern cannot be decoded, reads all other patterns, then
        raises NodeFormatError."""
        nodes = yield Read(tuple(Get(acl_path(pattern)) for pattern in patterns))
        failure: NodeFormatError | None = None
        for pattern, node in zip(patterns, nodes, strict=True):
            try:
                self._acls.put(pattern, () if node is None else decode_acls(node[0]))
            except NodeFormatError as error:
                failure = NodeFormatError(f"{acl_path(pattern)} cannot be read: {error}")
        if failure is not None:
            raise failure

    # --- requests of clients -----------------------------------------------------------------------------------------

    def _create(self, event: CreateAcls) -> Steps:
        errors: dict[ResourcePattern, Exception | None] = {}
        for pattern, bindings in _by_pattern(event.bindings).items():
            added = frozenset(binding.entry for binding in bindings)
            try:
                yield from self._change(pattern, added.union)
                errors[pattern] = None
            except Exception as error:
                errors[pattern] = self._for_clients(error)
        self._shared.answer(event.token, [errors[binding.pattern] for binding in event.bindings])
        yield from delete_old(self._shared, self._change_nodes, paths.ACL_CHANGES)

    def _delete(self, event: DeleteAcls) -> Steps:
        # An ACL that another broker has just added must be found.
        for directory in _CHANGES:
            with suppress(NodeFormatError):  # One damaged node must not keep other ACLs from being deleted.
                yield from self._changes_at(directory)
        chosen: dict[AclBinding, int] = {}
        for number, wanted in enumerate(event.filters):
            for binding in self._acls.bindings(wanted):
                chosen.setdefault(binding, number)
        results: list[list[tuple[AclBinding, Exception | None]]] = [[] for _ in event.filters]
        for pattern, bindings in _by_pattern(chosen).items():
            removed = frozenset(binding.entry for binding in bindings)
            failure: Exception | None = None
            try:
                yield from self._change(pattern, lambda entries, removed=removed: entries - removed)  # type: ignore[misc]
            except Exception as error:
                failure = self._for_clients(error)
            for binding in bindings:
                results[chosen[binding]].append((binding, failure))
        self._shared.answer(event.token, results)
        yield from delete_old(self._shared, self._change_nodes, paths.ACL_CHANGES)

    def _change(self, pattern: ResourcePattern, edit: Callable[[Entries], Entries]) -> Steps:
        """Writes the changed ACLs of a pattern, and a node that announces the change. Writes nothing if `edit` changes
        nothing."""
        if not can_be_named(pattern):
            raise InvalidRequestError(f"ACL binding contains invalid resource name: {pattern.name}")
        plan, results = yield from write_plan(
            (yield from _planned(pattern, edit)), lambda _: _planned(pattern, edit), _ATTEMPTS_MAX
        )
        if results:
            self._remember(results[-1].path)
        self._acls.put(pattern, plan.entries)


class _AclPlan(NamedTuple):
    """The new ACLs of a pattern, and the operations that write them. There are no operations if nothing changes."""

    operations: tuple[Operation, ...]
    entries: Entries


def _planned(pattern: ResourcePattern, edit: Callable[[Entries], Entries]) -> Generator[Read | Write, Any, _AclPlan]:
    """Reads a pattern's ACLs, and plans their change."""
    path = acl_path(pattern)
    (node,) = yield Read((Get(path),))
    before = frozenset() if node is None else decode_acls(node[0])
    after = edit(before)
    if after == before:
        return _AclPlan((), after)
    tell = Create(change_prefix(pattern), encode_acl_change(pattern), sequential=True)
    return _AclPlan((_written(path, node, after), tell), after)


def _written(path: str, node: tuple[bytes, int] | None, entries: Entries) -> Operation:
    """Returns the operation that writes these ACLs to the node of a pattern."""
    if node is None:
        return Create(path, encode_acls(entries))
    return SetData(path, encode_acls(entries), node[1]) if entries else Delete(path, node[1])


def _by_pattern(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, list[AclBinding]]:
    found: dict[ResourcePattern, list[AclBinding]] = {}
    for binding in bindings:
        found.setdefault(binding.pattern, []).append(binding)
    return found
