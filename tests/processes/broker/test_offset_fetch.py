"""OffsetFetch of classic groups in the versions that name a member (9 and 10): Apache Kafka 3.9.1 and 4.3.1 look at
neither member nor epoch there."""

from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
)
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.processes.cli.groups import fill
from tests.raw_connection import RawConnection

_GROUP, _TOPIC = "offset-fetch", "offset-fetch"


@pytest.fixture(scope="module")
def member(broker: BrokerProcess) -> str:
    """The member of a stable group that has committed offset 5."""
    fill(broker, _TOPIC, 1, 1)
    with RawConnection(broker.bootstrap) as connection:
        wanted = JoinGroupRequest(
            group_id=_GROUP,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert (
            connection.ask(FindCoordinatorRequest(key=_GROUP), 1, FindCoordinatorResponse).error_code == ErrorCode.NONE
        )
        joined = connection.ask(wanted, 3, JoinGroupResponse)
        assert joined.error_code == ErrorCode.NONE
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        synced = SyncGroupRequest(
            group_id=_GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
        )
        assert connection.ask(synced, 2, SyncGroupResponse).error_code == ErrorCode.NONE
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id=_GROUP,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=[part])],
        )
        assert connection.ask(commit, 5, OffsetCommitResponse).topics[0].partitions[0].error_code == ErrorCode.NONE
    return joined.member_id


@pytest.mark.parametrize("epoch", [-2, -1, 0, 1, 99])
@pytest.mark.parametrize("name", ["the member", "a stranger", "", None])
@pytest.mark.parametrize(("group", "offset"), [(_GROUP, 5), ("nobody", -1)])
def test_the_offsets_of_a_classic_group_are_told_to_whoever_asks(
    broker: BrokerProcess, member: str, group: str, offset: int, name: str | None, epoch: int
) -> None:
    asked = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member if name == "the member" else name,
        member_epoch=epoch,
        topics=[OffsetFetchRequestGroupTopic(name=_TOPIC, partition_indexes=[0])],
    )
    with RawConnection(broker.bootstrap) as connection:
        (found,) = connection.ask(OffsetFetchRequest(groups=[asked]), 9, OffsetFetchResponse).groups
    assert found.error_code == ErrorCode.NONE
    assert [(item.error_code, item.committed_offset) for topic in found.topics for item in topic.partitions] == [
        (ErrorCode.NONE, offset)
    ]
