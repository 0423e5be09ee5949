"""The records of `__cluster_metadata`, as of Apache Kafka 4.3.1. In KRaft mode Kafka stores in these records the
metadata that it stores in ZooKeeper in ZooKeeper mode.

    value    frame version uvarint = 1 | kind uvarint | version uvarint | the record, in the flexible form

The kind is called `key` in the declarations below. Control records report that a leader was elected, that a snapshot
begins or ends, or which voters there are. Their type is in the record's key, as in transaction markers."""

from __future__ import annotations

import uuid
from struct import Struct as Layout
from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError
from jesenska.records.record import Record
from jesenska.wire.codec import MalformedMessageError, decode, encode, read_uvarint, write_uvarint
from jesenska.wire.language import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    field,
)

FRAME_VERSION = 1


class BrokerEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class BrokerFeature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisterBrokerRecord(Message, key=0, versions=(0, 4), flexible=0):
    broker_id: int = field(INT32)
    is_migrating_zk_broker: bool = field(BOOLEAN, since=2)
    incarnation_id: uuid.UUID = field(UUID)
    broker_epoch: int = field(INT64)
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint))
    features: list[BrokerFeature] = field(Array(BrokerFeature))
    rack: str | None = field(STRING, nullable=0)
    fenced: bool = field(BOOLEAN, default=True)
    in_controlled_shutdown: bool = field(BOOLEAN, since=1)
    log_dirs: list[uuid.UUID] = field(Array(UUID), since=3, tag=0)
    cordoned_log_dirs: list[uuid.UUID] | None = field(Array(UUID), since=4, nullable=4, tag=1, default=None)


class UnregisterBrokerRecord(Message, key=1, versions=(0, 0), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)


class TopicRecord(Message, key=2, versions=(0, 0), flexible=0):
    name: str = field(STRING)
    topic_id: uuid.UUID = field(UUID)


class PartitionRecord(Message, key=3, versions=(0, 2), flexible=0):
    partition_id: int = field(INT32, default=-1)
    topic_id: uuid.UUID = field(UUID)
    replicas: list[int] = field(Array(INT32))
    isr: list[int] = field(Array(INT32))
    removing_replicas: list[int] = field(Array(INT32))
    adding_replicas: list[int] = field(Array(INT32))
    leader: int = field(INT32, default=-1)
    leader_recovery_state: int = field(INT8, tag=0)
    leader_epoch: int = field(INT32, default=-1)
    partition_epoch: int = field(INT32, default=-1)
    directories: list[uuid.UUID] = field(Array(UUID), since=1)
    eligible_leader_replicas: list[int] | None = field(Array(INT32), since=2, nullable=2, tag=1, default=None)
    last_known_elr: list[int] | None = field(Array(INT32), since=2, nullable=2, tag=2, default=None)


class ConfigRecord(Message, key=4, versions=(0, 0), flexible=0):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class PartitionChangeRecord(Message, key=5, versions=(0, 2), flexible=0):
    partition_id: int = field(INT32, default=-1)
    topic_id: uuid.UUID = field(UUID)
    isr: list[int] | None = field(Array(INT32), nullable=0, tag=0, default=None)
    leader: int = field(INT32, tag=1, default=-2)
    replicas: list[int] | None = field(Array(INT32), nullable=0, tag=2, default=None)
    removing_replicas: list[int] | None = field(Array(INT32), nullable=0, tag=3, default=None)
    adding_replicas: list[int] | None = field(Array(INT32), nullable=0, tag=4, default=None)
    leader_recovery_state: int = field(INT8, tag=5, default=-1)
    directories: list[uuid.UUID] | None = field(Array(UUID), since=1, nullable=1, tag=8, default=None)
    eligible_leader_replicas: list[int] | None = field(Array(INT32), since=2, nullable=2, tag=6, default=None)
    last_known_elr: list[int] | None = field(Array(INT32), since=2, nullable=2, tag=7, default=None)


