"""A partition whose only in-sync replica is down: it has no leader, unless an unclean election is allowed."""

from __future__ import annotations

import shutil

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import TOPIC, ConfigChange
from jesenska.client.administration.topic_administration import UNCLEAN
from jesenska.client.cluster import Cluster
from tests.cluster.cluster import BrokerCluster
from tests.cluster.one_request import ask_for_topic, produce
from tests.cluster.witness import Witness

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_UNCLEAN = "unclean.leader.election.enable"
#: Never: the default. Always: the topic's setting. Later: a setting that is made when there is no leader. Asked: a
#: request.
_TOPICS = ("never", "always", "later", "asked")


def test_another_leads_only_where_that_is_allowed(frail: BrokerCluster) -> None:
    last, behind = 1, 2
    for topic in _TOPICS:
        frail.create(topic, placed=[[last, behind]], configs={_UNCLEAN: "true"} if topic == "always" else {})
        frail.write(topic, [b"both"] * 10)
    # This topic shows when the controller has handled the return of the broker.
    frail.create("canary", placed=[[behind]])
    with Witness(frail):
        frail.brokers[behind].kill()
        frail.until(lambda view: all(view.of(topic).isr == (last,) for topic in _TOPICS))
        for topic in _TOPICS:
            frail.write(topic, [b"one"] * 10)
        frail.brokers[last].kill()
        frail.until(lambda view: all(view.of(topic).leader == -1 for topic in _TOPICS))
        frail.brokers[behind].start()
        frail.until(lambda view: view.of("canary").leader == behind and view.of("always").leader == behind)

        address = frail.brokers[behind].address
        for topic in ("never", "later", "asked"):
            assert frail.view(behind).of(topic).leader == -1
            assert set(frail.state(topic).isr) == {last}
            assert produce(address, topic, acks=1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert ask_for_topic(address, topic) in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)

        async def allow(client: Cluster) -> None:
            await Admin(client).alter_configs(TOPIC, "later", [ConfigChange(_UNCLEAN, "true")])
            assert await Admin(client).elect_leaders(UNCLEAN, [TopicPartition("asked", 0)]) == {
                TopicPartition("asked", 0): None
            }

        frail.ask(allow)
        frail.until(lambda view: view.of("later").leader == behind and view.of("asked").leader == behind)
        assert frail.view(behind).of("never").leader == -1
        for topic in ("always", "later", "asked"):
            assert frail.values(topic) == [b"both"] * 10
            frail.write(topic, [b"new"] * 5)

        frail.brokers[last].start()
        frail.until_whole()
    assert frail.view().of("never").leader == last
    assert frail.values("never") == [b"both"] * 10 + [b"one"] * 10
    frail.until_logs_equal("never")
    for topic in ("always", "later", "asked"):
        assert frail.view().of(topic).leader == behind
        assert frail.values(topic) == [b"both"] * 10 + [b"new"] * 5
        frail.until_logs_equal(topic)


def test_a_broker_that_finds_an_empty_disk_does_not_lead_and_others_keep_what_they_have(frail: BrokerCluster) -> None:
    """All in-sync replicas stop in order. The disk of the last one is not mounted, and finally it is replaced. Apache
    Kafka 3.9.1 makes it leader with an empty log, and the others truncate their logs to that."""
    last, behind = 1, 2
    frail.create("emptied", placed=[[last, behind]])
    frail.write("emptied", [b"both"] * 10)
    # This topic shows when the controller has handled the return of the broker.
    frail.create("only", placed=[[last]])
    frail.brokers[behind].stop()
    frail.until(lambda view: view.of("emptied").isr == (last,))
    frail.brokers[last].stop()
    data, aside = frail.brokers[last].data, frail.brokers[last].data.with_name("unmounted")
    data.rename(aside)

    def comes_and_leads_nothing() -> None:
        frail.brokers[last].start()
        frail.until(lambda view: view.of("only").leader == last and view.of("emptied").leader == -1)
        assert set(frail.state("emptied").isr) == {last}
        assert "emptied-0 is not led here" in frail.brokers[last].log

    frail.brokers[behind].start()
    comes_and_leads_nothing()
    frail.brokers[last].stop()
    shutil.rmtree(data)
    aside.rename(data)
    frail.brokers[last].start()
    frail.until(lambda view: view.of("emptied").leader == last)
    frail.until_whole()
    assert frail.values("emptied") == [b"both"] * 10

    frail.brokers[behind].stop()
    frail.brokers[last].stop()
    shutil.rmtree(data)
    frail.brokers[behind].start()
    comes_and_leads_nothing()

    async def let_lead(client: Cluster) -> None:
        # Also topics of other tests of which only these two brokers have replicas.
        topics = frail.view(behind).topics
        offline = [
            TopicPartition(name, number)
            for name in topics
            for number, found in enumerate(topics[name])
            if found.leader == -1
        ]
        assert TopicPartition("emptied", 0) in offline
        assert await Admin(client).elect_leaders(UNCLEAN, offline) == dict.fromkeys(offline)

    frail.ask(let_lead)
    frail.until(lambda view: view.of("emptied").leader == behind)
    frail.until_whole()
    assert frail.values("emptied") == [b"both"] * 10
    frail.until_logs_equal("emptied")


def test_a_disk_of_before_does_not_lead_and_the_newest_one_does(frail: BrokerCluster) -> None:
    """A broker is stopped in order and gets another disk. With that disk it is alone in sync, and then it gets the
    first disk back. Apache Kafka 3.9.1 makes it leader with the data of that disk, and all records acknowledged since
    are lost."""
    last, behind = 1, 2
    frail.create("swapped", placed=[[last, behind]])
    frail.write("swapped", [b"before"] * 10)
    # This topic shows when the controller has handled the return of the broker.
    frail.create("only-swapped", placed=[[last]])
    data, before, newest = (frail.brokers[last].data.with_name(name) for name in ("broker-1", "before", "newest"))
    assert data == frail.brokers[last].data
    frail.brokers[last].stop()
    data.rename(before)
    frail.brokers[last].start()
    frail.until(lambda view: set(view.of("swapped").isr) == {last, behind})
    frail.brokers[behind].stop()
    frail.until(lambda view: view.of("swapped").isr == (last,))
    frail.write("swapped", [b"since"] * 10)
    frail.brokers[last].stop()
    data.rename(newest)
    before.rename(data)
    frail.brokers[last].start()
    frail.until(lambda view: view.of("only-swapped").leader == last and view.of("swapped").leader == -1)
    assert "swapped-0 is not led here" in frail.brokers[last].log
    assert f"the log directory {data} is older than the last start of broker 1" in frail.brokers[last].log
    frail.brokers[behind].start()
    frail.until(lambda view: sorted(view.brokers) == sorted(frail.brokers))
    assert frail.view().of("swapped").leader == -1
    assert set(frail.state("swapped").isr) == {last}
    for _ in range(2):
        # An older disk stays one, also after a crash.
        frail.brokers[last].kill()
        frail.brokers[last].start()
        frail.until(lambda view: view.of("only-swapped").leader == last and view.of("swapped").leader == -1)
    frail.brokers[last].stop()
    data.rename(before)
    newest.rename(data)
    frail.brokers[last].start()
    frail.until(lambda view: view.of("swapped").leader == last)
    frail.until_whole()
    assert frail.values("swapped") == [b"before"] * 10 + [b"since"] * 10
    frail.until_logs_equal("swapped")
    shutil.rmtree(before)
