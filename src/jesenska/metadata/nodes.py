"""Encodes and decodes the content of the nodes of the metadata tree: JSON, or plain text in one case. A node is
written in the version of Kafka 3.9 in ZooKeeper mode, and read in every version since Kafka 0.8. The tests contain
nodes that a real Kafka 3.9.1 wrote.

    node                          written                                                                          read
    /brokers/ids/N                v5  endpoints, listener_security_protocol_map, host, port, jmx_port,             1-5
                                      timestamp, features, rack if there is one
    /brokers/topics/T             v3  partitions, topic_id, adding_replicas, removing_replicas                     1-3
    .../partitions/N/state        v1  controller_epoch, leader, leader_epoch, isr                                  1
    /controller                   v2  brokerid, timestamp, kraftControllerEpoch                                    1-2
    /controller_epoch             decimal text
    /cluster/id                   v"1" id
    /config/<type>/<name>         v1  config                                                                       1
    /config/changes/...           v2  entity_path                                                                  1-2
    /admin/reassign_partitions    v1  partitions: topic, partition, replicas                                       1
    /admin/preferred_...          v1  partitions: topic, partition                                                 1
    /isr_change_notification/...  v1  partitions: topic, partition                                                 1
    /log_dir_event_...            v1  broker, event                                                                1
    /admin/jesenska_lost_brokers  v1  brokers                                                                      1
    /brokers/jesenska_starts/N    v1  directories, lacking                                                         1
    /latest_producer_id_block     v1  broker, block_start and block_end as text                                    1
    /feature                      v2  features, status                                                             1-2

As in old releases, numbers may be written as text and text as numbers. Content in another format raises
NodeFormatError: another process wrote it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jesenska.base.identifiers import TopicPartition, uuid_from_text, uuid_to_text
from jesenska.config.listeners import Endpoint

Replicas = Mapping[int, tuple[int, ...]]


class NodeFormatError(ValueError):
    """Raised when the content of a node does not have the node's format."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The node of a running broker: its listeners, the time of its registration, and its rack. `crashed` is True if
    the broker's last process did not stop cleanly, so that records may be lost, and no controller has handled this
    yet. It is a field of jesenska, and is not written if it is False."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    crashed: bool = False

    def encode(self) -> bytes:
        # Clients of Kafka 0.8 read host and port. A broker without a PLAINTEXT listener writes null and -1.
        plain = next((item for item in self.endpoints if item.protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            # Old releases of Kafka cannot read a lowest level below 1.
            "features": {"transaction.version": {"min_version": 1, "max_version": 2}},
            "listener_security_protocol_map": {item.name: item.protocol for item in self.endpoints},
            "endpoints": [str(item) for item in self.endpoints],
        }
        if self.rack is not None:
            value["rack"] = self.rack
        value |= {
            "jmx_port": self.jmx_port,
            "port": plain.port if plain else -1,
            "host": plain.host if plain else None,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        if self.crashed:
            value["jesenska_crashed"] = True
        return dump_json(value)

    @staticmethod
    def decode(data: bytes) -> BrokerRegistration:
        value = load_json(data)
        version = _int(value, "version")
        if not 1 <= version <= 5:
            raise NodeFormatError(f"a broker's node of version {version} is not known")
        rack = value.get("rack")
        if version == 1:
            endpoints = [Endpoint("PLAINTEXT", "PLAINTEXT", _str(value, "host"), _int(value, "port"))]
        else:
            protocols = value.get("listener_security_protocol_map")
            endpoints = [
                _endpoint(str(text), protocols if isinstance(protocols, dict) else {})
                for text in _list(value, "endpoints")
            ]
        return BrokerRegistration(
            tuple(endpoints),
            _int_or(value, "timestamp", -1),
            str(rack) if rack is not None else None,
            _int_or(value, "jmx_port", -1),
            value.get("jesenska_crashed") is True,
        )


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic's node: the replicas of each partition (the preferred leader first), and the replicas that a
    reassignment adds and removes. `topic_id` is None for topics of releases before 2.8."""

    replicas: Replicas
    topic_id: uuid.UUID | None
    adding: Replicas = field(default_factory=dict)
    removing: Replicas = field(default_factory=dict)

    def encode(self) -> bytes:
        value: dict[str, Any] = {"partitions": _replicas_out(self.replicas)}
        if self.topic_id is not None:
            value["topic_id"] = uuid_to_text(self.topic_id)
        value |= {"adding_replicas": _replicas_out(self.adding), "removing_replicas": _replicas_out(self.removing)}
        value["version"] = 3 if self.topic_id is not None else 2
        return dump_json(value)

    @staticmethod
    def decode(data: bytes) -> TopicNode:
        value = load_json(data)
        version = _int(value, "version")
        if not 1 <= version <= 3:
            raise NodeFormatError(f"a topic's node of version {version} is not known")
        text = value.get("topic_id")
        try:
            topic_id = uuid_from_text(str(text)) if text is not None else None
        except ValueError as error:
            raise NodeFormatError(str(error)) from error
        return TopicNode(
            _replicas_in(_dict(value, "partitions")),
            topic_id,
            _replicas_in(value.get("adding_replicas") or {}),
            _replicas_in(value.get("removing_replicas") or {}),
        )


@dataclass(frozen=True, slots=True)
class PartitionStateNode:
    """The node of a partition's state: its leader (-1: none), its leader epoch, and its ISR. `controller_epoch` is the
    epoch of the controller that wrote the node."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int

    def encode(self) -> bytes:
        return dump_json(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.isr),
            }
        )

    @staticmethod
    def decode(data: bytes) -> PartitionStateNode:
        value = load_json(data)
        return PartitionStateNode(
            _int(value, "leader"), _int(value, "leader_epoch"), _numbers(value, "isr"), _int(value, "controller_epoch")
        )


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """The content of /controller: the broker that is controller, and the time of its election."""

    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        return dump_json(
            {"version": 2, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms), "kraftControllerEpoch": -1}
        )

    @staticmethod
    def decode(data: bytes) -> ControllerNode:
        value = load_json(data)
        return ControllerNode(_int(value, "brokerid"), _int_or(value, "timestamp", -1))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    try:
        return int(data.decode("ascii"))
    except ValueError as error:
        raise NodeFormatError("the controller's epoch is not a number") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return dump_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return _str(load_json(data), "id")