class FenceBrokerRecord(Message, key=7, versions=(0, 0), flexible=0):
    id: int = field(INT32)
    epoch: int = field(INT64)


class UnfenceBrokerRecord(Message, key=8, versions=(0, 0), flexible=0):
    id: int = field(INT32)
    epoch: int = field(INT64)


class RemoveTopicRecord(Message, key=9, versions=(0, 0), flexible=0):
    topic_id: uuid.UUID = field(UUID)


class DelegationTokenRecord(Message, key=10, versions=(0, 0), flexible=0):
    owner: str = field(STRING)
    requester: str = field(STRING)
    renewers: list[str] = field(Array(STRING))
    issue_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    expiration_timestamp: int = field(INT64)
    token_id: str = field(STRING)


class UserScramCredentialRecord(Message, key=11, versions=(0, 0), flexible=0):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    salt: memoryview | bytes = field(BYTES)
    stored_key: memoryview | bytes = field(BYTES)
    server_key: memoryview | bytes = field(BYTES)
    iterations: int = field(INT32)


class FeatureLevelRecord(Message, key=12, versions=(0, 0), flexible=0):
    name: str = field(STRING)
    feature_level: int = field(INT16)


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class ClientQuotaRecord(Message, key=14, versions=(0, 0), flexible=0):
    entity: list[EntityData] = field(Array(EntityData))
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOLEAN)


class ProducerIdsRecord(Message, key=15, versions=(0, 0), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64)


