"""Commits and fetches offsets in the metadata tree (ZooKeeper's nodes), as consumers of Kafka 0.8 do: the node
/consumers/GROUP/offsets/TOPIC/PARTITION contains the offset as text."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.metadata import paths
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NodeExistsError, NoNodeError, TreeError


def _path(group_id: str, key: TopicPartition) -> str:
    return f"{paths.CONSUMERS}/{group_id}/offsets/{key.topic}/{key.partition}"


def is_legal_group(group_id: str) -> bool:
    """Returns True if a group id can be the name of a node."""
    return bool(group_id) and "/" not in group_id and group_id not in (".", "..") and "\0" not in group_id


async def commit_to_tree(store: Store, group_id: str, key: TopicPartition, offset: int) -> ErrorCode:
    """Writes an offset, and creates its parent nodes if they are missing. Returns NONE or the error."""
    if not is_legal_group(group_id):
        return ErrorCode.INVALID_GROUP_ID
    path, data = _path(group_id, key), str(offset).encode()
    try:
        await store.set(path, data)
    except NoNodeError:
        steps = path.split("/")
        try:
            for depth in range(3, len(steps)):
                try:
                    await store.create("/".join(steps[:depth]))
                except NodeExistsError:
                    continue
            await store.create(path, data)
        except TreeError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    except TreeError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def fetch_from_tree(store: Store, group_id: str, key: TopicPartition) -> tuple[int, ErrorCode]:
    """Returns the offset and NONE, or -1 and an error. The error is UNKNOWN_TOPIC_OR_PARTITION if no offset was
    committed, as in Kafka's answer to OffsetFetch version 0."""
    if not is_legal_group(group_id):
        return -1, ErrorCode.INVALID_GROUP_ID
    try:
        return int((await store.get(_path(group_id, key)))[0]), ErrorCode.NONE
    except NoNodeError:
        return -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (TreeError, ValueError):
        return -1, ErrorCode.UNKNOWN_SERVER_ERROR
