"""A broker that has a tree of its own accepts no orders, since no other broker can be its controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.language import Message
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from jesenska.wire.messages.k05_stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestPartitionState,
    StopReplicaRequestTopicState,
    StopReplicaResponse,
)
from jesenska.wire.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from jesenska.wire.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from jesenska.wire.messages.k56_alter_partition import AlterPartitionRequest, AlterPartitionResponse
from jesenska.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.raw_connection import RawConnection

_GONE = StopReplicaRequestTopicState(
    topic_name="t",
    partition_states=[StopReplicaRequestPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)],
)


@pytest.mark.parametrize(
    ("request_of", "version", "response"),
    [
        (LeaderAndIsrRequest(controller_epoch=99), 7, LeaderAndIsrResponse),
        (StopReplicaRequest(controller_epoch=99, topic_states=[_GONE]), 4, StopReplicaResponse),
        (UpdateMetadataRequest(controller_epoch=99), 8, UpdateMetadataResponse),
        (ControlledShutdownRequest(broker_id=1), 3, ControlledShutdownResponse),
        (AlterPartitionRequest(broker_id=1), 3, AlterPartitionResponse),
        (AllocateProducerIdsRequest(broker_id=1), 0, AllocateProducerIdsResponse),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_what_brokers_send_each_other_is_refused(
    broker: BrokerProcess, request_of: Message, version: int, response: type[Message]
) -> None:
    with RawConnection(broker.bootstrap) as connection:
        answer: Any = connection.ask(request_of, version, response)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process
