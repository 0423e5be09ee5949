"""Computes the state that the records of a KRaft metadata log describe, and the equivalent nodes of ZooKeeper mode.

    TopicRecord, PartitionRecord, ...     /brokers/topics/T, its partitions' states, /config/topics/T
    ConfigRecord                          /config/topics, /config/brokers
    ClientQuotaRecord, UserScram...       /config/users, /config/clients, /config/ips
    AccessControlEntryRecord              /kafka-acl, /kafka-acl-extended
    ProducerIdsRecord                     /latest_producer_id_block

Some state has no equivalent node and is reported in `notes`: settings of groups and of client metrics, delegation
tokens, and ACLs for resource names that are not allowed in a path of ZooKeeper. Registrations of brokers and KRaft's
own features are ignored."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jesenska.interchange.nodes import Node
from jesenska.interchange.raft.records import (
    AccessControlEntryRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    PartitionStateNode,
    ProducerIdBlock,
    TopicNode,
    encode_cluster_id,
    encode_config,
    encode_controller_epoch,
    encode_feature,
)
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError
from jesenska.quotas.entities import IP, TREE_KINDS

_NO_LEADER_CHANGE = -2
_TOPIC, _BROKER = 2, 4
_PRODUCER_IDS_OF_A_BLOCK = 1000
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
#: Quotas whose value may have a fraction; all other quotas are integers.
_FRACTIONS = ("request_percentage", "controller_mutation_rate")
_RESOURCES = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken", 7: "User"}
_PERMISSIONS = {2: "Deny", 3: "Allow"}
_OPERATIONS = {
    2: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
    15: "TwoPhaseCommit",
}
_LITERAL, _PREFIXED = 3, 4
_ACLS, _PREFIXED_ACLS = "/kafka-acl", "/kafka-acl-extended/prefixed"
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class _Partition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    #: The eligible leader replicas: replicas outside of the ISR that have all committed records, because they were the
    #: last members of the ISR.
    eligible: tuple[int, ...]

    @property
    def in_sync(self) -> tuple[int, ...]:
        """Returns the replicas that may become leader: the ISR or, if it is empty, the eligible leader replicas. In
        KRaft mode a broker that stops leaves the ISR even if it is the last member."""
        return self.isr or self.eligible


@dataclass(slots=True)
class _Topic:
    name: str
    partitions: dict[int, _Partition] = field(default_factory=dict)


class RaftImage:
    """The cluster's state after some records of the metadata log. Call `take` for each record, then call `nodes`."""

    def __init__(self) -> None:
        self._topics: dict[uuid.UUID, _Topic] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self._scram: dict[str, dict[str, str]] = {}
        self._acls: dict[uuid.UUID, AccessControlEntryRecord] = {}
        self._tokens: set[str] = set()
        self._next_producer: tuple[int, int] | None = None
        self.notes: list[str] = []

    def take_all(self, records: Iterable[MetadataRecord]) -> RaftImage:
        for record in records:
            self.take(record)
        return self

    def take(self, record: MetadataRecord) -> None:
        message = record.message
        match message:
            case TopicRecord():
                self._topics[message.topic_id] = _Topic(message.name)
            case PartitionRecord():
                if (topic := self._topics.get(message.topic_id)) is not None:
                    topic.partitions[message.partition_id] = _partition_of(message)
            case PartitionChangeRecord():
                topic = self._topics.get(message.topic_id)
                if topic is not None and (before := topic.partitions.get(message.partition_id)) is not None:
                    topic.partitions[message.partition_id] = _changed(before, message)
            case RemoveTopicRecord():
                if (gone := self._topics.pop(message.topic_id, None)) is not None:
                    self._configs.pop((_TOPIC, gone.name), None)
            case ClearElrRecord():
                self._clear_eligible(message.topic_name)
            case ConfigRecord():
                self._configure(message)
            case ClientQuotaRecord():
                self._limit(message)
            case UserScramCredentialRecord():
                if (mechanism := _SCRAM.get(message.mechanism)) is not None:
                    self._scram.setdefault(message.name, {})[mechanism] = _credential(message)
            case RemoveUserScramCredentialRecord():
                self._scram.get(message.name, {}).pop(_SCRAM.get(message.mechanism, ""), None)
            case AccessControlEntryRecord():
                self._acls[message.id] = message
            case RemoveAccessControlEntryRecord():
                self._acls.pop(message.id, None)
            case DelegationTokenRecord():
                self._tokens.add(message.token_id)
            case RemoveDelegationTokenRecord():
                self._tokens.discard(message.token_id)
            case ProducerIdsRecord():
                self._next_producer = (message.broker_id, message.next_producer_id)
            case _:
                pass  # registrations of brokers, features of KRaft, no-ops

    def _clear_eligible(self, name: str) -> None:
        for topic in self._topics.values():
            if name in ("", topic.name):
                topic.partitions = {
                    number: replace(partition, eligible=()) for number, partition in topic.partitions.items()
                }

    def _configure(self, record: ConfigRecord) -> None:
        settings = self._configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def _limit(self, record: ClientQuotaRecord) -> None:
        entity = tuple(
            sorted(((item.entity_type, item.entity_name) for item in record.entity), key=lambda item: item[0])
        )
        limits = self._quotas.setdefault(entity, {})
        if record.remove:
            limits.pop(record.key, None)
        else:
            limits[record.key] = record.value

    # --- the nodes ---------------------------------------------------------------------------------------------------

    def nodes(self, cluster_id: str, epoch: int) -> dict[str, Node]:
        """Returns the equivalent metadata tree of ZooKeeper mode. After this call, `notes` describes all state that
        has no equivalent node."""
        found: dict[str, Node] = {path: Node(None) for path in paths.PERSISTENT_PATHS}
        found[paths.CLUSTER_ID] = Node(encode_cluster_id(cluster_id))
        found[paths.CONTROLLER_EPOCH] = Node(encode_controller_epoch(epoch))
        found[paths.FEATURE] = Node(encode_feature())
        if self._next_producer is not None:
            broker_id, following = self._next_producer
            found[paths.PRODUCER_ID_BLOCK] = Node(
                ProducerIdBlock(broker_id, max(0, following - _PRODUCER_IDS_OF_A_BLOCK), following - 1).encode()
            )
        for topic_id, topic in self._topics.items():
            _put_topic(found, topic_id, topic, self._configs.get((_TOPIC, topic.name), {}), epoch)
        for (kind, name), settings in self._configs.items():
            if kind == _BROKER and settings:
                found[paths.config("brokers", name or paths.DEFAULT_ENTITY)] = Node(encode_config(settings))
        others = sorted(
            {name for (kind, name), settings in self._configs.items() if kind not in (_TOPIC, _BROKER) and settings}
        )
        if others:
            self.notes.append(
                f"Left out, since ZooKeeper mode does not have them: settings of the groups or metrics {_some(others)}."
            )
        self._put_entities(found)
        self._put_acls(found)
        if self._tokens:
            self.notes.append(f"Left out: {len(self._tokens)} delegation tokens; make new ones.")
        return {path: found[path] for path in sorted(found)}

    def _put_entities(self, found: dict[str, Node]) -> None:
        """Adds nodes with the quotas and the SCRAM credentials of users. A user's node contains both as settings."""
        settings: dict[str, dict[str, str]] = {}
        for entity, limits in self._quotas.items():
            path = _entity_path(entity)
            if path is None:
                self.notes.append(
                    f"Left out: a quota of {' and '.join(kind for kind, _ in entity)}, which is not known."
                )
            elif limits:
                settings.setdefault(path, {}).update({key: _number(key, value) for key, value in limits.items()})
        for name, credentials in self._scram.items():
            if credentials:
                settings.setdefault(paths.config("users", paths.sanitize(name)), {}).update(credentials)
        for path, values in settings.items():
            _put_parents(found, path)
            found[path] = Node(encode_config(values))

    def _put_acls(self, found: dict[str, Node]) -> None:
        rules: dict[str, list[dict[str, str]]] = {}
        lost: list[str] = []
        for record in self._acls.values():
            store = {_LITERAL: _ACLS, _PREFIXED: _PREFIXED_ACLS}.get(record.pattern_type)
            resource, operation = _RESOURCES.get(record.resource_type), _OPERATIONS.get(record.operation)
            permission = _PERMISSIONS.get(record.permission_type)
            path = f"{store}/{resource}/{record.resource_name}"
            if (
                store is None
                or resource is None
                or operation is None
                or permission is None
                or "/" in record.resource_name
                or not _is_path(path)
            ):
                lost.append(record.resource_name)
                continue
            rule = {
                "principal": record.principal,
                "permissionType": permission,
                "operation": operation,
                "host": record.host,
            }
            rules.setdefault(path, []).append(rule)
        for path, acls in rules.items():
            _put_parents(found, path)
            found[path] = Node(
                json.dumps({"version": 1, "acls": acls}, ensure_ascii=False, separators=(",", ":")).encode()
            )
        if lost:
            self.notes.append(f"Left out, since no node can have their names: ACLs of {_some(sorted(set(lost)))}.")