def encode_config(settings: Mapping[str, str]) -> bytes:
    return dump_json({"version": 1, "config": dict(settings)})


def decode_config(data: bytes) -> dict[str, str]:
    """Returns the settings in the node of a topic, broker or client. An empty node has no settings."""
    if not data:
        return {}
    value = load_json(data)
    if _int(value, "version") != 1:
        raise NodeFormatError(f"settings of version {value['version']} are not known")
    return {str(name): str(text) for name, text in _dict(value, "config").items()}


def encode_config_change(entity_path: str) -> bytes:
    """Returns the content of the node that announces a change of settings. `entity_path` is the path of the changed
    settings without /config/, such as `topics/clicks`."""
    return dump_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Returns the path of the changed settings without /config/, such as `topics/clicks`. Releases before 0.9 wrote
    only the topic's name, as a JSON text."""
    if data[:1] == b'"':
        try:
            return f"topics/{json.loads(data)}"
        except ValueError as error:
            raise NodeFormatError("the node does not hold JSON") from error
    value = load_json(data)
    if _int(value, "version") == 1:
        return f"{_str(value, 'entity_type')}/{_str(value, 'entity_name')}"
    return _str(value, "entity_path")


def encode_reassignment(assignments: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    items = [
        {"topic": at.topic, "partition": at.partition, "replicas": list(replicas)}
        for at, replicas in assignments.items()
    ]
    return dump_json({"version": 1, "partitions": items})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    return {_partition_of(item): _numbers(item, "replicas") for item in _partition_items(data)}


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """Returns the JSON for a list of partitions. It is the content of the nodes for a preferred leader election and
    for changes of ISRs."""
    return dump_json(
        {"version": 1, "partitions": [{"topic": at.topic, "partition": at.partition} for at in partitions]}
    )


def decode_partitions(data: bytes) -> list[TopicPartition]:
    return [_partition_of(item) for item in _partition_items(data)]


def encode_lost_brokers(broker_ids: Iterable[int]) -> bytes:
    """Returns the content of the node that lists brokers that will never come back (a node of jesenska,
    `paths.LOST_BROKERS`)."""
    return dump_json({"version": 1, "brokers": sorted(broker_ids)})


def decode_lost_brokers(data: bytes) -> frozenset[int]:
    return frozenset(_numbers(load_json(data), "brokers"))


@dataclass(frozen=True, slots=True)
class LackingPartitions:
    """Partitions whose data a broker has lost while it was their only in-sync replica. `directories` has the ids of
    the log directories that contained them, each with the id of the last start on it. `directories` is empty if an
    older release of jesenska wrote the node."""

    directories: Mapping[uuid.UUID, uuid.UUID]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class BrokerStarts:
    """A broker's last start on each of its log directories, by the directory's id. `lacking` lists partitions whose
    data the broker has lost (a node of jesenska, `paths.broker_starts`)."""

    directories: Mapping[uuid.UUID, uuid.UUID]
    lacking: tuple[LackingPartitions, ...] = ()

    def encode(self) -> bytes:
        return dump_json(
            {
                "version": 1,
                "directories": _starts_out(self.directories),
                "lacking": [_lacking_out(item) for item in self.lacking],
            }
        )

    @staticmethod
    def decode(data: bytes) -> BrokerStarts:
        value = load_json(data)
        if _int(value, "version") != 1:
            raise NodeFormatError(f"the starts of a broker in version {value['version']} are not known")
        return BrokerStarts(_starts_in(value), tuple(_lacking_in(item) for item in _list(value, "lacking")))


def _starts_out(directories: Mapping[uuid.UUID, uuid.UUID]) -> dict[str, str]:
    return {uuid_to_text(directory): uuid_to_text(start) for directory, start in directories.items()}


def _starts_in(value: Mapping[str, Any]) -> dict[uuid.UUID, uuid.UUID]:
    try:
        return {uuid_from_text(text): uuid_from_text(str(start)) for text, start in _dict(value, "directories").items()}
    except ValueError as error:
        raise NodeFormatError(str(error)) from error


def _lacking_out(lacking: LackingPartitions) -> dict[str, Any]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(lacking.partitions):
        numbers.setdefault(topic, []).append(number)
    return {"directories": _starts_out(lacking.directories), "partitions": numbers}


def _lacking_in(item: object) -> LackingPartitions:
    if not isinstance(item, dict):
        raise NodeFormatError("lacking holds something else than objects")
    numbers = _dict(item, "partitions")
    return LackingPartitions(
        _starts_in(item),
        frozenset(TopicPartition(topic, number) for topic in numbers for number in _numbers(numbers, topic)),
    )


LOG_DIR_FAILED = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    return dump_json({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILED})


def decode_log_dir_event(data: bytes) -> int:
    """Returns the id of the broker that reported a failed log directory."""
    return _int(load_json(data), "broker")


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """A block of producer ids from `first` to `last`, both included, and the broker that may give them out."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return dump_json(
            {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @staticmethod
    def decode(data: bytes) -> ProducerIdBlock:
        value = load_json(data)
        return ProducerIdBlock(_int(value, "broker"), _int(value, "block_start"), _int(value, "block_end"))


def encode_feature(limits: Mapping[str, int] | None = None) -> bytes:
    """Returns the content of /feature: feature versioning is enabled, and no feature is finalized in Kafka's own way.
    `limits` is the highest level that each feature may have in this cluster, in a field that Kafka does not read."""
    return dump_json({"features": {}, "version": 2, "status": 1, **({"limits": limits} if limits else {})})


def decode_feature_limits(data: bytes) -> dict[str, int]:
    """Returns the highest level of each feature from the content of /feature. It is empty if jesenska did not write
    the node."""
    try:
        found = json.loads(data)["limits"]
        return {str(name): level for name, level in found.items() if type(level) is int and level >= 0}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def dump_json(value: Mapping[str, Any]) -> bytes:
    """Returns a node's JSON as bytes, without spaces, as Kafka writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load_json(data: bytes) -> dict[str, Any]:
    """Returns the JSON object in a node. Raises NodeFormatError if the node contains anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NodeFormatError("the node does not hold JSON") from error
    if not isinstance(value, dict):
        raise NodeFormatError("the node does not hold a JSON object")
    return value


def _int(value: Mapping[str, Any], key: str) -> int:
    return _number(value.get(key), key)


def _int_or(value: Mapping[str, Any], key: str, missing: int) -> int:
    """Returns the integer in a field. Returns `missing` if the field is missing, an empty text or null, as older
    brokers write it."""
    found = value.get(key)
    return missing if found is None or found == "" else _number(found, key)


def _numbers(value: Mapping[str, Any], key: str) -> tuple[int, ...]:
    return tuple(_number(item, key) for item in _list(value, key))


def _number(found: object, key: str) -> int:
    """Returns the integer of a number or of a text, because brokers write both. Raises NodeFormatError for anything
    else."""
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise NodeFormatError(f"{key} is missing or no number")
    try:
        return int(found)
    except ValueError as error:
        raise NodeFormatError(f"{key} is no number") from error


def _str(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise NodeFormatError(f"{key} is missing or no text")
    return found


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        raise NodeFormatError(f"{key} is missing or no list")
    return found


def _dict(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    if not isinstance(found, dict):
        raise NodeFormatError(f"{key} is missing or no object")
    return found


def _endpoint(text: str, protocols: Mapping[str, Any]) -> Endpoint:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon:
        raise NodeFormatError(f"{text!r} is not an endpoint")
    return Endpoint(
        name,
        str(protocols.get(name, name)),
        host.removeprefix("[").removesuffix("]"),
        _number(port, "an endpoint's port"),
    )


def _replicas_out(replicas: Replicas) -> dict[str, list[int]]:
    return {str(partition): list(brokers) for partition, brokers in replicas.items()}


def _replicas_in(value: object) -> dict[int, tuple[int, ...]]:
    try:
        assert isinstance(value, dict)
        return {
            int(partition): tuple(_number(broker, "a replica") for broker in brokers)
            for partition, brokers in value.items()
        }
    except (AssertionError, TypeError, ValueError) as error:
        raise NodeFormatError("the replicas are not lists of brokers by partition") from error


def _partition_items(data: bytes) -> list[dict[str, Any]]:
    items = _list(load_json(data), "partitions")
    if not all(isinstance(item, dict) for item in items):
        raise NodeFormatError("partitions holds something else than objects")
    return items


def _partition_of(item: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(_str(item, "topic"), _int(item, "partition"))
