"""The one list of differences between jesenska and Apache Kafka that the tester meets, each with its reason. What
stands here and is met no more fails a long run, so that the list stays true.

Three parts: what is meant so, what Apache Kafka itself fails at (it answers UNKNOWN_SERVER_ERROR, or not at all), and
what is to be mended. An entry of the last part goes with the change that mends it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from jesenska.base.topic_names import TOPIC_NAME_MAX_CHARS
from jesenska.wire.language import Message, Struct


@dataclass(frozen=True)
class Known:
    """A difference by the API's key, the path of the field and what each side has there (regular expressions over the
    whole text; None: anything)."""

    keys: Collection[int]
    path: str
    reason: str
    ours: str | None = None
    theirs: str | None = None
    versions: Collection[int] | None = None
    #: Of which requests.
    when: Callable[[Any], bool] | None = None

    def covers(self, request: Message, version: int, path: str, ours: str, theirs: str) -> bool:
        return (
            request.api_key in self.keys
            and re.fullmatch(self.path, path) is not None
            and (self.ours is None or re.fullmatch(self.ours, ours, re.DOTALL) is not None)
            and (self.theirs is None or re.fullmatch(self.theirs, theirs, re.DOTALL) is not None)
            and (self.versions is None or version in self.versions)
            and (self.when is None or self.when(request))
        )


# --- what a request has in it ----------------------------------------------------------------------------------------

_NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "resource_name",
    "partition",
    "partition_index",
    "index",
)


def _structs(value: Any) -> Iterator[Struct]:
    if isinstance(value, list):
        for item in value:
            yield from _structs(item)
    elif isinstance(value, Struct):
        yield value
        for field in value.fields:
            yield from _structs(getattr(value, field.name))


def _values(request: Any, name: str) -> Iterator[Any]:
    """Whatever stands in fields of this name."""
    for struct in _structs(request):
        if any(field.name == name for field in struct.fields):
            yield getattr(struct, name)


def with_doubles(request: Any) -> bool:
    """True where a topic, partition, group, resource or protocol stands twice."""
    for struct in _structs(request):
        for field in struct.fields:
            found = getattr(struct, field.name)
            if isinstance(found, list) and len(_different(found)) < len(found):
                return True
    return False


def _different(found: list[Any]) -> set[str]:
    return {
        repr([getattr(item, field.name) for field in item.fields if field.name in _NAMES])
        if isinstance(item, Struct)
        else repr(item)
        for item in found
    }


def _of_transactions(request: Any) -> bool:
    return any(value is not None for value in _values(request, "transactional_id")) or any(
        _is_transactional(value) for value in _values(request, "records")
    )


def _is_transactional(records: Any) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_AT and bool(records[_ATTRIBUTES_AT] & 0x10)


def _is_one_batch(records: Any) -> bool:
    return len(records) > _ATTRIBUTES_AT and int.from_bytes(records[8:12], "big") + 12 == len(records)


def _of_unknown_isolation(request: Any) -> bool:
    return request.isolation_level not in (0, 1)


def _from_an_inner_replica(request: Any) -> bool:
    return any(value < -1 for value in _values(request, "replica_id"))


def _from_another_broker(request: Any) -> bool:
    return any(value >= 0 for value in _values(request, "replica_id"))


def _with_long_name(request: Any) -> bool:
    return any(len(value) > TOPIC_NAME_MAX_CHARS for value in _values(request, "topic"))


def _with_small_segments(request: Any) -> bool:
    """True where segment.bytes is a number below that of 4.0."""
    items = (item for struct in _structs(request) for item in getattr(struct, "configs", ()))
    return any(item.name == "segment.bytes" and re.fullmatch(r"\s*\d{1,7}\s*", item.value or "") for item in items)


def _replaces_settings_of_every_broker(request: Any) -> bool:
    return any((item.resource_type, item.resource_name) == (_BROKER, "") for item in request.resources)


_ATTRIBUTES_AT: Final = 22
_SHARE_GROUP: Final = 2
_BROKER: Final = 4
_CLIENT_METRICS: Final = 16
_HALF_OF_INT32: Final = 2**30


def _with_an_owner_without_a_type(request: Any) -> bool:
    return request.owner_principal_type is None and bool(request.owner_principal_name)


# --- meant so --------------------------------------------------------------------------------------------------------

_MEANT: Final = (
    Known(
        (20,),
        r"\.responses\[\]\.error_message",
        "a topic that the user may not delete is refused with words, as by 4.3.1",
        ours="'<words>'",
        theirs="None",
    ),
    Known(
        (27,),
        r"\.markers\[\]\.topics\[\]",
        "a topic whose name no topic can have is in the answer; Kafka leaves it out",
        ours="[0-9]+ elements.*",
        theirs="[0-9]+ elements.*",
    ),
    Known((44,), r"\.responses\[\]\.error_message", "a refusal of loggers has words", ours="'<words>'", theirs="None"),
    Known(
        (0,),
        r".*\.error_(code|message)",
        "a user that may not write to a topic is refused for that, also if the batch cannot be read",
        ours="29|None",
        theirs="2|'<words>'",
    ),
    Known(
        (30,),
        r"\.results\[\]\.error_(code|message)",
        "Kafka fails at the good rules of a request that has a malformed one (UNKNOWN_SERVER_ERROR)",
        theirs="-1|None",
    ),
    Known(
        (31,),
        r"\.filter_results\[\]\.error_(code|message)",
        "a filter with a number that is no type is refused, as by 4.3.1; 3.9.1 finds nothing with it",
        ours="42|'<words>'",
        theirs="0|None",
        versions=(0,),
    ),
    Known(
        (38,),
        r"\.(error_code|(token_requester_)?principal_(type|name))",
        "Kafka fails at an owner without a type (UNKNOWN_SERVER_ERROR); here it is a principal like any other",
        when=_with_an_owner_without_a_type,
    ),
    Known(
        (33, 44),
        r".*error_(code|message)",
        "Kafka 4.3.1 does not let a broker's min.insync.replicas be changed, for its eligible leader replicas' sake; "
        "there are none here",
        ours="0|None",
        theirs="40|'<words>'",
        when=lambda request: (
            _BROKER in _values(request, "resource_type") and "min.insync.replicas" in _values(request, "name")
        ),
    ),
    Known(
        (33,),
        r".*error_(code|message)",
        "Kafka 4.3.1 keeps min.insync.replicas among every broker's settings for the same sake, and refuses to "
        "replace them by any without it",
        ours="0|None",
        theirs="40|'<words>'",
        when=_replaces_settings_of_every_broker,
    ),
    Known(
        (19, 32),
        r".*\.configs\[\]\.config_source",
        "a topic's min.insync.replicas comes from that one",
        ours="5",
        theirs="3",
    ),
    Known(
        (32,),
        r".*\.synonyms\[\]",
        "and has it among its synonyms",
        ours=r"1 elements: \[\('min.insync.*",
        theirs=r"2 elements: \[\('min.insync.*",
    ),
    Known((0,), r".*\.error_message", "what is wrong with a batch is said in words", ours="'<words>'", theirs="None"),
    Known(
        (3,),
        r"\.topics\[\]\.error_code",
        "a topic that the request creates is LEADER_NOT_AVAILABLE, as in Kafka 3.9, so that a client can tell it "
        "from a deleted one",
        ours="5",
        theirs="3",
    ),
    Known(
        (3,),
        r"\.topics\[\]\.error_code",
        "Kafka 4 creates such a topic some time after its answer",
        ours="0",
        theirs="3",
    ),
    Known(
        (3,),
        r"\.topics\[\](\.partitions\[\])?",
        "Kafka 4 creates such a topic some time after its answer",
        ours="[0-9]+ elements.*",
        theirs="[0-9]+ elements.*",
        when=lambda request: not request.topics or request.allow_auto_topic_creation,
    ),
    Known((1,), r"\.session_id", "no session remembers a name that no topic can have", ours="0", when=_with_long_name),
    Known(
        (11,),
        "",
        "a rebalance time-out of 0 stands for the session's",
        ours="'WAITS'",
        when=lambda request: request.rebalance_timeout_ms <= 0,
    ),
    Known(
        (19,),
        r"\.topics\[\]",
        "3.9.1 in ZooKeeper mode answers twice what stands twice, 4.3.1 once",
        versions=(0, 1),
        when=with_doubles,
    ),
    Known(
        (20,),
        r"\.responses\[\]",
        "3.9.1 in ZooKeeper mode deletes and answers twice what stands twice; 4.3.1 refuses it",
        versions=(0,),
        when=with_doubles,
    ),
    Known(
        (19, 33, 44),
        r".*error_(code|message)",
        "segment.bytes may be as small as in 1.0; since 4.0 it is 1 MB at least",
        theirs="40|'<words>'",
        when=_with_small_segments,
    ),
    Known(
        (32,),
        r"\.results\[\]\.configs\[\]\.is_default",
        "version 0 tells what is a default, as 1.0; since there are sources Kafka says it of nothing",
        ours="True",
        versions=(0,),
    ),
    Known(
        (32,),
        r"\.results\[\]\.configs\[\]\.value",
        "the limit of times to come is that of 4.x",
        ours="'3600000'",
        versions=(0,),
    ),
    Known(
        (32,),
        r"\.results\[\]\.error_message",
        "that a topic is not there is said in words; Kafka has none",
        ours="'<words>'",
        theirs="''",
    ),
    Known(
        (18,),
        r"\.(supported_features|finalized_features)\[\]|\.finalized_features_epoch",
        "of Kafka 4.3.1's features only transaction.version is here",
    ),
    Known(
        (0,),
        r".*\.error_code",
        "acks that mean nothing are told before the coordinator of a transaction is asked",
        ours="21",
        when=lambda request: request.acks not in (-1, 0, 1) and _of_transactions(request),
    ),
    Known(
        (32,),
        ".*",
        "3.9.1 in ZooKeeper mode has no subscriptions to clients' metrics; 4.3.1, which has, does not serve version 0",
        versions=(0,),
        when=lambda request: _CLIENT_METRICS in _values(request, "resource_type"),
    ),
    Known(
        (1,),
        r".*\.records",
        "how much of a partition's limit is used when batches go out in an old format",
        versions=range(4),
    ),
    Known((10,), ".*", "share groups are not served yet", when=lambda request: request.key_type == _SHARE_GROUP),
    Known(
        (27,),
        ".*",
        "markers of no producer are refused here, each; Kafka fails with them, and answers some of the others",
        when=lambda request: any(item.producer_id < 0 or item.producer_epoch < 0 for item in request.markers),
    ),
    Known((66,), r"\.transaction_states\[\]\.producer_id", "each broker hands out its own numbers"),
    Known(
        (33, 44),
        r".*error_(code|message)",
        "subscriptions to clients' metrics cannot be set here, since no client is asked for any",
        when=lambda request: _CLIENT_METRICS in _values(request, "resource_type"),
    ),
)

# --- Kafka fails -----------------------------------------------------------------------------------------------------

_KAFKA_FAILS: Final = (
    Known(
        (11,),
        r"\.error_code",
        "Kafka keeps a group that a refused join has made, and then looks at protocols first",
        ours="25",
        theirs="23",
        when=lambda request: not request.protocols or not request.protocol_type,
    ),
    Known(
        (1,),
        r".*\.(error_code|aborted_transactions|current_leader\..*|high_watermark)",
        "the replica ids -2 and below are Kafka's own",
        when=_from_an_inner_replica,
    ),
    Known(
        (2,),
        ".*",
        "Kafka does not foresee a negative number of offsets",
        versions=(0,),
        when=lambda request: any(value < 0 for value in _values(request, "max_num_offsets")),
    ),
    Known(
        (8, 9),
        r"\.topics\[\]\.partitions\[\]\.error_code",
        "Kafka does not foresee the group without a name in the tree",
        ours="24|12",
        theirs="-1|12",
        versions=(0,),
        when=lambda request: request.group_id == "",
    ),
    Known(
        (11,),
        ".*",
        "Kafka counts a protocol that stands twice as two members' and chooses none, or fails",
        when=with_doubles,
    ),
    Known(
        (1, 2),
        ".*",
        "Kafka does not foresee an unknown isolation level; here it reads uncommitted",
        when=_of_unknown_isolation,
    ),
    Known((1,), ".*", "Kafka does not foresee a negative limit of bytes", when=lambda request: request.max_bytes < 0),
    Known(
        (1,),
        r".*\.partitions\[\]\..*",
        "Kafka does not foresee a negative limit of a partition's bytes",
        when=lambda request: any(value < 0 for value in _values(request, "partition_max_bytes")),
    ),
    Known(
        (1,),
        ".*",
        "Kafka does not foresee the topic id 0",
        versions=range(13, 19),
        when=lambda request: any(not value.int for value in _values(request, "topic_id")),
    ),
    Known(
        (3,),
        ".*",
        "Kafka does not foresee a topic without name and id",
        when=lambda request: None in _values(request, "name"),
    ),
    Known((75,), ".*", "Kafka does not foresee an empty name", when=lambda request: "" in _values(request, "name")),
    Known(
        (75,),
        ".*",
        "in Kafka the sum of a cursor's partition and the limit overflows",
        when=lambda request: request.cursor is not None and request.cursor.partition_index > _HALF_OF_INT32,
    ),
)

# --- to be mended ----------------------------------------------------------------------------------------------------

_TO_BE_MENDED: Final[tuple[Known, ...]] = (
    Known(
        (1,),
        r".*\.partitions\[\]\.current_leader\..*|\.node_endpoints\[\]",
        "a broker that follows nothing here is not told who leads",
        versions=range(16, 19),
        when=_from_another_broker,
    ),
    Known(
        (1,),
        r".*\.partitions\[\]\..*",
        "Kafka compares the last fetched epoch with its log, and answers where the two part",
        versions=range(12, 19),
        when=lambda request: any(value >= 0 for value in _values(request, "last_fetched_epoch")),
    ),
    Known(
        (0,),
        r".*\.(error_code|error_message|base_offset|log_start_offset)",
        "batches of format v2, two or part of one, in a request from before them: Kafka writes what is whole",
        ours="87|'<words>'|-1",
        versions=range(3),
        when=lambda request: any(
            value is not None and not _is_one_batch(value) for value in _values(request, "records")
        ),
    ),
)


KNOWN: Final[tuple[Known, ...]] = (*_MEANT, *_KAFKA_FAILS, *_TO_BE_MENDED)
