"""Fixtures for tests of programs that use Kafka; pytest finds them by itself once jesenska is installed.

    kafka_broker     a broker for the whole run; `kafka_broker.bootstrap` is what clients connect to
    kafka_topic      the name of a topic that exists, new for each test

`pytest --kafka-setting NAME=VALUE` gives the broker a setting of server.properties; it may be repeated."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from jesenska.base.errors import JesenskaError
from jesenska.client.admin import Admin, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.testing.broker import BrokerProcess

_NAME_MAX_CHARS = 200
_count = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("jesenska", "a Kafka broker for tests")
    group.addoption("--kafka-setting", action="append", default=[], metavar="NAME=VALUE", help="A setting of the broker behind kafka_broker.")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses a setting that a broker would refuse, and warns of a name that none knows, before a test runs."""
    given: list[str] = config.getoption("--kafka-setting")
    if not given:
        return
    # Read here: a run without such a setting need not wait for the tables of settings.
    from jesenska.config.layers import BrokerConfig
    from jesenska.config.properties import PropertiesError
    from jesenska.config.safety import StartRefused, refuse_unsafe
    from jesenska.config.sources import gather

    for text in given:
        name, equals, _ = text.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"--kafka-setting takes NAME=VALUE, and {text!r} is not: write it as in --kafka-setting num.partitions=3.")
    try:
        gathered = gather(None, {}, given)
        refuse_unsafe(BrokerConfig(gathered.settings))
    except (JesenskaError, PropertiesError, StartRefused) as error:
        raise pytest.UsageError(f"--kafka-setting: {error}") from error
    for unknown in gathered.unknown:
        config.issue_config_time_warning(pytest.PytestConfigWarning(f"--kafka-setting: {unknown}"), 2)


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests of the run."""
    settings = dict(text.partition("=")[::2] for text in request.config.getoption("--kafka-setting"))
    with BrokerProcess(tmp_path_factory.mktemp("kafka") / "data", settings=settings, warm=True) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: BrokerProcess) -> str:
    """The name of a new topic with one partition, made of the test's own name."""
    global _count
    _count += 1
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:_NAME_MAX_CHARS] + f"-{_count}"

    async def create() -> None:
        cluster = Cluster(kafka_broker.bootstrap)
        try:
            error = (await Admin(cluster).create_topics([NewTopic(name, 1, 1)]))[name]
            if error is not None:
                raise error
        finally:
            await cluster.close()

    asyncio.run(create())
    return name
