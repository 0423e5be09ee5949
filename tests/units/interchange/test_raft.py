"""The metadata log of KRaft mode: its records, its files, and the equivalent nodes.
tests/conformance/test_dump_decoders.py and test_interchange.py check that a real one is read as Kafka's own tool reads
it."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import CorruptMessageError, JesenskaError
from jesenska.interchange.raft.image import RaftImage
from jesenska.interchange.raft.log import RaftLog
from jesenska.interchange.raft.records import (
    RECORDS,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    LeaderChangeMessage,
    LeaderChangeVoter,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    UserScramCredentialRecord,
    read_control,
    read_record,
    write_record,
)
from jesenska.metadata.nodes import PartitionStateNode, ProducerIdBlock, TopicNode, decode_config
from jesenska.records.encode import encode_batch
from jesenska.records.header import TimestampType
from jesenska.records.record import Record
from jesenska.wire.codec import encode
from jesenska.wire.language import Message
from tests.units.wire.strategies import messages

_ID = uuid.UUID(int=9)


@given(st.data(), st.sampled_from(sorted(RECORDS)))
def test_every_record_is_read_as_it_was_written(data: st.DataObject, kind: int) -> None:
    declared = RECORDS[kind]
    version = data.draw(st.integers(*declared.versions))
    message = data.draw(messages(declared, version))
    assert read_record(write_record(message, version)) == MetadataRecord(version, message)


def _array(*numbers: int) -> str:
    """A compact array of int32."""
    return f"{len(numbers) + 1:02x}" + "".join(f"{number:08x}" for number in numbers)


_A_DIRECTORY = "02" + "0" * 30 + "0d"


@pytest.mark.parametrize(
    ("version", "message", "body"),
    [
        (0, PartitionRecord(partition_id=1, replicas=[2], leader=2), "00"),
        (
            1,
            PartitionRecord(partition_id=1, replicas=[2], leader=2, directories=[uuid.UUID(int=13)]),
            _A_DIRECTORY + "00",
        ),
        (
            2,
            PartitionRecord(
                partition_id=1,
                replicas=[2],
                leader=2,
                leader_recovery_state=1,
                eligible_leader_replicas=[3],
                last_known_elr=[4],
            ),
            "01" + "03" + "000101" + "0105" + _array(3) + "0205" + _array(4),
        ),
    ],
)
def test_a_partitions_record_has_kafkas_bytes(version: int, message: PartitionRecord, body: str) -> None:
    epochs = "ffffffff" * 2
    begin = f"0103{version:02x}" + "00000001" + "0" * 32 + _array(2) + _array() * 3 + "00000002" + epochs
    assert write_record(message, version).hex() == begin + body


def test_a_change_of_a_partition_has_kafkas_bytes() -> None:
    changes = {
        "isr": [1],
        "leader": 2,
        "replicas": [3],
        "removing_replicas": [4],
        "adding_replicas": [5],
        "leader_recovery_state": 0,
    }
    tags = "0005" + _array(1) + "010400000002" + "0205" + _array(3) + "0305" + _array(4) + "0405" + _array(5) + "050100"
    begin = "00000001" + "0" * 32
    assert write_record(PartitionChangeRecord(partition_id=1, **changes), 0).hex() == "010500" + begin + "06" + tags
    message = PartitionChangeRecord(
        partition_id=1, **changes, directories=[uuid.UUID(int=13)], eligible_leader_replicas=[6], last_known_elr=[7]
    )
    assert (
        write_record(message, 2).hex()
        == "010502" + begin + "09" + tags + "0605" + _array(6) + "0705" + _array(7) + "0811" + _A_DIRECTORY
    )
    assert write_record(PartitionChangeRecord(partition_id=1), 2).hex() == "010502" + begin + "00"


def test_a_quota_of_everybodys_default_has_kafkas_bytes() -> None:
    message = _quota("k", 2.0, ("user", None), ("client-id", "c"))
    entity = "03" + "05" + b"user".hex() + "00" + "00" + "0a" + b"client-id".hex() + "02" + b"c".hex() + "00"
    assert write_record(message, 0).hex() == "010e00" + entity + "02" + b"k".hex() + "4000000000000000" + "00" + "00"


def test_what_is_said_to_be_nothing_is_read_as_nothing() -> None:
    change = bytes.fromhex("010500" + "00000001" + "0" * 32 + "01" + "0301" + "00")
    assert read_record(change).message == PartitionChangeRecord(partition_id=1)
    nobody = bytes.fromhex(
        "010302" + "00000001" + "0" * 32 + _array() * 4 + "ffffffff" * 3 + "01" + "02" + "0101" + "00" + "0201" + "00"
    )
    assert read_record(nobody).message == PartitionRecord(partition_id=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"\0\0"), (b"\0\0\0", b"\0\0"), (b"\0\0\0\2", None), (b"\0\0\0\2", b"\0"), (b"\0\0\0\x63", b"\0\0")],
)
def test_a_control_record_that_says_nothing_is_none(key: bytes | None, value: bytes | None) -> None:
    assert read_control(Record(0, 0, TimestampType.CREATE_TIME, key, value)) is None


def test_a_control_record_that_ends_early_is_refused() -> None:
    with pytest.raises(CorruptMessageError):
        read_control(Record(0, 0, TimestampType.CREATE_TIME, b"\0\0\0\2", b"\0\0"))


def test_a_change_of_a_broker_has_kafkas_bytes() -> None:
    message = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=1, in_controlled_shutdown=1)
    begin = "00000001" + "0000000000000002"
    assert write_record(message, 1).hex() == "011101" + begin + "02" + "000101" + "010101"
    message.log_dirs = [uuid.UUID(int=13)]
    assert write_record(message, 2).hex() == "011102" + begin + "03" + "000101" + "010101" + "0211" + _A_DIRECTORY


@given(st.binary(max_size=60))
def test_bytes_of_chance_are_refused(value: bytes) -> None:
    try:
        read_record(value)
    except CorruptMessageError:
        pass


@pytest.mark.parametrize("value", [None, b"", b"\x01", b"\x02\x14\x00\x00", b"\x01\x63\x00\x00", b"\x01\x02\x09\x00"])
def test_a_record_of_another_kind_or_version_is_refused(value: bytes | None) -> None:
    with pytest.raises(CorruptMessageError):
        read_record(value)


# --- the files -------------------------------------------------------------------------------------------------------


def _batch(offset: int, *records: Message, epoch: int = 3) -> bytes:
    values = [(1, None, write_record(record, record.versions[1]), ()) for record in records]
    return bytes(encode_batch(values, base_offset=offset, leader_epoch=epoch))


def _control(offset: int, message: Message) -> bytes:
    return bytes(
        encode_batch(
            [(1, b"\0\0" + message.api_key.to_bytes(2, "big"), encode(message, 0), ())],
            base_offset=offset,
            is_control=True,
        )
    )


def _topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=uuid.uuid5(_ID, name))


def _names(log: RaftLog) -> list[str]:
    return [record.message.name for record in log.records() if isinstance(record.message, TopicRecord)]


def _snapshot(directory: Path, offset: int, *records: Message, whole: bool = True) -> None:
    content = _control(0, SnapshotHeaderRecord()) + _batch(1, *records)
    content += _control(1 + len(records), SnapshotFooterRecord()) if whole else b""
    (directory / f"{offset:020d}-0000000002.checkpoint").write_bytes(content)


def test_a_snapshot_and_the_log_behind_it(tmp_path: Path) -> None:
    voters = [LeaderChangeVoter(voter_id=1), LeaderChangeVoter(voter_id=2)]
    content = (
        _control(0, LeaderChangeMessage(leader_id=1, voters=voters))
        + _batch(1, _topic("a"), _topic("b"))
        + _batch(3, _topic("c"), epoch=5)
    )
    (tmp_path / f"{0:020d}.log").write_bytes(content)
    log = RaftLog(tmp_path)
    assert _names(log) == ["a", "b", "c"]
    assert (log.end_offset, log.epoch, log.voters) == (4, 5, 2)
    _snapshot(tmp_path, 2, _topic("in the snapshot"))
    assert _names(RaftLog(tmp_path)) == ["in the snapshot", "b", "c"]
    # One that was being written when the node died.
    _snapshot(tmp_path, 3, _topic("half"), whole=False)
    assert _names(RaftLog(tmp_path)) == ["in the snapshot", "b", "c"]
    (tmp_path / f"{0:020d}.log").rename(tmp_path / f"{9:020d}.log")
    with pytest.raises(JesenskaError, match="begins with offset 9, and no snapshot"):
        _names(RaftLog(tmp_path))


def test_transactions_count_when_they_have_ended(tmp_path: Path) -> None:
    content = _batch(0, BeginTransactionRecord(), _topic("committed")) + _batch(
        2, _topic("too"), EndTransactionRecord()
    )
    content += _batch(4, BeginTransactionRecord(), _topic("aborted"), AbortTransactionRecord(), _topic("alone"))
    content += _batch(8, BeginTransactionRecord(), _topic("open"))
    (tmp_path / f"{0:020d}.log").write_bytes(content)
    assert _names(RaftLog(tmp_path)) == ["committed", "too", "alone"]


def test_what_is_not_whole_at_the_end_is_left_away(tmp_path: Path) -> None:
    first, second = _batch(0, _topic("a")), _batch(1, _topic("b"))
    for cut in range(len(second) - 2):  # which are zeros
        (tmp_path / f"{0:020d}.log").write_bytes(first + second[:cut] + bytes(100))
        assert _names(RaftLog(tmp_path)) == ["a"]


def test_a_record_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    """The effect of such a record is not known."""
    newer = encode_batch([(1, None, b"\x01\x63\x00\x00", ())])
    (tmp_path / f"{0:020d}.log").write_bytes(newer)
    with pytest.raises(
        JesenskaError,
        match=r"offset 0 of .* is of a newer release \(no record of the kind 99 is known\): import it with a newer "
        r"release",
    ):
        _names(RaftLog(tmp_path))


# --- the state and its nodes -----------------------------------------------------------------------------------------


def _image(*records: Message) -> RaftImage:
    return RaftImage().take_all(MetadataRecord(record.versions[1], record) for record in records)


def _partition(number: int = 0, **more: object) -> PartitionRecord:
    fields: dict[str, object] = {"leader": 1, "leader_epoch": 4, "replicas": [1], "isr": [1]} | more
    return PartitionRecord(partition_id=number, topic_id=_ID, **fields)


def _state(*changes: Message) -> PartitionStateNode:
    nodes = _image(TopicRecord(name="t", topic_id=_ID), _partition(), *changes).nodes("one", 6)
    return PartitionStateNode.decode(nodes["/brokers/topics/t/partitions/0/state"].data or b"")


def _change(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=_ID, **fields)


def test_a_leader_that_is_named_begins_an_epoch() -> None:
    assert _state() == PartitionStateNode(1, 4, (1,), 6)
    assert _state(_change(isr=[1, 2])) == PartitionStateNode(1, 4, (1, 2), 6)
    assert _state(_change(leader=1), _change(leader=2, isr=[2])) == PartitionStateNode(2, 6, (2,), 6)


def test_the_last_one_in_sync_that_has_stopped_may_still_lead() -> None:
    """A broker that stops leaves the ISR, and is kept as eligible."""
    stopped = _change(leader=-1, isr=[], eligible_leader_replicas=[1], last_known_elr=[])
    assert _state(stopped) == PartitionStateNode(-1, 5, (1,), 6)
    assert _state(_change(leader=-1, isr=[], last_known_elr=[1])).isr == (1,)
    assert _state(stopped, ClearElrRecord(topic_name="t")).isr == ()
    assert _state(stopped, ClearElrRecord(topic_name="other")).isr == (1,)


def test_topics_come_and_go_with_their_settings() -> None:
    def setting(kind: int, of: str, name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value)

    other = uuid.UUID(int=10)
    image = _image(
        TopicRecord(name="t", topic_id=other),
        setting(2, "t", "retention.ms", "5"),
        RemoveTopicRecord(topic_id=other),
        TopicRecord(name="t", topic_id=_ID),
        _partition(1),
        _partition(0),
        setting(2, "t", "a", "1"),
        setting(2, "t", "b", "2"),
        setting(2, "t", "a", None),
        setting(4, "", "c", "3"),
        setting(4, "7", "d", "4"),
        setting(32, "some group", "e", "5"),
    )
    nodes = image.nodes("one", 6)
    assert TopicNode.decode(nodes["/brokers/topics/t"].data or b"") == TopicNode({0: (1,), 1: (1,)}, _ID)
    assert decode_config(nodes["/config/topics/t"].data or b"") == {"b": "2"}
    assert decode_config(nodes["/config/brokers/<default>"].data or b"") == {"c": "3"}
    assert decode_config(nodes["/config/brokers/7"].data or b"") == {"d": "4"}
    assert image.notes == [
        "Left out, since ZooKeeper mode does not have them: settings of the groups or metrics some group."
    ]


def _quota(key: str, value: float, *entity: tuple[str, str | None], remove: bool = False) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value,
        remove=remove,
    )


def test_quotas_and_credentials_of_a_user_share_a_node() -> None:
    credential = UserScramCredentialRecord(
        name="a b", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    image = _image(
        _quota("producer_byte_rate", 1000.0, ("user", "a b")),
        _quota("consumer_byte_rate", 5.0, ("user", "a b")),
        _quota("consumer_byte_rate", 0.0, ("user", "a b"), remove=True),
        _quota("producer_byte_rate", 1.0, ("user", "without")),
        _quota("producer_byte_rate", 0.0, ("user", "without"), remove=True),
        _quota("request_percentage", 12.0, ("client-id", "c"), ("user", None)),
        _quota("connection_creation_rate", 3.0, ("ip", None)),
        _quota("connection_creation_rate", 4.0, ("ip", "::1")),
        _quota("producer_byte_rate", 7.0, ("client-id", "x/y")),
        _quota("producer_byte_rate", 7.0, ("planet", "x")),
        credential,
        UserScramCredentialRecord(name="gone", mechanism=2),
        RemoveUserScramCredentialRecord(name="gone", mechanism=2),
    )
    nodes = image.nodes("one", 6)
    found = {
        path: decode_config(node.data or b"")
        for path, node in nodes.items()
        if path.startswith("/config/") and node.data
    }
    assert found == {
        "/config/users/a%20b": {
            "producer_byte_rate": "1000",
            "SCRAM-SHA-256": "salt=cw==,stored_key=aw==,server_key=dg==,iterations=4096",
        },
        "/config/users/<default>/clients/c": {"request_percentage": "12.0"},
        "/config/ips/<default>": {"connection_creation_rate": "3"},
        "/config/ips/::1": {"connection_creation_rate": "4"},
        "/config/clients/x%2Fy": {"producer_byte_rate": "7"},
    }
    assert "/config/users/<default>/clients" in nodes
    assert "/config/users/without" not in nodes
    assert image.notes == ["Left out: a quota of planet, which is not known."]


def test_acls_stand_where_kafka_in_zookeeper_mode_looks() -> None:
    def rule(number: int, name: str, **more: int) -> AccessControlEntryRecord:
        codes = {"resource_type": 2, "pattern_type": 3, "operation": 12, "permission_type": 2} | more
        return AccessControlEntryRecord(
            id=uuid.UUID(int=number), resource_name=name, principal="User:x", host="*", **codes
        )

    image = _image(
        rule(1, "t"),
        rule(2, "t", operation=3, permission_type=3),
        rule(3, "p", pattern_type=4, resource_type=5),
        rule(4, "gone"),
        RemoveAccessControlEntryRecord(id=uuid.UUID(int=4)),
        rule(5, "a/b"),
        rule(6, "operation", operation=99),
        rule(7, "resource", resource_type=99),
        rule(8, "permission", permission_type=99),
        rule(9, "pattern", pattern_type=99),
        rule(10, "..", pattern_type=4),
        DelegationTokenRecord(token_id="token"),
        ProducerIdsRecord(broker_id=1, next_producer_id=3000),
    )
    nodes = image.nodes("one", 6)
    acls = {path: json.loads(node.data) for path, node in nodes.items() if path.startswith("/kafka-acl") and node.data}
    who = {"principal": "User:x", "host": "*"}
    deny = {"permissionType": "Deny", "operation": "IdempotentWrite"} | who
    assert acls == {
        "/kafka-acl/Topic/t": {"version": 1, "acls": [deny, {"permissionType": "Allow", "operation": "Read"} | who]},
        "/kafka-acl-extended/prefixed/TransactionalId/p": {"version": 1, "acls": [deny]},
    }
    assert image.notes == [
        "Left out, since no node can have their names: ACLs of .., a/b, operation and 3 more.",
        "Left out: 1 delegation tokens; make new ones.",
    ]
    assert ProducerIdBlock.decode(nodes["/latest_producer_id_block"].data or b"") == ProducerIdBlock(1, 2000, 2999)
    early = _image(ProducerIdsRecord(broker_id=1, next_producer_id=500)).nodes("one", 6)
    assert ProducerIdBlock.decode(early["/latest_producer_id_block"].data or b"") == ProducerIdBlock(1, 0, 499)


def test_every_node_has_a_parent_and_every_order_of_strange_records_is_taken() -> None:
    """Records about things that do not exist change nothing."""
    source = random.Random(4)
    records: list[Message] = [
        _change(leader=3),
        _partition(),
        RemoveTopicRecord(topic_id=_ID),
        TopicRecord(name="t", topic_id=_ID),
        RemoveUserScramCredentialRecord(name="x", mechanism=1),
        RemoveAccessControlEntryRecord(id=_ID),
        UserScramCredentialRecord(name="x", mechanism=99),
    ]
    for _ in range(50):
        shuffled: Sequence[Message] = source.sample(records, len(records))
        nodes = _image(*shuffled).nodes("one", 6)
        assert all(path.rpartition("/")[0] in nodes or path.count("/") == 1 for path in nodes)
