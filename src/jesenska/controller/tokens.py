"""The delegation tokens that one broker knows, and their changes. The broker that gets a client's request writes the
token to the metadata tree (ZooKeeper's nodes). It announces the change to every broker by a node under
/delegation_token/token_changes.

Every broker has a copy of all tokens (`security.delegation_tokens`), so that a client can log in at any broker. A
token that cannot be read is left out and logged. The controller removes expired tokens. This module does no input or
output: it gets events and returns effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from jesenska.base.errors import DelegationTokenNotFoundError
from jesenska.config.layers import BrokerConfig
from jesenska.controller.changes.change_machine import ChangeMachine, Work
from jesenska.controller.changes.change_nodes import delete_old, new_changes
from jesenska.controller.changes.change_state import Asking, ChangeState, Steps, write, write_plan
from jesenska.controller.context import ControllerContext
from jesenska.controller.effects import Children, Get, Read
from jesenska.controller.events import EVERYTHING, ChangeToken, CreateToken, ExpireTokens, Look, ReadTokens
from jesenska.controller.plans.config_changes import ChangeNodes
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.token_nodes import CHANGE_PREFIX, decode_token, encode_token, token_path
from jesenska.metadata.tree_operations import Create, Delete, Operation, SetData
from jesenska.security.delegation_tokens import DelegationToken, DelegationTokens

#: The maximum number of times that a change is planned before it fails.
_ATTEMPTS_MAX: Final = 10


class TokenChanges(ChangeMachine):
    """The state machine that reads and changes the delegation tokens that one broker knows. `tokens` has the current
    tokens."""

    def __init__(self, broker_id: int, tokens: DelegationTokens, config: BrokerConfig) -> None:
        self._shared = shared = ChangeState(broker_id, ControllerContext(), config)
        self._tokens = tokens
        self._last_change = -1
        self._change_nodes = ChangeNodes()
        super().__init__(
            shared,
            {
                ReadTokens: self._start,
                CreateToken: self._create,
                ChangeToken: self._change,
                ExpireTokens: self._expire,
                Look: self._look,
            },
        )

    def _error_for_client(self, event: Work, error: Exception) -> Exception:
        """Returns the error that the requester gets. A starting broker gets the unchanged error of the metadata tree,
        because it tries again while the tree cannot be reached."""
        return error if isinstance(event, ReadTokens) else super()._error_for_client(event, error)

    # --- the content of the tree -------------------------------------------------------------------------------------

    def _start(self, event: ReadTokens) -> Steps:
        yield from self._everything()
        self._shared.answer(event.token)

    def _look(self, event: Look) -> Steps:
        if event.at == EVERYTHING:
            yield from self._everything()
            return
        token_ids, last = yield from self._changed()
        yield from self._read(token_ids)
        self._last_change = last

    def _everything(self) -> Steps:
        """Reads all tokens. The nodes that announce changes are read first, so that a later change causes another
        read."""
        _, last = yield from self._changed()
        (names,) = yield Read((Children(paths.TOKENS),))
        known = {token.token_id for token in self._tokens.tokens()}
        yield from self._read([*(names or ()), *known.difference(names or ())])
        self._last_change = last

    def _changed(self) -> Asking:
        """Returns the ids of tokens that new change nodes name, and the number of the last node. Watches
        /delegation_token/token_changes from now on."""
        new, last = yield from new_changes(paths.TOKEN_CHANGES, self._last_change, self._remember)
        return list(dict.fromkeys(content.decode(errors="replace") for _, content in new)), last

    def _remember(self, path: str) -> None:
        """Stores the path of a change node, so that the node is deleted when it is old."""
        self._change_nodes.add(path, self._shared.now_ms)

    def _read(self, token_ids: Sequence[str]) -> Steps:
        """Reads the nodes of these tokens. A token without a node is removed."""
        usable = [token_id for token_id in token_ids if token_id and "/" not in token_id and "\0" not in token_id]
        nodes = yield Read(tuple(Get(token_path(token_id)) for token_id in usable))
        for token_id, node in zip(usable, nodes, strict=True):
            if node is None:
                self._tokens.remove(token_id)
                continue
            try:
                token = decode_token(node[0])
                if token.token_id != token_id:
                    raise NodeFormatError(f"the node is that of the token {token.token_id!a}")
            except NodeFormatError as error:
                self._shared.say("error", f"{token_path(token_id)} cannot be read: {error}; the token is not usable")
                self._tokens.remove(token_id)
            else:
                self._tokens.put(token)

    # --- what clients ask --------------------------------------------------------------------------------------------

    def _create(self, event: CreateToken) -> Steps:
        token = event.new
        node = Create(token_path(token.token_id), encode_token(token))
        self._remember((yield from write((node, _announcement(token.token_id))))[-1].path)
        self._tokens.put(token)
        self._shared.answer(event.token)
        yield from delete_old(self._shared, self._change_nodes, paths.TOKEN_CHANGES)

    def _change(self, event: ChangeToken) -> Steps:
        yield from self._set_expiry(event.token_id, event.expires_at_ms)
        self._shared.answer(event.token)
        yield from delete_old(self._shared, self._change_nodes, paths.TOKEN_CHANGES)

    def _expire(self, event: ExpireTokens) -> Steps:
        for token in [token for token in self._tokens.tokens() if token.has_expired(event.now_ms)]:
            try:
                yield from self._set_expiry(token.token_id, None)
            except DelegationTokenNotFoundError:
                continue  # another broker has removed the token
        yield from delete_old(self._shared, self._change_nodes, paths.TOKEN_CHANGES)

    def _set_expiry(self, token_id: str, expires_at_ms: int | None) -> Steps:
        """Writes the time at which a token expires. None removes the token. Raises DelegationTokenNotFoundError if the
        token has no node."""
        plan, results = yield from write_plan(
            (yield from _planned(token_id, expires_at_ms)), lambda _: _planned(token_id, expires_at_ms), _ATTEMPTS_MAX
        )
        self._remember(results[-1].path)
        if plan.after is None:
            self._tokens.remove(token_id)
        else:
            self._tokens.put(plan.after)


class _TokenPlan(NamedTuple):
    """The operations that change a token, and the token after these operations; None if the token is removed."""

    operations: tuple[Operation, ...]
    after: DelegationToken | None


def _planned(token_id: str, expires_at_ms: int | None) -> Asking:
    """Reads the node of a token, and plans the change of its expiry."""
    path = token_path(token_id)
    (node,) = yield Read((Get(path),))
    if node is None:
        raise DelegationTokenNotFoundError("Delegation Token is not found on server.")
    if expires_at_ms is None:
        return _TokenPlan((Delete(path, node[1]), _announcement(token_id)), None)
    after = decode_token(node[0])._replace(expires_at_ms=expires_at_ms)
    return _TokenPlan((SetData(path, encode_token(after), node[1]), _announcement(token_id)), after)


def _announcement(token_id: str) -> Operation:
    return Create(CHANGE_PREFIX, token_id.encode(), sequential=True)
