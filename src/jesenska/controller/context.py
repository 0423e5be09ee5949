"""The controller's copy of the cluster's state in the metadata tree (ZooKeeper's nodes): topics, brokers and settings,
as plain data.

The copy is built from the tree at the start: by `view_of` from a tree in this process, by `reading.load` through a
store. It is then updated by the controller's own changes, and by reads after a watch fires. The copy has the version
of each node: a plan writes a node only if the node still has this version."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from jesenska.base.identifiers import TopicPartition
from jesenska.config.safety import EVERY_DIRECTORY
from jesenska.controller.plans.assignment import BrokerPlace
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    BrokerRegistration,
    PartitionStateNode,
    TopicNode,
    decode_config,
    decode_controller_epoch,
)
from jesenska.metadata.tree import Tree


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's state, and the version of its node."""

    state: PartitionStateNode
    version: int = 0


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic: its node, the states of its partitions (a state may be missing for a moment), and a flag that it is
    being deleted."""

    name: str
    node: TopicNode
    version: int = 0
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)
    deleting: bool = False

    @property
    def topic_id(self) -> uuid.UUID | None:
        return self.node.topic_id


@dataclass(frozen=True, slots=True)
class ConfigView:
    """The settings in a node below /config, and the node's version."""

    settings: Mapping[str, str]
    version: int = 0


@dataclass(slots=True)
class ControllerContext:
    """The controller's copy of the cluster's state. `brokers` are the registered brokers, `stopping` the brokers that
    are about to stop. `offline` are replicas whose log directory has failed on a registered broker. `configs` are the
    dynamic settings, by `<type>/<name>`."""

    topics: dict[str, TopicView] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)
    stopping: set[int] = field(default_factory=set)
    offline: dict[TopicPartition, set[int]] = field(default_factory=dict)
    configs: dict[str, ConfigView] = field(default_factory=dict)
    controller_epoch: int = 0
    controller_epoch_version: int | None = None

    def places(self) -> list[BrokerPlace]:
        """Returns the brokers that can get new replicas, with their racks. A broker whose log directories are all
        cordoned (KIP-1066) gets none."""
        return [
            BrokerPlace(broker_id, node.rack)
            for broker_id, node in sorted(self.brokers.items())
            if self.broker_settings(broker_id).get("cordoned.log.dirs") != EVERY_DIRECTORY
        ]

    def live(self, topic: str, number: int) -> Collection[int]:
        """Returns the registered brokers, except brokers whose replica of the partition is offline."""
        offline = self.offline.get(TopicPartition(topic, number)) if self.offline else None
        return self.brokers.keys() - offline if offline else self.brokers.keys()

    def set_offline(self, topic_partition: TopicPartition, broker_id: int, *, is_offline: bool) -> bool:
        """Stores if a broker's replica of a partition is offline. Returns True if this differs from the stored
        value."""
        brokers = self.offline.get(topic_partition, set())
        if (broker_id in brokers) is is_offline:
            return False
        self.offline[topic_partition] = brokers ^ {broker_id}
        if not self.offline[topic_partition]:
            del self.offline[topic_partition]
        return True

    def forget_offline(self, broker_id: int) -> None:
        """Removes the offline replicas of a broker, because the broker has left or has registered again."""
        for topic_partition in [key for key, brokers in self.offline.items() if broker_id in brokers]:
            self.set_offline(topic_partition, broker_id, is_offline=False)

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicView | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def store_settings(self, entity: str, found: ConfigView | None) -> None:
        """Stores the settings of an entity as they are in the metadata tree; None means that they are gone."""
        if found is None:
            self.configs.pop(entity, None)
        else:
            self.configs[entity] = found

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """Returns the settings that were set for a topic, without default values."""
        found = self.configs.get(f"topics/{topic}")
        return found.settings if found is not None else {}

    def broker_settings(self, broker_id: int | None) -> Mapping[str, str]:
        """Returns a broker's dynamic settings; for None, the dynamic settings for every broker."""
        found = self.configs.get(f"brokers/{paths.DEFAULT_ENTITY if broker_id is None else broker_id}")
        return found.settings if found is not None else {}


_ENTITIES: Final = f"{paths.CONFIG}/"


def view_of(tree: Tree) -> ControllerContext:
    """Returns the copy of a metadata tree in this process. Raises NodeFormatError if a node cannot be decoded."""
    view = ControllerContext()
    nodes = {path: (node.data or b"", node.version) for path, node in tree.walk()}
    partitions: dict[str, dict[int, PartitionView]] = {}
    for path, (data, version) in nodes.items():
        for topic, number in _state_of(path):
            partitions.setdefault(topic, {})[number] = PartitionView(PartitionStateNode.decode(data), version)
    for path, (data, version) in nodes.items():
        parent, _, name = path.rpartition("/")
        if parent == paths.TOPICS:
            deleting = paths.delete_topic(name) in nodes
            view.topics[name] = TopicView(name, TopicNode.decode(data), version, partitions.get(name, {}), deleting)
        elif parent == paths.BROKER_IDS:
            view.brokers[int(name)] = BrokerRegistration.decode(data)
        elif path.startswith(_ENTITIES) and paths.is_entity(entity := path.removeprefix(f"{paths.CONFIG}/")):
            view.configs[entity] = ConfigView(decode_config(data), version)
        elif path == paths.CONTROLLER_EPOCH:
            view.controller_epoch, view.controller_epoch_version = decode_controller_epoch(data), version
    return view


def _state_of(path: str) -> Iterator[tuple[str, int]]:
    parts = path.split("/")
    if len(parts) == 7 and parts[1:3] == ["brokers", "topics"] and parts[4] == "partitions" and parts[6] == "state":
        yield parts[3], int(parts[5])
