"""Brokers that are killed with SIGKILL under load. Others take over, no acknowledged record is lost, and a broker that
returns copies the log of the others."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cluster.cluster import BrokerCluster, each
from tests.cluster.loaded import loaded
from tests.cluster.witness import Witness
from tests.conformance.conftest import need_modules
from tests.processes.crash.load import PARTITIONS, TOPIC, Ledger, check, produce_with_librdkafka, read_everything

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


def _until_led_by_another(cluster: BrokerCluster, topic: str, gone: int, partitions: int) -> None:
    """All brokers that answer name a leader other than the stopped broker."""
    cluster.until(lambda view: all(view.of(topic, number).leader not in (-1, gone) for number in range(partitions)))


def test_a_killed_leader_is_followed_by_one_in_sync_and_comes_back_as_a_follower(
    frail: BrokerCluster, tmp_path: Path
) -> None:
    frail.create("leader", 3)
    with Witness(frail), loaded(frail, "leader", tmp_path) as load:
        load.wait_for(100)
        before = frail.view().topics["leader"]
        gone = before[0].leader
        frail.brokers[gone].kill()
        _until_led_by_another(frail, "leader", gone, 3)
        load.wait_for(200)
        for number, (old, new) in enumerate(zip(before, frail.view().topics["leader"], strict=True)):
            assert new.leader in old.isr
            assert gone not in new.isr
            if old.leader == gone:
                assert new.leader_epoch > old.leader_epoch, number
        frail.brokers[gone].start()
        frail.until_whole()
        load.wait_for(100)


def test_a_broker_that_is_killed_twice_in_a_row_loses_nothing(frail: BrokerCluster, tmp_path: Path) -> None:
    frail.create("twice", 3)
    with Witness(frail), loaded(frail, "twice", tmp_path) as load:
        gone = frail.view().of("twice").leader
        load.wait_for(50)
        frail.brokers[gone].kill()
        frail.brokers[gone].start()
        frail.brokers[gone].kill()
        load.wait_for(50)
        frail.brokers[gone].start()
        frail.until_whole()
        load.wait_for(100)


def test_a_killed_controller_is_followed_by_another_and_its_epoch_goes_up(frail: BrokerCluster) -> None:
    with Witness(frail):
        for turn in range(2):
            before, epoch = frail.controller(), frail.controller_epoch()
            frail.brokers[before].kill()
            frail.until(lambda view, before=before: view.controller not in (-1, before) and before not in view.brokers)  # type: ignore[misc]
            assert frail.controller_epoch() > epoch
            topic = frail.create(f"controlled-{turn}", 3)
            assert frail.view().of(topic).leader != before
            assert frail.state(topic).controller_epoch > epoch
            assert frail.write(topic, [b"value"] * 10) == list(range(10))
            frail.brokers[before].start()
            frail.until_whole()


def test_leader_and_controller_killed_at_once_are_both_followed(frail: BrokerCluster, tmp_path: Path) -> None:
    controller = frail.controller()
    leader, third = (broker_id for broker_id in frail.brokers if broker_id != controller)
    frail.create("both", placed=[[leader, third, controller], [controller, leader, third], [third, controller, leader]])
    with Witness(frail), loaded(frail, "both", tmp_path) as load:
        load.wait_for(100)
        each((leader, controller), lambda broker_id: frail.brokers[broker_id].kill())
        frail.until(
            lambda view: (
                view.controller == third and all(view.of("both", number).leader == third for number in range(3))
            )
        )
        load.wait_for(100)
        each((leader, controller), lambda broker_id: frail.brokers[broker_id].start())
        frail.until_whole()
        load.wait_for(100)


def test_all_brokers_killed_at_once_have_everything_when_they_are_back(frail: BrokerCluster, tmp_path: Path) -> None:
    frail.create("all", 3)
    with Witness(frail), loaded(frail, "all", tmp_path) as load:
        load.wait_for(300)
        each(frail.brokers, lambda broker_id: frail.brokers[broker_id].kill())
        each(frail.brokers, lambda broker_id: frail.brokers[broker_id].start())
        frail.until_whole()
        load.wait_for(100)


def test_librdkafkas_idempotent_producer_goes_on_with_another_leader(frail: BrokerCluster) -> None:
    """Five requests are in flight, and unanswered ones are sent again. Each record is in the log once, in order."""
    need_modules("confluent_kafka")
    frail.create(TOPIC, PARTITIONS)
    ledger = Ledger()
    producer = threading.Thread(target=produce_with_librdkafka, args=(frail.bootstrap, ledger, "once", True, 0.01))
    with Witness(frail):
        producer.start()
        try:
            for turn in range(2):
                ledger.wait_for(500)
                gone = frail.view().of(TOPIC, turn).leader
                frail.brokers[gone].kill()
                _until_led_by_another(frail, TOPIC, gone, PARTITIONS)
                ledger.wait_for(500)
                frail.brokers[gone].start()
                frail.until_whole()
            ledger.wait_for(500)
        finally:
            ledger.stopping.set()
            producer.join()
    assert ledger.failures == []
    check(ledger, read_everything(frail.bootstrap), {"once": True})
    frail.until_logs_equal(TOPIC, PARTITIONS)
