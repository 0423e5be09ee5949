"""The inventory of one broker: the partitions in its log directories, as plain values and as JSON. A lost metadata
tree can be rebuilt from the inventories of all brokers, even if the brokers are on several machines.

    {"format": "jesenska-inventory", "version": 1, "cluster": "BkqKvcOWQuuOhwNvbYx_og", "broker": 1,
     "producerId": 4012,                          the largest producer id in any log; -1: none
     "compacted": ["accounts"],                   topics that have been compacted
     "partitions": [{"topic": "orders", "partition": 0, "topicId": "9tbXHgBvRzO0K-63RUy5HQ",
                     "start": 0, "end": 1180, "lastEpoch": 3, "newestEpoch": 3}, ...]}

An inventory from another machine is checked like all input from outside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition, uuid_from_text, uuid_to_text
from jesenska.base.topic_names import is_legal_topic_name

_FORMAT, _VERSION = "jesenska-inventory", 1
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
#: The largest number of partitions that an inventory may have.
_PARTITIONS_MAX = 4_000_000
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Replica:
    """One partition in a log directory: its first offset, its end offset, the leader epoch of its last batch, and the
    newest leader epoch in its files (-1: none)."""

    topic_id: UUID | None
    start: int
    end: int
    last_epoch: int = NO_EPOCH
    newest_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Inventory:
    """The inventory of one broker. `producer_id` is the largest producer id in any log, or -1 if there is none.
    `compacted` contains the topics whose logs have been compacted."""

    cluster_id: str
    broker_id: int
    replicas: Mapping[TopicPartition, Replica]
    producer_id: int = -1
    compacted: frozenset[str] = frozenset()


def encode(inventory: Inventory) -> str:
    """Returns the inventory as JSON text, with one line for each partition."""
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "cluster": inventory.cluster_id,
        "broker": inventory.broker_id,
        "producerId": inventory.producer_id,
        "compacted": sorted(inventory.compacted),
    }
    lines = [_dump(_said(at, inventory.replicas[at])) for at in sorted(inventory.replicas)]
    return _dump(head)[:-1] + ',"partitions":[\n' + ",\n".join(lines) + "\n]}\n"


def _said(at: TopicPartition, replica: Replica) -> dict[str, Any]:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "topicId": None if replica.topic_id is None else uuid_to_text(replica.topic_id),
        "start": replica.start,
        "end": replica.end,
        "lastEpoch": replica.last_epoch,
        "newestEpoch": replica.newest_epoch,
    }


def decode(text: str, where: str) -> Inventory:
    """Returns the inventory in a JSON text. Raises JesenskaError with one sentence if the text is not an inventory.
    `where` names the text in that sentence."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        raise JesenskaError(
            f"{where} is not an inventory: make one with jesenska tree inventory, or name a broker's directory."
        )
    if value.get("version") != _VERSION:
        raise JesenskaError(
            f"{where} is an inventory of a later release: make it with this release, or use the "
            "later release here, too."
        )
    try:
        return _decoded(value)
    except (KeyError, TypeError, ValueError) as error:
        raise JesenskaError(
            f"{where} is a damaged inventory ({error}): make it again with jesenska tree inventory."
        ) from error


def _decoded(value: Mapping[str, Any]) -> Inventory:
    cluster_id, compacted, partitions = value["cluster"], value["compacted"], value["partitions"]
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ValueError("it has no cluster id")
    if not isinstance(compacted, list) or not all(
        isinstance(name, str) and is_legal_topic_name(name) for name in compacted
    ):
        raise ValueError("compacted is not a list of topics")
    if not isinstance(partitions, list) or len(partitions) > _PARTITIONS_MAX:
        raise ValueError("partitions is not a list, or is too long")
    replicas: dict[TopicPartition, Replica] = {}
    for item in partitions:
        if not isinstance(item["topic"], str) or not is_legal_topic_name(item["topic"]):
            raise ValueError("a topic's name is not valid")
        at = TopicPartition(item["topic"], _number(item, "partition", 0, _INT32_MAX))
        if at in replicas:
            raise ValueError(f"{at} is in it twice")
        topic_id = None if item["topicId"] is None else uuid_from_text(str(item["topicId"]))
        start, end = (_number(item, name, 0, _INT64_MAX) for name in ("start", "end"))
        if start > end:
            raise ValueError(f"{at} ends before it begins")
        replicas[at] = Replica(
            topic_id, start, end, *(_number(item, name, NO_EPOCH, _INT32_MAX) for name in ("lastEpoch", "newestEpoch"))
        )
    return Inventory(
        cluster_id,
        _number(value, "broker", 0, _INT32_MAX),
        replicas,
        _number(value, "producerId", -1, _INT64_MAX),
        frozenset(compacted),
    )


def _number(value: Mapping[str, Any], name: str, least: int, most: int) -> int:
    found = value[name]
    if type(found) is not int or not least <= found <= most:
        raise ValueError(f"{name} is not a number from {least} to {most}")
    return found


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
