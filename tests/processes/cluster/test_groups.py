"""Groups on several brokers. Every broker names the same coordinator. When it is killed, another broker takes over
with all committed offsets."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC, partition_for
from tests.cluster.cluster import BrokerCluster, ours_only, until
from tests.cluster.loaded import loaded
from tests.cluster.witness import Witness
from tests.conformance.conftest import need_modules
from tests.processes.crash.readers import GroupLedger, look_at_offsets, read_in_group, read_with_librdkafka

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


def _commit(cluster: BrokerCluster, group: str, offsets: dict[TopicPartition, int]) -> None:
    async def work(client: Cluster) -> None:
        assert await Admin(client).alter_group_offsets(group, offsets) == dict.fromkeys(offsets)

    cluster.ask(work)


def _committed(cluster: BrokerCluster, group: str) -> dict[TopicPartition, int]:
    """The first answer that is not an error."""

    async def work(client: Cluster) -> dict[TopicPartition, int]:
        while True:
            try:
                return {key: item.offset for key, item in (await Admin(client).list_group_offsets(group)).items()}
            except KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(0.05)

    return cluster.ask(work)


def test_every_broker_names_the_same_coordinator_which_leads_the_groups_partition(frail: BrokerCluster) -> None:
    groups = [f"group-{number}" for number in range(9)]
    coordinators = {group: frail.coordinator(group) for group in groups}
    partitions = frail.view().topics[OFFSETS_TOPIC]
    assert [len(partition.replicas) for partition in partitions] == [3, 3, 3]
    assert coordinators == {group: partitions[partition_for(group, 3)].leader for group in groups}
    assert {partition_for(group, 3) for group in groups} == {0, 1, 2}


def test_what_was_committed_is_there_when_the_coordinator_is_killed(frail: BrokerCluster) -> None:
    topic = frail.create("commits", 3)
    frail.write(topic, [b"value"] * 10)
    groups = [f"commits-{number}" for number in range(4)]
    with Witness(frail):
        for turn in range(2):
            offsets = {group: {TopicPartition(topic, number): 3 + turn for number in range(3)} for group in groups}
            for group in groups:
                frail.coordinator(group)
                _commit(frail, group, offsets[group])
            gone = frail.coordinator(groups[0])
            frail.brokers[gone].kill()
            assert {group: _committed(frail, group) for group in groups} == offsets
            until(lambda gone=gone: frail.coordinator(groups[0]) != gone, f"broker {gone} is named still")  # type: ignore[misc]
            frail.brokers[gone].start()
            frail.until_whole()
            assert {group: _committed(frail, group) for group in groups} == offsets
    frail.until_logs_equal(OFFSETS_TOPIC, 3)


def test_members_go_on_with_another_coordinator(frail: BrokerCluster) -> None:
    need_modules("confluent_kafka")
    topic = frail.create("members", 3)
    ledger = GroupLedger()
    threads = [
        *(
            threading.Thread(target=lambda: asyncio.run(read_in_group(frail.bootstrap, ledger, "ours", topic)))
            for _ in range(2)
        ),
        threading.Thread(target=read_with_librdkafka, args=(frail.bootstrap, ledger, "theirs", topic)),
    ]
    groups = ["ours", "theirs"]

    def write(value: bytes) -> None:
        for number in range(3):
            frail.write(topic, [value] * 30, partition=number)

    with Witness(frail):
        for thread in threads:
            thread.start()
        try:
            for turn, group in enumerate(groups):
                before = dict(ledger.commits)
                write(b"%d before" % turn)
                ledger.wait_for_commits(groups, 1, since=before)
                gone = frail.coordinator(group)
                frail.brokers[gone].kill()
                until(lambda group=group, gone=gone: frail.coordinator(group) != gone, f"broker {gone} is named still")  # type: ignore[misc]
                before = dict(ledger.commits)
                write(b"%d after" % turn)
                ledger.wait_for_commits(groups, 1, since=before)
                frail.brokers[gone].start()
                frail.until_whole()
            ledger.wait_for_ends(groups, {TopicPartition(topic, number): 120 for number in range(3)})
            look_at_offsets(frail.bootstrap, ledger, groups)
        finally:
            ledger.stopping.set()
            for thread in threads:
                thread.join(60)
    assert ledger.failures == []
    for group in groups:
        for number in range(3):
            assert ledger.read[group, TopicPartition(topic, number)] == set(range(120))


def test_commits_never_go_back_while_brokers_are_killed(frail: BrokerCluster, tmp_path: Path) -> None:
    frail.create("loaded-groups", 3)
    with Witness(frail), loaded(frail, "loaded-groups", tmp_path, members=2) as load:
        for broker in frail.brokers.values():
            load.wait_for(100)
            broker.kill()
            load.wait_for(100)
            broker.start()
            frail.until_whole()
        load.wait_for(100)


@ours_only
def test_the_offsets_topic_begins_with_the_brokers_that_there_are_and_gets_the_others(tmp_path: Path) -> None:
    """Apache Kafka has no coordinator before there are as many brokers as the topic needs replicas."""
    growing = BrokerCluster(tmp_path)
    try:
        growing.begin([1])
        assert growing.coordinator("early") == 1
        assert [partition.replicas for partition in growing.view().topics[OFFSETS_TOPIC]] == [(1,)] * 3
        key = TopicPartition("t", 0)
        growing.create("t")
        growing.write("t", [b"value"] * 5)
        _commit(growing, "early", {key: 5})
        growing.add([2, 3])
        growing.until(lambda view: all(len(partition.isr) == 3 for partition in view.topics[OFFSETS_TOPIC]))
        growing.brokers[1].kill()
        assert _committed(growing, "early") == {key: 5}
        assert growing.coordinator("early") in (2, 3)
    finally:
        growing.end()
