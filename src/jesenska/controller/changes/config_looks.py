"""Reads changed settings of topics, brokers and clients from the metadata tree. Each change leaves a node under
/config/changes that names the entity whose settings changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jesenska.controller.changes.change_nodes import new_changes
from jesenska.controller.changes.change_state import ChangeState, Steps
from jesenska.controller.context import ConfigView
from jesenska.controller.effects import Children, Get, Read
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, decode_config, decode_config_change


class ConfigLooks:
    """Reads changed settings for one state machine, of entities of these kinds. `found` is called with an entity
    (`topics/<name>`, `brokers/<id>`, `users/<name>`, `users/<name>/clients/<name>`, …) and its changed settings; None
    means that its node is gone: Apache Kafka deletes the node of a user or client whose last setting is removed.
    `remember` is called with the path of each node under /config/changes."""

    def __init__(
        self,
        shared: ChangeState,
        found: Callable[[str, ConfigView | None], Steps],
        remember: Callable[[str], None],
        kinds: Sequence[str] = paths.ENTITY_KINDS,
    ) -> None:
        self._kinds = tuple(kinds)
        self._shared = shared
        self._context = shared.context
        self._found = found
        self._remember = remember
        self._last_change = -1

    def everything(self) -> Steps:
        """Reads the settings of all entities, in the metadata tree and known before."""
        kinds = yield Read(tuple(Children(f"{paths.CONFIG}/{kind}") for kind in self._kinds))
        entities = [f"{kind}/{name}" for kind, names in zip(self._kinds, kinds, strict=True) for name in names or ()]
        users = [entity for entity in entities if entity.startswith("users/")]
        clients = (yield Read(tuple(Children(f"{paths.CONFIG}/{user}/clients") for user in users))) if users else ()
        entities += [
            f"{user}/clients/{name}" for user, names in zip(users, clients, strict=True) for name in names or ()
        ]
        known = [entity for entity in self._context.configs if entity.partition("/")[0] in self._kinds]
        yield from self.entities(list(dict.fromkeys([*entities, *known])))

    def changes(self) -> Steps:
        """Reads the new nodes under /config/changes, and the settings that they name. Watches /config/changes from now
        on."""
        new, last = yield from new_changes(paths.CONFIG_CHANGES, self._last_change, self._remember)
        changed: dict[str, None] = {}
        for path, content in new:
            try:
                entity = decode_config_change(content)
            except NodeFormatError as error:
                self._shared.say("error", f"{path} is ignored: {error}")
                continue
            if entity.partition("/")[0] in self._kinds and paths.is_entity(entity):
                changed[entity] = None
        yield from self.entities(list(changed))
        self._last_change = last

    def entities(self, entities: Sequence[str]) -> Steps:
        """Reads the settings of these entities, and calls `found` for each entity whose settings have changed."""
        nodes = yield Read(tuple(Get(f"{paths.CONFIG}/{entity}") for entity in entities))
        for entity, node in zip(entities, nodes, strict=True):
            if node is None:
                if entity in self._context.configs:
                    yield from self._found(entity, None)
                continue
            try:
                found = config_in(node)
            except NodeFormatError as error:
                self._shared.say("error", f"/config/{entity} is ignored: {error}")
                continue
            if found != self._context.configs.get(entity):
                yield from self._found(entity, found)


def config_in(node: tuple[bytes, int]) -> ConfigView:
    """Returns the settings in a node, with its version. Raises NodeFormatError if the node cannot be decoded."""
    return ConfigView(decode_config(node[0]), node[1])
