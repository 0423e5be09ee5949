"""Reads and writes the JSON of kafka-reassign-partitions.

    {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/data/b"]}]}
    {"version":1,"topics":[{"topic":"t"}]}

`log_dirs` names a log directory for each replica; "any" lets the broker choose. It may be missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.shared.json_files import PARTITION_MAX, is_number, read_json

ANY: Final = "any"
_FORM: Final = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
_FORM_OF_TOPICS: Final = '{"version":1,"topics":[{"topic":"t"}]}'


class Target(NamedTuple):
    """The wanted replicas of a partition (broker ids), and the wanted log directory of each replica."""

    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]


def read_targets(path: str) -> dict[TopicPartition, Target]:
    """Returns the targets in a file, in its order. Raises JesenskaError with one sentence if the file has another
    form."""
    items = _list_in(path, "partitions", _FORM)
    found: dict[TopicPartition, Target] = {}
    for item in items:
        fields = item if isinstance(item, dict) else {}
        topic, number, replicas = fields.get("topic"), fields.get("partition"), fields.get("replicas")
        if (
            not isinstance(topic, str)
            or not is_number(number, 0, PARTITION_MAX)
            or not isinstance(replicas, list)
            or not all(is_number(broker_id, 0, PARTITION_MAX) for broker_id in replicas)
        ):
            raise JesenskaError(f"{json.dumps(item)[:200]} in {path} is not an item of the form {_FORM}.")
        key = TopicPartition(topic, number)
        if key in found:
            raise JesenskaError(
                f"Partition reassignment contains duplicate topic partitions: {key} stands more than once in {path}."
            )
        found[key] = Target(tuple(replicas), _log_dirs(key, fields.get("log_dirs"), replicas))
        _check_replicas(key, replicas)
    if not found:
        raise JesenskaError(f"Partition reassignment list cannot be empty: write {_FORM} into {path}.")
    return found


def _check_replicas(key: TopicPartition, replicas: Sequence[int]) -> None:
    if not replicas:
        raise JesenskaError(f"Partition replica list cannot be empty: name brokers for {key}.")
    twice = sorted({broker_id for broker_id in replicas if replicas.count(broker_id) > 1})
    if twice:
        raise JesenskaError(
            f"Partition replica lists may not contain duplicate entries: {key} contains multiple entries for "
            f"{', '.join(map(str, twice))}: name each broker once."
        )


def _log_dirs(key: TopicPartition, given: Any, replicas: Sequence[int]) -> tuple[str, ...]:
    if given is None:
        return (ANY,) * len(replicas)
    if not isinstance(given, list) or not all(isinstance(path, str) for path in given):
        raise JesenskaError(f'The log_dirs of {key} are not a list of paths: write "any" or a path for each replica.')
    if len(given) != len(replicas):
        raise JesenskaError(
            f"Size of replicas list {list(replicas)} is different from size of log dirs list {given} for partition "
            f'{key}: name a directory or "any" for each replica.'
        )
    return tuple(given)


def read_topics(path: str) -> list[str]:
    """Returns the topics that a file names. Raises JesenskaError with one sentence if the file has another form."""
    names: dict[str, None] = {}
    for item in _list_in(path, "topics", _FORM_OF_TOPICS):
        name = item.get("topic") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise JesenskaError(f"{json.dumps(item)[:200]} in {path} is not an item of the form {_FORM_OF_TOPICS}.")
        if name in names:
            raise JesenskaError(
                f"List of topics to reassign contains duplicate entries: {name} stands more than once in {path}."
            )
        names[name] = None
    if not names:
        raise JesenskaError(f"The list of topics in {path} is empty: write {_FORM_OF_TOPICS} into it.")
    return list(names)


def _list_in(path: str, name: str, form: str) -> list[Any]:
    document = read_json(path, "The reassignment is not JSON")
    if not isinstance(document, dict):
        raise JesenskaError(f"{path} has no JSON object: write {form} into it.")
    version = document.get("version", 1)
    if version != 1 or isinstance(version, bool):
        raise JesenskaError(f"Not supported version field value {json.dumps(version)[:200]} in {path}: write {form}.")
    items = document.get(name)
    if not isinstance(items, list):
        raise JesenskaError(f"{path} has no list {name!r}: write {form} into it.")
    return items


def as_items(
    assignments: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[TopicPartition, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Returns replicas by partition as the items of a file, sorted. Partitions that are not in `log_dirs` get
    "any"."""
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(replicas),
            "log_dirs": list((log_dirs or {}).get(key, (ANY,) * len(replicas))),
        }
        for key, replicas in sorted(assignments.items())
    ]


def text_of(
    assignments: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[TopicPartition, Sequence[str]] | None = None,
) -> str:
    """Returns replicas by partition as the text of a file (`as_items`)."""
    document = {"version": 1, "partitions": as_items(assignments, log_dirs)}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
