"""Members of groups whose metadata are larger than the largest possible record of the group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.limits import MEMBER_METADATA_RECORDS_MAX
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupResponse
from jesenska.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.raw_connection import RawConnection
from tests.sensible_requests import sync, wait_for_coordinator

#: The default of `max.message.bytes`.
_RECORD_MAX_BYTES = 1_048_588


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    wait_for_coordinator(broker.bootstrap)
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def join(connection: RawConnection, group: str, sizes: list[int], version: int = 3) -> JoinGroupResponse:
    protocols = [JoinGroupRequestProtocol(name=f"p{number}", metadata=bytes(size)) for number, size in enumerate(sizes)]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    return connection.ask(request, version, JoinGroupResponse)


def groups(connection: RawConnection) -> set[str]:
    return {item.group_id for item in connection.ask(ListGroupsRequest(), 4, ListGroupsResponse).groups}


@pytest.mark.parametrize("version", [0, 3, 4, 9])
@pytest.mark.parametrize(
    "sizes",
    [[_RECORD_MAX_BYTES + 1], [10, _RECORD_MAX_BYTES + 1], [_RECORD_MAX_BYTES] * (MEMBER_METADATA_RECORDS_MAX + 1)],
)
def test_metadata_that_cannot_be_stored_is_refused_and_not_kept(
    connection: RawConnection, version: int, sizes: list[int]
) -> None:
    group = f"too-large-{version}-{len(sizes)}"
    assert join(connection, group, sizes, version).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert group not in groups(connection)


def test_a_member_with_as_much_metadata_as_a_record_holds_gets_its_assignment(connection: RawConnection) -> None:
    sizes = [_RECORD_MAX_BYTES - 1000] * MEMBER_METADATA_RECORDS_MAX
    joined = join(connection, "large-enough", sizes)
    assert joined.error_code == ErrorCode.NONE
    assert connection.ask(sync("large-enough", joined.member_id), 2, SyncGroupResponse).error_code == ErrorCode.NONE


def test_a_larger_limit_of_the_offsets_topic_lets_larger_members_in(connection: RawConnection) -> None:
    assert join(connection, "limited", [2_000_000]).error_code == ErrorCode.MESSAGE_TOO_LARGE
    try:
        set_limit(connection, "3000000")
        joined = join(connection, "limited", [2_000_000])
        assert joined.error_code == ErrorCode.NONE
        assert connection.ask(sync("limited", joined.member_id), 2, SyncGroupResponse).error_code == ErrorCode.NONE
    finally:
        set_limit(connection, str(_RECORD_MAX_BYTES))


def set_limit(connection: RawConnection, value: str) -> None:
    change = IncrementalAlterConfigsRequestConfig(name="max.message.bytes", config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=2, resource_name="__consumer_offsets", configs=[change]
    )
    (answer,) = connection.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
    ).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message
