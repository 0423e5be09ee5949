"""Reads and changes the ACLs of a broker in the metadata tree (ZooKeeper's nodes), for the state machine
`controller.acls`."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.broker.effects_runtime import EffectsRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.controller.acls import AclChanges
from jesenska.controller.effects import Answer, Effect
from jesenska.controller.events import CreateAcls, DeleteAcls, ReadAcls
from jesenska.metadata.store import Store
from jesenska.security.acls import AclBinding, AclFilter, Acls


class AclsRuntime(EffectsRuntime):
    """Runs the state machine of one broker's ACLs. `acls` has the current ACLs."""

    def __init__(self, core: SharedParts, store: Store, acls: Acls, change_max_bytes: int | None) -> None:
        super().__init__(core, store, AclChanges(core.broker_id, acls, core.config), change_max_bytes)
        self.acls = acls

    async def read(self) -> None:
        """Reads all ACLs. Raises TreeError if the metadata tree cannot be reached, NodeFormatError if an ACL cannot be
        read."""
        await self.ask(ReadAcls)

    async def create(self, bindings: Sequence[AclBinding]) -> list[Exception | None]:
        """Adds ACLs. Returns an error for each ACL, or None if it was added."""
        found: list[Exception | None] = await self.ask(lambda token: CreateAcls(token, tuple(bindings)))
        return found

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[tuple[AclBinding, Exception | None]]]:
        """Deletes the ACLs that match the filters. Returns, for each filter, the ACLs that matched it, each with an
        error or with None if it was deleted."""
        found: list[list[tuple[AclBinding, Exception | None]]] = await self.ask(
            lambda token: DeleteAcls(token, tuple(filters))
        )
        return found

    def _do(self, effect: Effect) -> None:
        assert isinstance(effect, Answer)
        self._answer(effect)
