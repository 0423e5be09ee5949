"""A broker that was paused for longer than its session, without knowing it. It is not controller or leader any more,
and its later answers and actions change nothing."""

from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.metadata import paths
from jesenska.metadata.nodes import ControllerNode
from jesenska.wire.messages.k00_produce import ProduceResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.cluster.cluster import RELEASE, BrokerCluster
from tests.cluster.one_request import PRODUCE_VERSION, produce_request, produced
from tests.cluster.witness import Witness
from tests.raw_connection import ClosedByBrokerError, RawConnection

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


def test_an_old_controller_that_wakes_up_changes_nothing(frail: BrokerCluster) -> None:
    old = frail.controller()
    first, second = (broker_id for broker_id in frail.brokers if broker_id != old)
    frail.create("fenced", placed=[[old, first, second], [first, second, old], [second, old, first]])
    epoch = frail.controller_epoch()
    create = CreateTopicsRequest(
        topics=[CreateTopicsRequestTopic(name="late", num_partitions=3, replication_factor=3)], timeout_ms=10_000
    )
    with Witness(frail), RawConnection(frail.brokers[old].address, 60) as asks:
        asks.ask(CreateTopicsRequest(topics=[], timeout_ms=1000), 7, CreateTopicsResponse)
        frail.brokers[old].pause()
        # It lies in the socket when the broker wakes up.
        asks.send_frame(asks.frame(create, 7))
        frail.until(
            lambda view: (
                view.controller not in (-1, old)
                and all(view.of("fenced", number).leader not in (-1, old) for number in range(3))
            )
        )
        newer = frail.controller_epoch()
        assert newer > epoch
        frail.create("meanwhile-fenced", 3)
        frail.brokers[old].resume()
        try:
            code = ErrorCode(asks.receive(7, CreateTopicsResponse).topics[0].error_code)
        except ClosedByBrokerError:
            code = ErrorCode.NETWORK_EXCEPTION
        frail.until_whole()
        if code == ErrorCode.NONE:
            frail.until(lambda view: view.of("late", 2).is_whole)
        else:
            # Apache Kafka's has no better word for a session that it has lost.
            assert KafkaError.of(code).retriable or (RELEASE and code == ErrorCode.UNKNOWN_SERVER_ERROR)
        assert frail.controller_epoch() >= newer
        node = frail.node(paths.CONTROLLER)
        assert node is not None
        assert ControllerNode.decode(node).broker_id == frail.controller()
        for number in range(3):
            state = frail.state("fenced", number)
            assert state.controller_epoch <= frail.controller_epoch()
            assert state.leader_epoch == frail.view(old).of("fenced", number).leader_epoch
        for number in range(3):
            frail.write("fenced", [b"value"], partition=number)
    frail.until_logs_equal("fenced", 3)


def test_an_old_leader_that_wakes_up_acknowledges_nothing_that_is_not_kept(frail: BrokerCluster) -> None:
    """Requests that are in its socket and in its log when others lead: writes with acks=all, which it must refuse or
    never answer, and earlier writes with acks=1, which its log loses."""
    old = next(broker_id for broker_id in frail.brokers if broker_id != frail.controller())
    others = [broker_id for broker_id in frail.brokers if broker_id != old]
    frail.create("overtaken", placed=[[old, *others]])
    frail.write("overtaken", [b"before"] * 10)
    with Witness(frail), RawConnection(frail.brokers[old].address, 60) as asks:
        frail.brokers[old].pause()
        for number in range(5):
            asks.send_frame(
                asks.frame(produce_request("overtaken", b"late %d" % number, timeout_ms=3000), PRODUCE_VERSION)
            )
        frail.until(lambda view: view.of("overtaken").leader in others)
        frail.write("overtaken", [b"after"] * 10)
        frail.brokers[old].resume()
        acknowledged: list[tuple[int, bytes]] = []
        for number in range(5):
            try:
                code, offset = produced(asks.receive(PRODUCE_VERSION, ProduceResponse))
            except ClosedByBrokerError:
                break
            if code == ErrorCode.NONE:
                acknowledged.append((offset, b"late %d" % number))
        frail.until_whole()
        frail.until_logs_equal("overtaken")
        records = [(record.offset, record.value) for record in frail.read("overtaken")]
        assert set(acknowledged) <= set(records)
        values = [value for _, value in records if value is not None and not value.startswith(b"late")]
        assert values == [b"before"] * 10 + [b"after"] * 10


def test_readers_of_an_old_leader_come_to_the_new_one(frail: BrokerCluster) -> None:
    old = next(broker_id for broker_id in frail.brokers if broker_id != frail.controller())
    frail.create("read-on", placed=[[old, *(broker_id for broker_id in frail.brokers if broker_id != old)]])
    frail.write("read-on", [b"%d" % number for number in range(10)])
    with Witness(frail):
        for turn in range(1, 3):
            frail.brokers[old].pause()
            frail.until(lambda view: view.of("read-on").leader not in (-1, old))
            frail.write("read-on", [b"%d" % number for number in range(turn * 10, turn * 10 + 10)])
            frail.brokers[old].resume()
            frail.until_whole()
            assert frail.values("read-on") == [b"%d" % number for number in range(turn * 10 + 10)]
            frail.elect_preferred("read-on")
    frail.until_logs_equal("read-on")
