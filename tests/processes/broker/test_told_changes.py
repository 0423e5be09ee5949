"""The log reports each change at INFO, with the client that requested it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaError
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess


def _told(broker: BrokerProcess) -> list[str]:
    return [line.split(" INFO ")[1] for line in broker.log.splitlines() if "has asked" in line]


def test_each_change_has_a_line_with_the_client_and_its_address(tmp_path: Path) -> None:
    async def change(bootstrap: str) -> None:
        cluster = Cluster(bootstrap, ClientConfig(client_id="made by\nhand"))
        admin = Admin(cluster)
        try:
            assert await admin.create_topics([NewTopic("only-tried", 1, 1)], validate_only=True) == {"only-tried": None}
            await admin.create_topics([NewTopic("orders", 2, 1)])
            await admin.create_partitions({"orders": 3})
            await admin.alter_configs(TOPIC, "orders", [ConfigChange("retention.ms", "1000")])
            await admin.alter_configs(BROKER, "", [ConfigChange("log.cleaner.threads", "2")])
            with pytest.raises(KafkaError):
                await admin.alter_configs(TOPIC, "not-there", [ConfigChange("retention.ms", "1000")])
            await admin.delete_topics(["orders", "not-there"])
        finally:
            await cluster.close()

    with BrokerProcess(tmp_path / "data") as broker:
        asyncio.run(change(broker.bootstrap))
        broker.wait_until_said("orders was deleted")
        who = "as client 'made by\\nhand' at 127.0.0.1 has asked"
        assert [line.split(": ", 1)[-1] for line in _told(broker)] == [
            f"topic orders was created with 2 partitions of 1 replicas, {who}",
            f"topic orders has 3 partitions now, {who}",
            f"settings of topic orders were changed (retention.ms), {who}",
            f"settings of every broker were changed (log.cleaner.threads), {who}",
            f"topic orders was deleted, {who}",
        ]


def test_an_orderly_stop_says_which_signal_it_was_and_when_it_is_done(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.stop() == 0
        assert "SIGTERM: the broker stops in order" in broker.log
        assert "the broker has stopped in order" in broker.log
