"""The one list of differences between jesenska and Apache Kafka that the tester meets, each with its reason. What stands here and is met no more is
reported by a long run, so that the list stays true.

Three parts: what is meant so, what Apache Kafka itself fails at (it answers UNKNOWN_SERVER_ERROR, or not at all), and what is to be mended. An entry of
the last part goes with the change that mends it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from jesenska.wire.language import Message, Struct


@dataclass(frozen=True)
class Known:
    """A difference by the API's key, the path of the field and what each side has there (regular expressions over the whole text; None: anything)."""

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


# --- what a request has in it ---------------------------------------------------------------------------------------------------------------

_NAMES: Final = ("name", "topic", "topic_name", "topic_id", "group_id", "resource_name", "partition", "partition_index", "index")


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


def _doubled_or_empty(request: Any) -> bool:
    """True where a topic, partition, group or resource stands twice, or one has nothing in it."""
    for struct in _structs(request):
        for field in struct.fields:
            found = getattr(struct, field.name)
            if isinstance(found, list) and (len(_different(found)) < len(found) or (not found and struct is not request)):
                return True
    return False


def _different(found: list[Any]) -> set[str]:
    return {repr([getattr(item, field.name) for field in item.fields if field.name in _NAMES]) if isinstance(item, Struct) else repr(item) for item in found}


def _of_transactions(request: Any) -> bool:
    return any(value is not None for value in _values(request, "transactional_id")) or any(_is_transactional(value) for value in _values(request, "records"))


def _is_transactional(records: Any) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_AT and bool(records[_ATTRIBUTES_AT] & 0x10)


def _is_one_good_batch(records: Any) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_AT and int.from_bytes(records[8:12], "big") == len(records) - 12 and records[16] == 2


def _has_odd_records(request: Any) -> bool:
    return not all(_is_one_good_batch(value) for value in _values(request, "records"))


def _of_unknown_isolation(request: Any) -> bool:
    return request.isolation_level not in (0, 1)


def _from_a_replica(request: Any) -> bool:
    return any(value != -1 for value in _values(request, "replica_id"))


def _with_negative_epoch(request: Any) -> bool:
    return any(value < -1 for value in _values(request, "current_leader_epoch"))


def _without_time(request: Any) -> bool:
    return bool(request.timeout_ms <= 0)


def _known_kinds(request: Any) -> bool:
    return all(value in _KINDS for value in _values(request, "resource_type"))


_ATTRIBUTES_AT: Final = 22
#: Of resources with settings: topics, brokers, loggers, clients' metrics, groups.
_KINDS: Final = (2, 4, 8, 16, 32)
_TRANSACTIONS_AND_SHARE_GROUPS: Final = (1, 2)
_CLIENT_METRICS: Final = 16
_HALF_OF_INT32: Final = 2**30

# --- meant so -------------------------------------------------------------------------------------------------------------------------------

_MEANT: Final = (
    Known((18,), r"\.(supported_features|finalized_features)\[\]|\.finalized_features_epoch", "no feature is kept here; Kafka 4.3.1 has those of KRaft"),
    Known((0,), ".*", "transactions are not served yet", when=_of_transactions),
    Known((22,), ".*", "transactions are not served yet", when=_of_transactions),
    Known(
        (32,),
        r"\.results\[\]\.configs\[\]",
        "settings of topics that 4.x has dropped are told: old formats are served here",
        ours="36 elements.*",
        theirs="33 elements.*",
    ),
    Known(
        (32,),
        ".*",
        "3.9.1 in ZooKeeper mode has no subscriptions to clients' metrics; 4.3.1, which has, does not serve version 0",
        versions=(0,),
        when=lambda request: _CLIENT_METRICS in _values(request, "resource_type"),
    ),
    Known(
        (32,), r".*\.value", "defaults are those of the documents, 1.0; Kafka 3.9.1 and 4.3.1 have others", ours="'1.0-IV0'", theirs="'3.0-IV1'", versions=(0,)
    ),
    Known((1,), r".*\.records", "how much of a partition's limit is used when batches go out in an old format", versions=range(4)),
    Known((10,), ".*", "transactions and share groups are not served yet", when=lambda request: request.key_type in _TRANSACTIONS_AND_SHARE_GROUPS),
    Known((66,), r"\.transaction_states\[\]", "transactions are not served yet; Kafka has those that InitProducerId has begun", ours="0 elements.*"),
    Known(
        (33, 44),
        r".*error_(code|message)",
        "subscriptions to clients' metrics cannot be set here, since no client is asked for any",
        when=lambda request: _CLIENT_METRICS in _values(request, "resource_type"),
    ),
)

# --- Kafka fails ----------------------------------------------------------------------------------------------------------------------------

_KAFKA_FAILS: Final = (
    Known((1, 2), ".*", "Kafka does not foresee an unknown isolation level; here it reads uncommitted", when=_of_unknown_isolation),
    Known((1,), ".*", "Kafka does not foresee a negative limit of bytes", when=lambda request: request.max_bytes < 0),
    Known(
        (1,),
        ".*",
        "Kafka does not foresee the topic id 0",
        versions=range(13, 19),
        when=lambda request: any(not value.int for value in _values(request, "topic_id")),
    ),
    Known((3,), ".*", "Kafka does not foresee a topic without name and id", when=lambda request: None in _values(request, "name")),
    Known((75,), ".*", "Kafka does not foresee an empty name", when=lambda request: "" in _values(request, "name")),
    Known(
        (75,),
        ".*",
        "in Kafka the sum of a cursor's partition and the limit overflows",
        when=lambda request: request.cursor is not None and request.cursor.partition_index > _HALF_OF_INT32,
    ),
)

