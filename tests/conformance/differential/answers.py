"""Answers as plain values, without what two brokers may say differently, and where two of them differ.

Left out: throttle times, the table of API versions, values of a broker's own settings and loggers, topics' settings
that 4.x has dropped (old formats are served here). Replaced by a sign: addresses, ids that a broker gives (by the name
of what they stand for), directories, sizes of volumes, times of appends, words of messages. Elements of arrays are put
in order of what names them, and those that name nothing of this world nor of the request are left out of answers about
everything. A fetch's topics are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jesenska.wire.language import Message, Struct
from tests.conformance.differential.sides import Answer, Silence
from tests.conformance.differential.world import World

_DROPPED: Final = frozenset(("throttle_time_ms", "api_keys"))
_SIGNS: Final = frozenset(("host", "port", "cluster_id", "log_dir"))
_WORDS: Final = frozenset(("error_message", "batch_index_error_message", "documentation"))
_IF_POSITIVE: Final = frozenset(
    (
        *("total_bytes", "usable_bytes", "log_append_time_ms", "session_id"),
        *("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"),
        *("issue_timestamp", "expiry_timestamp", "max_timestamp"),
    )
)
#: What a broker gives a token.
_OF_TOKENS: Final = frozenset(("hmac", "token_id"))
_MEMBERS: Final = frozenset(("member_id", "leader"))
#: What names an element of an array, the first that it has.
_NAMES: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "user", "key", "member_id", "topic_id")
_NUMBERS: Final = (
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "broker_id",
    "node_id",
    "resource_type",
    "producer_id",
    "error_code",
)
#: Answers that may be about everything: listings.
_ABOUT_EVERYTHING: Final = frozenset((3, 16, 35, 43, 46, 74, 75))
_OWN_SETTINGS: Final = frozenset((4, 8))
_DROPPED_SETTINGS: Final = frozenset(
    ("message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms")
)
_FETCH = 1
_INIT_PRODUCER_ID, _DESCRIBE_CONFIGS, _DESCRIBE_LOG_DIRS = 22, 32, 35
_EVERYWHERE: Final = ("0", "__consumer_offsets")

Difference = tuple[str, str, str]


def plain(answer: Answer, world: World, request: Message) -> Any:
    """What can be compared of an answer."""
    if isinstance(answer, Silence):
        return answer.name
    return _Plain(world, request).struct(answer)


def strings_of(value: Any) -> Iterator[str]:
    """Every string in a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)
    elif isinstance(value, Struct):
        for item in value.fields:
            yield from strings_of(getattr(value, item.name))


class _Plain:
    def __init__(self, world: World, request: Message) -> None:
        self._key = request.api_key
        self._prefix = world.prefix
        self._asked = {text.replace(world.prefix, "w-") for text in strings_of(request)}
        self._everywhere = () if self._key == _DESCRIBE_LOG_DIRS else _EVERYWHERE
        self._ids = {topic_id: f"<id of {name.removeprefix(world.prefix)}>" for name, topic_id in world.ids.items()}
        self._members = {
            group.member: f"<member of {group.name.removeprefix(world.prefix)}>"
            for group in world.groups
            if group.member
        }

    def struct(self, value: Struct) -> dict[str, Any]:
        found = {
            item.name: self._field(item.name, getattr(value, item.name))
            for item in value.fields
            if item.name not in _DROPPED
        }
        if self._key == _DESCRIBE_CONFIGS and found.get("resource_type") in _OWN_SETTINGS:
            found["configs"] = []
        return found

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            if name == "configs":
                value = [item for item in value if item.name not in _DROPPED_SETTINGS]
            elements = [self._field(name, item) for item in value]
            if elements and isinstance(elements[0], dict):
                if self._key == _FETCH and name == "responses":
                    elements = _merged(elements)
                elements = sorted((item for item in elements if self._is_of_this_world(item)), key=_order)
            return elements
        if isinstance(value, Struct):
            return self.struct(value)
        if name in _OF_TOKENS:
            return f"<{name}>" if value else None
        if isinstance(value, memoryview):
            return bytes(value)
        if isinstance(value, str):
            value = value.replace(self._prefix, "w-") if self._prefix else value
        if name == "topic_name" and value not in self._asked and not value.startswith("w-"):
            return "<of another world>"  # where the next page begins
        if name in _SIGNS:
            return f"<{name}>" if value not in ("", -1) else value
        if name in _WORDS:
            return "<words>" if value else value
        if name in _IF_POSITIVE:
            return f"<{name}>" if value > 0 else value
        if name == "topic_id":
            return self._ids.get(value, "<id>" if value.int else None)
        if name in _MEMBERS and value:
            return self._members.get(value, value if value in self._asked else "<member>")
        if name == "producer_id" and self._key == _INIT_PRODUCER_ID:
            return "<producer>" if value >= 0 else value
        return value

    def _is_of_this_world(self, item: dict[str, Any]) -> bool:
        if self._key not in _ABOUT_EVERYTHING:
            return True
        name = next((item[field] for field in _NAMES if isinstance(item.get(field), str)), None)
        return name is None or name.startswith(("w-", "<")) or name in self._asked or name in self._everywhere


def _merged(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A fetch's topics, each once: Kafka's order of partitions, errors first, splits a topic where another stands
    between."""
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for topic in topics:
        first = found.setdefault((topic["topic"], topic["topic_id"]), topic)
        if first is not topic:
            first["partitions"] = sorted(first["partitions"] + topic["partitions"], key=_order)
    return list(found.values())


def _order(item: dict[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = tuple(str(item[field]) for field in (*_NAMES, "entity_type", "entity") if field in item)
    return names, tuple(item[field] for field in _NUMBERS if isinstance(item.get(field), int))


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[Difference]:
    """Where two plain answers differ: the path to it, without numbers of elements, and what each has there."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours:
            yield from differences(ours[name], theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other, f"{path}[]")
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield f"{path}[]", _elements(ours), _elements(theirs)
    elif ours != theirs:
        yield path, _shown(ours), _shown(theirs)


def _elements(found: list[Any]) -> str:
    """How many there are, with what names them and their errors."""
    named = [(*_order(item)[0], *_order(item)[1]) for item in found if isinstance(item, dict)]
    return f"{len(found)} elements: {_shown(named or found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"