def _partition_of(record: PartitionRecord) -> _Partition:
    eligible = tuple(record.eligible_leader_replicas or ()) or tuple(record.last_known_elr or ())
    return _Partition(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        tuple(record.adding_replicas),
        tuple(record.removing_replicas),
        eligible,
    )


def _changed(before: _Partition, record: PartitionChangeRecord) -> _Partition:
    """Returns the partition after a PartitionChangeRecord. A record that names a leader begins a new leader epoch,
    even if the leader stays the same."""
    eligible = before.eligible
    if record.eligible_leader_replicas is not None or record.last_known_elr is not None:
        eligible = tuple(record.eligible_leader_replicas or ()) or tuple(record.last_known_elr or ())
    led = record.leader != _NO_LEADER_CHANGE
    return _Partition(
        before.replicas if record.replicas is None else tuple(record.replicas),
        before.isr if record.isr is None else tuple(record.isr),
        record.leader if led else before.leader,
        before.leader_epoch + 1 if led else before.leader_epoch,
        before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        eligible,
    )


def _put_topic(
    found: dict[str, Node], topic_id: uuid.UUID, topic: _Topic, settings: Mapping[str, str], epoch: int
) -> None:
    numbers = sorted(topic.partitions)
    moving = {
        number: topic.partitions[number]
        for number in numbers
        if topic.partitions[number].adding or topic.partitions[number].removing
    }
    node = TopicNode(
        {number: topic.partitions[number].replicas for number in numbers},
        topic_id,
        {number: partition.adding for number, partition in moving.items()},
        {number: partition.removing for number, partition in moving.items()},
    )
    found[paths.topic(topic.name)] = Node(node.encode())
    found[paths.partitions(topic.name)] = Node(None)
    for number in numbers:
        partition = topic.partitions[number]
        found[paths.partition(topic.name, number)] = Node(None)
        state = PartitionStateNode(partition.leader, partition.leader_epoch, partition.in_sync, epoch)
        found[paths.partition_state(topic.name, number)] = Node(state.encode())
    found[paths.topic_config(topic.name)] = Node(encode_config(settings))


def _credential(record: UserScramCredentialRecord) -> str:
    salt, stored, server = (
        base64.b64encode(item).decode("ascii") for item in (record.salt, record.stored_key, record.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={record.iterations}"


def _entity_path(entity: tuple[tuple[str, str | None], ...]) -> str | None:
    """Returns the path of the node that stores an entity's quotas. Returns None if no node can represent the
    entity."""
    names = dict(entity)
    if not names or any(kind not in TREE_KINDS for kind in names) or (IP in names and len(names) > 1):
        return None
    return f"{paths.CONFIG}/{paths.client_entity({TREE_KINDS[kind]: name for kind, name in names.items()})}"


def _number(key: str, value: float) -> str:
    return str(value) if key in _FRACTIONS or not value.is_integer() else str(int(value))


def _put_parents(found: dict[str, Node], path: str) -> None:
    steps = path.split("/")
    for depth in range(2, len(steps)):
        found.setdefault("/".join(steps[:depth]), Node(None))


def _is_path(path: str) -> bool:
    try:
        check_path(path)
    except BadArgumentsError:
        return False
    return True


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"