class BrokerRegistrationChangeRecord(Message, key=17, versions=(0, 3), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    fenced: int = field(INT8, tag=0)
    in_controlled_shutdown: int = field(INT8, since=1, tag=1)
    log_dirs: list[uuid.UUID] = field(Array(UUID), since=2, tag=2)
    cordoned_log_dirs: list[uuid.UUID] | None = field(Array(UUID), since=3, nullable=3, tag=3, default=None)


class AccessControlEntryRecord(Message, key=18, versions=(0, 0), flexible=0):
    id: uuid.UUID = field(UUID)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class RemoveAccessControlEntryRecord(Message, key=19, versions=(0, 0), flexible=0):
    id: uuid.UUID = field(UUID)


class NoOpRecord(Message, key=20, versions=(0, 0), flexible=0):
    """A record without content, which only advances the log's offset."""


class ZkMigrationStateRecord(Message, key=21, versions=(0, 0), flexible=0):
    zk_migration_state: int = field(INT8)


class RemoveUserScramCredentialRecord(Message, key=22, versions=(0, 0), flexible=0):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class BeginTransactionRecord(Message, key=23, versions=(0, 0), flexible=0):
    name: str | None = field(STRING, nullable=0, tag=0, default=None)


class EndTransactionRecord(Message, key=24, versions=(0, 0), flexible=0):
    """Ends a metadata transaction: the records since its begin take effect."""


class AbortTransactionRecord(Message, key=25, versions=(0, 0), flexible=0):
    reason: str | None = field(STRING, nullable=0, tag=0, default=None)


class RemoveDelegationTokenRecord(Message, key=26, versions=(0, 0), flexible=0):
    token_id: str = field(STRING)


class ControllerEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class ControllerFeature(Struct):
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisterControllerRecord(Message, key=27, versions=(0, 0), flexible=0):
    controller_id: int = field(INT32)
    incarnation_id: uuid.UUID = field(UUID)
    zk_migration_ready: bool = field(BOOLEAN)
    end_points: list[ControllerEndpoint] = field(Array(ControllerEndpoint))
    features: list[ControllerFeature] = field(Array(ControllerFeature))


class ClearElrRecord(Message, key=28, versions=(0, 0), flexible=0):
    topic_name: str = field(STRING)


RECORDS: dict[int, type[Message]] = {
    kind.api_key: kind
    for kind in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}


# --- control records -------------------------------------------------------------------------------------------------


class LeaderChangeVoter(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: uuid.UUID = field(UUID, since=1)


class LeaderChangeMessage(Message, key=2, versions=(0, 1), flexible=0):
    version: int = field(INT16)
    leader_id: int = field(INT32)
    voters: list[LeaderChangeVoter] = field(Array(LeaderChangeVoter))
    granting_voters: list[LeaderChangeVoter] = field(Array(LeaderChangeVoter))


class SnapshotHeaderRecord(Message, key=3, flexible=0):
    version: int = field(INT16)
    last_contained_log_timestamp: int = field(INT64)


class SnapshotFooterRecord(Message, key=4, flexible=0):
    version: int = field(INT16)


class KRaftVersionRecord(Message, key=5, flexible=0):
    version: int = field(INT16)
    k_raft_version: int = field(INT16)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class VoterEndpoint(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class Voter(Struct):
    voter_id: int = field(INT32)
    voter_directory_id: uuid.UUID = field(UUID)
    endpoints: list[VoterEndpoint] = field(Array(VoterEndpoint))
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


class VotersRecord(Message, key=6, flexible=0):
    version: int = field(INT16)
    voters: list[Voter] = field(Array(Voter))


#: The control records of this log, by the type in their keys. The types 0 and 1, which belong to transaction markers,
#: are left out.
CONTROL_RECORDS: dict[int, type[Message]] = {
    kind.api_key: kind
    for kind in (LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord)
}
_CONTROL_KEY = Layout(">hh")
_VERSION = Layout(">h")


class MetadataRecord(NamedTuple):
    """A record of the metadata log, with the version in which it was written."""

    version: int
    message: Message


class UnknownRecordError(CorruptMessageError):
    """The error that is raised for a metadata record of an unknown kind or version, which a newer release of Kafka has
    written."""


def read_record(value: bytes | None) -> MetadataRecord:
    """Returns the metadata record in `value`. Raises UnknownRecordError for an unknown kind or version, and
    CorruptMessageError for bytes that are not a record."""
    view = memoryview(value or b"")
    try:
        frame, position = read_uvarint(view, 0, len(view))
        kind, position = read_uvarint(view, position, len(view))
        version, position = read_uvarint(view, position, len(view))
        if frame != FRAME_VERSION:
            raise UnknownRecordError(f"its frame has the version {frame}")
        declared = RECORDS.get(kind)
        if declared is None:
            raise UnknownRecordError(f"no record of the kind {kind} is known")
        low, high = declared.versions
        if not low <= version <= high:
            raise UnknownRecordError(f"{declared.__name__} has the version {version}, known are {low} to {high}")
        return MetadataRecord(version, decode(declared, version, view[position:]))
    except MalformedMessageError as error:
        raise CorruptMessageError(f"the record cannot be read: {error}") from error


def write_record(message: Message, version: int) -> bytes:
    """Returns the bytes of a metadata record, in the form that `read_record` reads."""
    out = bytearray()
    for number in (FRAME_VERSION, message.api_key, version):
        write_uvarint(out, number)
    return bytes(out) + encode(message, version)


def read_control(record: Record) -> MetadataRecord | None:
    """Returns the control record of the metadata log. Returns None if the record has another type. Raises
    UnknownRecordError for an unknown version, and CorruptMessageError for bytes that are not a record."""
    key, value = record.key, record.value
    if key is None or len(key) < _CONTROL_KEY.size or value is None or len(value) < _VERSION.size:
        return None
    declared = CONTROL_RECORDS.get(_CONTROL_KEY.unpack_from(key)[1])
    if declared is None:
        return None
    # The record's first field is its version.
    version = _VERSION.unpack_from(value)[0]
    low, high = declared.versions
    if not low <= version <= high:
        raise UnknownRecordError(f"{declared.__name__} has the version {version}, known are {low} to {high}")
    try:
        return MetadataRecord(version, decode(declared, version, value))
    except MalformedMessageError as error:
        raise CorruptMessageError(f"the control record at offset {record.offset} cannot be read: {error}") from error
