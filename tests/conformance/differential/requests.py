"""A request from a seed. Both sides draw from the same seed and from lists of the same lengths, so they get the same
request, each with the ids that its own broker gave (topics', members')."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

from jesenska.base.identifiers import TopicPartition
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.wire.codec import encode
from jesenska.wire.consumer_protocol import encode_assignment, encode_subscription
from jesenska.wire.headers import request_head
from jesenska.wire.language import BOOLEAN, STRING, Array, Field, Message, Struct, Type
from jesenska.wire.registry import APIS
from tests.conformance.differential.world import BASE_MS, PRODUCER_ID, Group, World
from tests.processes.fuzz.well_formed import WellFormed
from tests.units.records.raw_batches import raw_batch, raw_record

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_NO_ID, _SOME_ID = uuid.UUID(int=0), uuid.UUID(int=7 << 64 | 7)
_OFFSETS = (0, 0, 1, 3, 4, 9, 10, -1, -2, _INT64_MAX, -(2**63))
_EPOCHS = (-1, -1, -1, 0, 0, 1, -2, _INT32_MAX)
_PARTITIONS = (0, 0, 0, 0, 1, 2, 3, 7, -1, _INT32_MAX)
_TIMEOUTS = (10_000, 10_000, 10_000, 10_000, 0, -1)
_GENERATIONS = (-1, 0, 1, 2, _INT32_MAX)

#: By field: what it may hold, likely values several times. A field of one struct goes before one of any.
_INTEGERS: dict[str, Sequence[int]] = {
    "partition": _PARTITIONS,
    "partitions": _PARTITIONS,
    "index": _PARTITIONS,
    "partition_index": _PARTITIONS,
    "partition_indexes": _PARTITIONS,
    "fetch_offset": _OFFSETS,
    "offset": _OFFSETS,
    "committed_offset": _OFFSETS,
    "log_start_offset": (-1, -1, -1, 0, 5, -7),
    "high_watermark": (_INT64_MAX, 0, 5),
    "timestamp": (
        -1,
        -1,
        -2,
        -2,
        -3,
        -4,
        -5,
        -6,
        -7,
        0,
        1,
        BASE_MS,
        BASE_MS + 3,
        BASE_MS + 8,
        BASE_MS + 10**6,
        _INT64_MAX,
        -(2**63),
    ),
    "max_num_offsets": (1, 1, 5, 0, -1, _INT32_MAX),
    "current_leader_epoch": _EPOCHS,
    "leader_epoch": (0, 0, *_EPOCHS),
    "last_fetched_epoch": _EPOCHS,
    "committed_leader_epoch": _EPOCHS,
    "max_bytes": (1 << 20, 1 << 20, 1 << 20, 0, 1, 100, 300, -1, _INT32_MAX),
    "partition_max_bytes": (1 << 20, 1 << 20, 1 << 20, 0, 1, 100, 300, -1, _INT32_MAX),
    "max_wait_ms": (0, 0, 0, 1, 20, -1, -(2**31)),
    "min_bytes": (0, 1, 1, -1, 100),
    "isolation_level": (0, 0, 0, 1, 1, 2, -1, 127),
    "replica_id": (-1, -1, -1, -1, -1, -1, -2, -3, 0, 1),
    "replica_epoch": (-1, 0),
    "session_id": (0, 0, 0, 0, 1, -1),
    "session_epoch": (-1, -1, -1, 0, 0, 1, -5, _INT32_MAX),
    "acks": (-1, -1, -1, -1, -1, 1, 1, 1, 1, 0, 2, -2),
    "timeout_ms": _TIMEOUTS,
    "session_timeout_ms": (60_000, 60_000, 60_000, 60_000, 0, -1, 5_999, 1_800_001, _INT32_MAX),
    "rebalance_timeout_ms": (*(100,) * 9, 0),
    "generation_id": _GENERATIONS,
    "generation_id_or_member_epoch": _GENERATIONS,
    "member_epoch": (-1, -1, 0, 1, -2),
    "commit_timestamp": (-1, -1, BASE_MS, 0),
    "retention_time_ms": (-1, -1, -1, 0, 10**9, -2),
    "key_type": (0, 0, 0, 0, 1, 2, 3, -1),
    "num_partitions": (1, 1, 2, 3, -1, 0, -2),
    "replication_factor": (1, 1, 1, -1, 0, 2, -2, 32767),
    "broker_ids": (0, 0, 0, 0, 1, -1),
    "replicas": (0, 0, 0, 1, -1),
    "count": (1, 2, 3, 4, 5, 0, -1),
    "transaction_timeout_ms": (60_000, 60_000, 0, -1, _INT32_MAX),
    "producer_id": (-1, -1, -1, PRODUCER_ID, 2**40, -2),
    "producer_epoch": (-1, -1, -1, 0, 5, 32767, -2),
    "resource_type": (2, 2, 2, 2, 2, 4, 4, 8, 16, 0, 1, 3, -1),
    "resource_types": (2, 4, 8, 16, 0, 1, 3, -1),
    "resource_type_filter": (1, 2, 3, 4, 0, 99, -1),
    "resource_pattern_type": (3, 3, 4, 1, 2, 0, 99),
    "pattern_type_filter": (3, 3, 4, 1, 2, 0, 99),
    "operation": (1, 2, 3, 3, 0, 99, -1),
    "permission_type": (1, 2, 3, 3, 0, 99),
    "config_operation": (0, 0, 0, 1, 1, 2, 3),  # an unknown one makes Kafka's controller step down
    "election_type": (0, 0, 1, 2, -1),
    "match_type": (0, 1, 2, 3, -1),
    "producer_id_filters": (PRODUCER_ID, -1, 0),
    "duration_filter": (-1, 0, 5, -7),
    "response_partition_limit": (2000, 2000, 1, 2, 0, -1, _INT32_MAX),
    "endpoint_type": (1, 1, 1, 2, 0, 3, -1),
}
_STRINGS: dict[str, Sequence[str]] = {
    "client_software_name": ("apache-kafka-java", "a", "", "-", "a b", "a-", "ä", "a" * 1000),
    "client_software_version": ("4.3.1", "unknown", "", ".", "1 2"),
    "mechanism": ("PLAIN", "", "NONE"),
    "rack_id": ("", "rack"),
    "cluster_id": ("x",),
    "reason": ("", "because", "x" * 300),
    "committed_metadata": ("", "m", "x" * 4096, "x" * 4097),
    "protocol_type": ("consumer", "consumer", "consumer", "", "connect"),
    "protocol_name": ("range", "range", "", "roundrobin"),
    "states_filter": ("Stable", "Empty", "stable", "PreparingRebalance", "Dead", "nothing", ""),
    "types_filter": ("classic", "Classic", "consumer", "nothing", ""),
    "state_filters": ("Ongoing", "Dead", "ongoing", "nothing", ""),
    "transactional_id": ("transactional",),
    "transactional_id_pattern": ("a.*", "", "(", "[a-z]+", "a{2,1}"),
    "entity_type": ("user", "user", "client-id", "ip", "", "nothing"),
    "match": ("", "someone", "127.0.0.1"),
    "principal": ("User:a", "", "nobody"),
    "host": ("*", "127.0.0.1", ""),
    "principal_filter": ("User:a", ""),
    "host_filter": ("*", ""),
    "configuration_keys": ("retention.ms", "cleanup.policy", "retention.ms", "nothing", ""),
    "JoinGroupRequestProtocol.name": ("range", "range", "roundrobin", ""),
    "DescribeUserScramCredentialsRequestUser.name": ("a", "b", ""),
    "entity_name": ("someone", "someone", "127.0.0.1", "::1", ""),
    "AlterClientQuotasRequestOp.key": (
        "producer_byte_rate",
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
        "nothing",
    ),
}
_CONFIG_NAMES = (
    "retention.ms",
    "retention.ms",
    "cleanup.policy",
    "cleanup.policy",
    "max.message.bytes",
    "segment.bytes",
    "min.insync.replicas",
    "compression.type",
    "message.timestamp.type",
    "leader.replication.throttled.replicas",
    "nothing",
    "",
)
_CONFIG_VALUES = (
    "1000000",
    "1000000",
    "compact",
    "delete",
    "compact,delete",
    "-1",
    "-5",
    "",
    "abc",
    "1",
    "9" * 19,
    "gzip",
    "CreateTime",
    "0:0",
    " 7 ",
    "7.5",
)
_CONFIG_STRUCTS = ("CreateTopicsRequestConfig", "AlterConfigsRequestConfig", "IncrementalAlterConfigsRequestConfig")
_TOPIC_FIELDS = ("name", "topic", "topic_names", "topic_name")
_GROUP_FIELDS = ("group_id", "groups", "groups_names", "coordinator_keys", "key")
#: Share of values that are drawn from nothing but the type.
_WILD = 0.02
#: Share of requests in which something stands twice.
_WITH_DOUBLES = 0.15
#: Share of nulls where another than the usual makes more sense.
_NULLS = {"transactional_id": 0.9, "records": 0.03, "group_instance_id": 0.7, "cursor": 0.7, "assignments": 0.8}


def batches() -> list[bytes]:
    """What producers may send: good and bad, in each format."""
    records = [(BASE_MS + number, b"key %d" % number, b"value " * 5, ()) for number in range(3)]
    good = bytes(encode_batch(records))
    two = raw_record(0) + raw_record(1)
    return [
        good,
        good,
        good,
        bytes(encode_batch(records, Codec.GZIP)),
        bytes(encode_batch(records, Codec.ZSTD)),
        bytes(encode_batch(records[:1], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)),
        bytes(encode_batch(records[:1], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=2)),
        bytes(encode_batch(records[:1], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=9)),
        bytes(encode_batch(records[:1], producer_id=PRODUCER_ID + 1, producer_epoch=3, base_sequence=7)),
        bytes(encode_batch(records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0, is_transactional=True)),
        bytes(encode_batch([(BASE_MS, None, None, ())])),
        bytes(encode_batch([(-1, b"key", b"no time", ())])),
        bytes(encode_batch([(BASE_MS, b"key", b"x" * 3000, ())])),
        good + good,
        good[:-1],
        good[:60],
        good[:-1] + b"\0",
        b"",
        bytes(raw_batch(two, 3)),
        bytes(raw_batch(two, 2, attributes=0x20)),
    ]


class Requests(WellFormed):
    """Requests for one side, whose ids are in its world."""

    def __init__(self, world: World) -> None:
        super().__init__({}, [world.prefix + "three"], list(world.ids.values()), batches())
        self._world = world
        self._topics = [*world.topics, *world.topics, world.prefix + "three", world.prefix + "three", world.unknown]
        self._odd_topics = [
            "",
            ".",
            "..",
            "b d",
            world.prefix + "x" * (249 - len(world.prefix)),
            world.prefix + "x" * (250 - len(world.prefix)),
            "ä",
        ]
        self._groups = world.groups
        self._focus = Group("")
        self._doubles = False
        self._owner = ""

    def request(self, key: int, version: int, source: random.Random) -> Message:
        """The request that the numbers of `source` make."""
        self._focus = source.choice(self._groups)
        self._doubles = source.random() < _WITH_DOUBLES
        made: Message = self._struct(APIS[key].request, version, source, 0)
        return made

    def _struct(self, kind: type[Struct], version: int, source: random.Random, depth: int) -> Any:
        owner, self._owner = self._owner, kind.__name__
        try:
            values: dict[str, Any] = {}
            for item in kind.fields:
                if not item.present(version) or (item.tag is not None and source.random() < 0.7):
                    continue
                if item.null_allowed(version) and source.random() < _NULLS.get(item.name, 0.2):
                    values[item.name] = None
                else:
                    values[item.name] = self._value(item, item.type, version, source, depth)
            return kind(**values)
        finally:
            self._owner = owner

    def _value(self, item: Field, kind: Any, version: int, source: random.Random, depth: int) -> Any:
        if isinstance(kind, Array):
            count = source.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))
            found = [self._value(item, kind.element, version, source, depth + 1) for _ in range(count)]
            if found and self._doubles and source.random() < 0.5:
                found.append(found[0])  # the same once more
            return found
        return super()._value(item, kind, version, source, depth)

    def _scalar(self, item: Field, kind: Type, source: random.Random) -> Any:
        name = item.name
        if kind is BOOLEAN:
            return source.random() < 0.5
        special = self._of_group(name, source)
        if special is not None:
            return special
        if name in _INTEGERS:
            return source.choice(_INTEGERS[name])
        if name == "topic_id":
            return source.choice([*self._ids, *self._ids, _NO_ID, _SOME_ID])
        if kind is STRING:
            return self._string(name, source)
        if name in ("metadata", "assignment"):
            topic = self._world.prefix + "three"
            return source.choice(
                [encode_subscription([topic], [], -1), encode_assignment([TopicPartition(topic, 0)]), b"", b"\0\1"]
            )
        return super()._scalar(item, kind, source)

    def _of_group(self, name: str, source: random.Random) -> Any:
        """Values that belong together mostly do."""
        focus = self._focus
        if name in ("generation_id", "generation_id_or_member_epoch") and source.random() < 0.7:
            return focus.generation
        if name == "member_id":
            return source.choice((focus.member, focus.member, focus.member, focus.member, "", "nobody"))
        if name == "group_instance_id":
            return source.choice((focus.instance or "instance", "instance", "another", ""))
        if name in _GROUP_FIELDS:
            others = [group.name for group in self._groups]
            return source.choice([focus.name] * 12 + others + [""])
        return None

    def _string(self, name: str, source: random.Random) -> str:
        if source.random() < _WILD:
            return source.choice(("", "x" * 300, "ä€😀", "\0"))
        own = _STRINGS.get(f"{self._owner}.{name}") or _STRINGS.get(name)
        if own is not None:
            return source.choice(own)
        if self._owner in _CONFIG_STRUCTS:
            return source.choice(_CONFIG_NAMES if name == "name" else _CONFIG_VALUES)
        if name == "resource_name":
            return source.choice([*self._topics, *self._topics, "0", "0", "0", "", "7", "x"])
        if name in _TOPIC_FIELDS or name == "resource_name_filter":
            return source.choice(self._odd_topics) if source.random() < 0.1 else source.choice(self._topics)
        return source.choice(("", "something"))


def frame(request: Message, version: int, correlation_id: int) -> bytes:
    """Without the length in front."""
    api = APIS[request.api_key]
    return bytes(
        request_head(api.key, version, correlation_id, "differential", api.request_header_version(version))
    ) + encode(request, version)
