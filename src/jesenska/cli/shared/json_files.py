"""Reads the JSON files of the tools. A file that cannot be used is refused with one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeGuard

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition

_FILE_MAX_BYTES = 64 * 1024 * 1024
PARTITION_MAX = 2**31 - 1


def read_json(path: str, refusal: str) -> Any:
    """Returns the value in a JSON file. Raises JesenskaError if the file cannot be read or is not JSON. If the file is
    not JSON, the message begins with `refusal`."""
    try:
        if Path(path).stat().st_size > _FILE_MAX_BYTES:
            raise JesenskaError(f"The file {path} is larger than {_FILE_MAX_BYTES} bytes: split it.")
        content = Path(path).read_bytes()
    except OSError as error:
        raise JesenskaError(f"The file {path} cannot be read ({error.strerror}): name one that exists.") from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise JesenskaError(f"{refusal}: {error} in {path}.") from error


def read_partitions(path: str, what: str) -> list[TopicPartition]:
    """Returns the partitions that a file lists, in the order of the file. The file has the form

    {"partitions": [{"topic": "t", "partition": 0}]}

    Raises JesenskaError if the file has another form or contains a partition twice. The message begins with `what`."""
    document = read_json(path, f"{what} is not JSON")
    items = document.get("partitions") if isinstance(document, dict) else None
    if items is None:
        raise JesenskaError(
            f'{what} is missing "partitions" field: write {{"partitions": [{{"topic": "t", "partition": 0}}]}} into '
            f"{path}."
        )
    if not isinstance(items, list):
        raise JesenskaError(
            f'{what} has no list of partitions: write {{"partitions": [{{"topic": "t", "partition": 0}}]}} into {path}.'
        )
    found: dict[TopicPartition, None] = {}
    for item in items:
        fields = item if isinstance(item, dict) else {}
        topic, partition = fields.get("topic"), fields.get("partition")
        if not isinstance(topic, str) or not is_number(partition, 0, PARTITION_MAX):
            raise JesenskaError(
                f'{json.dumps(item)[:200]} in {path} is not of the form {{"topic": "t", "partition": 0}}.'
            )
        key = TopicPartition(topic, partition)
        if key in found:
            raise JesenskaError(f"{what} contains duplicate partitions: {key} stands more than once in {path}.")
        found[key] = None
    return list(found)


def is_number(value: Any, low: int, high: int) -> TypeGuard[int]:
    """Returns true if the JSON value is an integer from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
