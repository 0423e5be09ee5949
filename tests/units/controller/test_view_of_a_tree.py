"""The view of a tree in this process has the settings of all entities."""

from __future__ import annotations

from jesenska.controller.context import view_of
from jesenska.metadata import paths
from jesenska.metadata.nodes import encode_config, encode_config_change
from jesenska.metadata.tree_operations import Create
from tests.units.metadata.test_tree import do, tree_with_session

_ENTITIES = (
    "topics/t",
    "brokers/1",
    "brokers/<default>",
    "users/anna",
    "users/anna/clients/app",
    "users/<default>/clients/<default>",
    "clients/app",
    "ips/10.0.0.1",
)


def test_settings_of_every_kind_are_in_the_view() -> None:
    tree = tree_with_session()
    made = set()

    def make(path: str, data: bytes) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in made:
            make(parent, b"")
        made.add(path)
        do(tree, Create(path, data))

    for entity in _ENTITIES:
        make(f"{paths.CONFIG}/{entity}", encode_config({"name": entity}))
    make(f"{paths.CONFIG_CHANGES}/config_change_0000000001", encode_config_change("users/anna"))
    found = {entity: view.settings for entity, view in view_of(tree).configs.items()}
    assert found == {entity: {"name": entity} for entity in _ENTITIES} | {"users/<default>": {}}
