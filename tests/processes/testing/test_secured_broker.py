"""`SecuredBroker`: clients of each kind get in with the settings that it makes, and nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaError, TopicAuthorizationFailedError
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.testing import SecuredBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    with SecuredBroker(tmp_path_factory.mktemp("secured") / "data", settings=settings) as started:
        yield started


def _cluster(settings: dict[str, str]) -> Cluster:
    own = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
    return Cluster(settings["bootstrap.servers"], client_config(ADMIN_SETTINGS, own))


async def _write(settings: dict[str, str], topic: str) -> None:
    cluster = _cluster(settings)
    try:
        async with Producer(cluster) as producer:
            await (await producer.send(topic, b"value"))
    finally:
        await cluster.close()


async def _make(settings: dict[str, str], topic: str) -> None:
    cluster = _cluster(settings)
    try:
        assert (await Admin(cluster).create_topics([NewTopic(topic, 1, 1)]))[topic] is None
    finally:
        await cluster.close()


def test_the_administrator_may_do_everything_and_a_user_what_rules_allow(broker: SecuredBroker) -> None:
    asyncio.run(_make(broker.java(), "orders"))
    asyncio.run(_write(broker.java(), "orders"))
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(_write(broker.java("anna"), "orders"))


def test_a_user_keeps_its_password_over_a_restart(broker: SecuredBroker) -> None:
    password, address = broker.password("ben"), broker.bootstrap
    broker.stop()
    broker.start()
    assert broker.bootstrap == address
    assert broker.password("ben") == password
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(_write(broker.java("ben"), "orders"))


def test_a_wrong_password_and_a_client_without_trust_are_refused(broker: SecuredBroker) -> None:
    right = broker.java("eva")
    wrong = right | {"sasl.jaas.config": right["sasl.jaas.config"].replace(broker.password("eva"), "wrong")}
    for settings in (wrong, right | {"ssl.truststore.location": str(_other_authority(broker.data.parent))}):
        with pytest.raises(KafkaError):
            asyncio.run(_write(settings, "orders"))


def _other_authority(directory: Path) -> Path:
    from datetime import UTC, datetime

    from jesenska.security.authority import new_authority

    path = directory / "other.pem"
    path.write_text(new_authority("other", datetime.now(UTC)).pem)
    return path


def test_users_are_made_while_a_test_has_an_event_loop(broker: SecuredBroker) -> None:
    async def work() -> str:
        return broker.librdkafka("zoe")["sasl.password"]

    assert asyncio.run(work()) == broker.kafka_python("zoe")["sasl_plain_password"]


def test_no_password_is_in_the_log(broker: SecuredBroker) -> None:
    secrets = [broker.password(user) for user in ("admin", "anna")]
    assert not any(secret in broker.log for secret in secrets)
