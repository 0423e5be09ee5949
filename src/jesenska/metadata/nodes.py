"""The content of each node: JSON (in one case plain text) in the version that Kafka 3.9 writes in ZooKeeper mode, and
every older version since brokers of 0.8. The tests contain literals that a real 3.9.1 wrote.

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

Numbers may be written as text and text as numbers, as in old releases. Bytes that do not have the format raise
NodeFormatError: another process wrote them."""

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
    """The bytes of a node do not have the node's format."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that is up: its listeners, the time of its registration, and its rack. `crashed`: it was not stopped in
    order before it registered, may have lost records, and no controller has handled that yet (a field of jesenska,
    left out if it is False)."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    crashed: bool = False

    def encode(self) -> bytes:
        # Clients of the 0.8 era read host and port; brokers without a plaintext listener write null and -1.
        plain = next((item for item in self.endpoints if item.protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            # The lowest level that old releases can read is 1.
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
    """A topic's replicas by partition, the preferred leader first. `topic_id` is missing in topics of releases before
    2.8."""

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
    """The leader of a partition (-1: none), its leader epoch, and the ISR."""

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
    """The broker that is controller, and the time of its election."""

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
    """Returns the settings of an entity; an empty node has none."""
    if not data:
        return {}
    value = load_json(data)
    if _int(value, "version") != 1:
        raise NodeFormatError(f"settings of version {value['version']} are not known")
    return {str(name): str(text) for name, text in _dict(value, "config").items()}


def encode_config_change(entity_path: str) -> bytes:
    """Returns the node of a change. `entity_path` is the part after /config/, such as `topics/clicks`."""
    return dump_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Returns the part after /config/ of the changed entity. Releases before 0.9 write only a topic's name, as a JSON
    text."""
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
    """Returns a list of partitions, in the form of a preferred leader election and of a change of ISRs."""
    return dump_json(
        {"version": 1, "partitions": [{"topic": at.topic, "partition": at.partition} for at in partitions]}
    )


def decode_partitions(data: bytes) -> list[TopicPartition]:
    return [_partition_of(item) for item in _partition_items(data)]


def encode_lost_brokers(broker_ids: Iterable[int]) -> bytes:
    """Returns the node of brokers that will never come back (a node of jesenska, `paths.LOST_BROKERS`)."""
    return dump_json({"version": 1, "brokers": sorted(broker_ids)})


def decode_lost_brokers(data: bytes) -> frozenset[int]:
    return frozenset(_numbers(load_json(data), "brokers"))


@dataclass(frozen=True, slots=True)
class LackingPartitions:
    """Partitions whose only in-sync replica was on this broker, which has lost their data, and the directories that
    had them, with the last start on each; without directories: recorded by a release that wrote no starts."""

    directories: Mapping[uuid.UUID, uuid.UUID]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class BrokerStarts:
    """The last start of a broker on each of its log directories, by the directory's id, and the partitions that the
    broker has lacked since (a node of jesenska, `paths.broker_starts`)."""

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
    """Returns the broker that lost a directory."""
    return _int(load_json(data), "broker")


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids from `first` to `last`, both included, and the broker that they were given to."""

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
    """Returns the node that declares feature versioning enabled, with no feature finalised in Kafka's own way.
    `limits`: the highest level that a feature may have here, in a field that Kafka does not read."""
    return dump_json({"features": {}, "version": 2, "status": 1, **({"limits": limits} if limits else {})})


def decode_feature_limits(data: bytes) -> dict[str, int]:
    """Returns the limits in that node; empty if jesenska did not write it."""
    try:
        found = json.loads(data)["limits"]
        return {str(name): level for name, level in found.items() if type(level) is int and level >= 0}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def dump_json(value: Mapping[str, Any]) -> bytes:
    """Returns the JSON of a node, without spaces, as Kafka writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load_json(data: bytes) -> dict[str, Any]:
    """Returns the JSON object in a node; NodeFormatError if the node holds something else."""
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
    """Returns an integer, or `missing` for fields that older brokers leave out, or write as an empty text or null."""
    found = value.get(key)
    return missing if found is None or found == "" else _number(found, key)


def _numbers(value: Mapping[str, Any], key: str) -> tuple[int, ...]:
    return tuple(_number(item, key) for item in _list(value, key))


def _number(found: object, key: str) -> int:
    """Returns an integer from a number or a text; brokers write both."""
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
        raise NodeFormatError(f"the endpoint {text!r} is none")
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
