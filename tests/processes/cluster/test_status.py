"""`jesenska status` in a cluster with a stopped broker: the others are live and ready, and the cluster is not
complete."""

from __future__ import annotations

import re

import pytest

from jesenska.cli.jesenska import main
from jesenska.client.administration.admin import Admin
from tests.cluster.cluster import BrokerCluster

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


def test_another_brokers_end_makes_no_broker_look_dead(
    frail: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, left = 1, 2
    frail.create("alone", placed=[[gone]])
    frail.create("copied", placed=[[left, gone]])
    frail.until_whole()
    address = frail.brokers[left].address

    def code(*words: str) -> int:
        return main(["status", "--bootstrap-server", address, *words])

    assert [code("--check", asked) for asked in ("live", "ready", "cluster", "replicas")] == [0, 0, 0, 0]
    try:
        frail.brokers[gone].kill()
        frail.until(lambda view: view.of("alone").leader == -1, brokers=[left])
        capsys.readouterr()
        assert code() == 4
        assert re.search(r"^partitions without leader: +[1-9]", capsys.readouterr().out, re.MULTILINE)
        assert [code("--check", asked) for asked in ("live", "ready", "cluster", "replicas")] == [0, 0, 4, 4]
        frail.ask(lambda client: Admin(client).delete_topics(["alone"]))
        frail.until(lambda view: "alone" not in view.topics and view.of("copied").isr == (left,), brokers=[left])
        capsys.readouterr()
        assert [code("--check", asked) for asked in ("cluster", "replicas")] == [0, 5]
        assert re.search(r"^under replicated partitions: +[1-9]", capsys.readouterr().out, re.MULTILINE)
        frail.brokers[left].kill()
        assert code("--check", "live", "--timeout-seconds", "1") == 1
    finally:
        for number in (gone, left):
            frail.brokers[number].start()
    frail.until_whole()