# --- to be mended ---------------------------------------------------------------------------------------------------------------------------

_TO_BE_MENDED: Final = (
    Known(
        (0, 1, 2, 3, 8, 9, 15, 19, 20, 32, 33, 42, 44, 47),
        ".*",
        "what stands twice or is empty: Kafka answers from a map, or refuses",
        when=_doubled_or_empty,
    ),
    # Produce, Fetch, offsets
    Known((0,), ".*", "acks outside -1, 0 and 1: Kafka looks at topics and batches first", when=lambda request: request.acks not in (-1, 0, 1)),
    Known((0,), ".*", "a batch that cannot be read: Kafka refuses the whole request, with the batch's code for each partition", when=_has_odd_records),
    Known((0,), r".*\.error_message", "Kafka says nothing where a topic or an epoch is not known"),
    Known((0,), r".*\.(error_code|base_offset)", "a zstd batch in an old request: Kafka takes it", ours="76|-1", versions=range(3)),
    Known((2,), r".*", "version 0: a time in the future, and an offset that is asked of a partition that is not there", versions=(0,)),
    Known((0,), r".*\.log_start_offset", "the log start offset of a partition whose batch was refused"),
    Known((1,), r".*\.aborted_transactions", "Kafka answers an empty list to who reads uncommitted", ours="None", theirs=r"\[\]"),
    Known((1, 2, 23), ".*", "requests with a replica's id are served as a consumer's", when=_from_a_replica),
    Known((1,), r".*\.partitions\[\]\..*", "Kafka looks at the last fetched epoch before the offset", versions=range(12, 19)),
    Known((1,), r"\.responses\[\]", "Fetch below 3: Kafka does not merge topics that stand apart", versions=range(3)),
    Known((2,), r".*\.error_code", "a time below zero that a version lacks: Kafka says so before it looks at the topic", ours="0|3|74|75", theirs="35"),
    Known((1, 2, 23), ".*", "an epoch below -1 is fenced in Kafka", when=_with_negative_epoch),
    Known((2, 23), r".*\.(leader_epoch|end_offset|offset)", "the epoch of a log without records"),
    # Metadata and topics
    Known((3,), r"\.topics\[\](\.error_code|\.partitions\[\]|)", "a topic that the request creates is not told at once", ours="0|[0-9]+ elements.*"),
    Known((3,), r"\.topics\[\].*", "topics by id and name in one request", versions=range(10, 14)),
    Known((3,), r".*\.topic_authorized_operations", "authorized operations of a topic that is not there"),
    Known((19, 20), ".*", "a time-out that has passed on arrival is REQUEST_TIMED_OUT in Kafka", when=_without_time),
    Known((19,), r"\.topics\[\]\.configs", "a failed topic's settings are an empty list in Kafka", ours="None", theirs=r"\[\]"),
    Known((19,), r"\.topics\[\]\.error_(code|message)", "which of several mistakes is told"),
    Known((20,), r"\.responses\[\].*", "topics by id and name that contradict each other, and unknown ids", versions=(6,)),
    Known((20,), r"\.responses\[\]\.error_(code|message)", "words of refused deletions; topics of a failed creation"),
    # settings
    Known((32,), r"\.results\[\]\.configs\[\]\.is_default", "version 0 tells no setting as default in Kafka 3.9.1", versions=(0,)),
    Known((32,), ".*", "a resource of an unknown kind makes Kafka refuse others in the request", when=lambda request: not _known_kinds(request)),
    Known((32,), r"\.results\[\]\.error_message", "settings of unknown names and topics"),
    Known((33, 44), r".*error_(code|message)", "which of several mistakes is told; limits of a broker's settings"),
    # groups
    Known((8,), r".*\.error_code", "OffsetCommit: unknown group with a generation; offsets in the tree, group without a name"),
    Known((9,), r"\.groups\[\].*", "OffsetFetch 9 and 10 of a classic group with a member's id and epoch", versions=(9, 10)),
    Known((9,), r"\.topics\[\].*", "offsets in the tree", versions=(0,)),
    Known((10,), r".*error_message", "Kafka says something, or the empty string, where nothing is wrong"),
    Known((11,), ".*", "JoinGroup: protocol types that contradict each other are judged before the member; the leader of a static rejoin"),
    Known((14,), ".*", "SyncGroup 5: a missing protocol is INCONSISTENT_GROUP_PROTOCOL before anything else", versions=(5,)),
    Known((15,), r"\.groups\[\]\.authorized_operations", "Kafka tells no operations of a group that is not there", ours="3400"),
    Known((15,), ".*", "the group without a name", when=lambda request: "" in request.groups),
    Known((16,), r"\.groups\[\]", "the group without a name", ours=r".*\(''.*"),
    Known((42,), r"\.results\[\]\.error_code", "the group without a name"),
    Known((47,), ".*", "the group without a name", when=lambda request: request.group_id == ""),
    Known((47,), r"\.topics\[\].*", "partitions of unknown topics in OffsetDelete"),
)


KNOWN: Final[tuple[Known, ...]] = (*_MEANT, *_KAFKA_FAILS, *_TO_BE_MENDED)
