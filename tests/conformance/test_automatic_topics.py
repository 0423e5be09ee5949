"""Every client writes to a topic that nobody has created: the first Metadata answer says LEADER_NOT_AVAILABLE, and
each asks again and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.conformance.conftest import refuse
from tests.conformance.every_client import CLIENTS, Client, now_ms
from tests.peers.clients import MissingError
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("automatic") / "data") as broker:
        yield broker


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_that_writes_to_a_topic_that_is_not_there_has_it_created_and_loses_nothing(
    fresh: BrokerProcess, client: Client
) -> None:
    topic = f"automatic.{client.name}"
    rows = client.rows(topic, now_ms())
    try:
        started = client.start()
    except MissingError as missing:
        refuse([str(missing)])
    try:
        said = started.write(fresh.bootstrap, [(topic, "none", rows)])[topic]
        # The old Scala producers tell what they were answered, and go on.
        assert said is None or (
            client.name.endswith("-old-producer") and "LeaderNotAvailableException" in said and "ERROR" not in said
        ), said
    finally:
        started.close()
    with RawConnection(fresh.bootstrap) as connection:
        known = connection.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
            9,
            MetadataResponse,
        ).topics[0]
        asked = [
            ListOffsetsRequestPartition(partition_index=item.partition_index, timestamp=-1) for item in known.partitions
        ]
        found = connection.ask(
            ListOffsetsRequest(topics=[ListOffsetsRequestTopic(name=topic, partitions=asked)]), 1, ListOffsetsResponse
        )
    # A console whose producer says anything is not started a second time, for the records without keys.
    written = rows if said is None else [row for row in rows if row.key is not None]
    assert sum(item.offset for item in found.topics[0].partitions) == len(written)
