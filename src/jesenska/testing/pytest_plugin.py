"""A pytest plugin with fixtures for tests of programs that use Kafka. pytest loads it if jesenska is installed.

    kafka_broker          a broker for the whole run; clients connect to `kafka_broker.bootstrap`
    kafka_topic           the name of an existing topic, new for each test, with the broker's `num.partitions`
    kafka_topic_factory   creates such topics, for example
                          `kafka_topic_factory(partitions=3, settings={"cleanup.policy": "compact"})`
    kafka_secured_broker  a broker with TLS and logins for the whole run;
                          `kafka_secured_broker.librdkafka("anna")` makes the user anna and returns a client's settings
    kafka_cluster         three brokers for the whole run; `kafka_cluster.brokers` are its processes

`pytest --kafka-setting NAME=VALUE` gives the brokers a setting of server.properties; it may be repeated. If a test
fails and its broker has ended, the test report shows the end of the broker's log.

The modules of the fixtures are imported when a test uses a fixture, so they do not delay runs without such tests."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from jesenska.testing.broker import BrokerProcess
    from jesenska.testing.cluster import ClusterProcesses
    from jesenska.testing.process import ServerProcess
    from jesenska.testing.secured import SecuredBroker

_LOG_CHARS_SHOWN = 4000


class TopicFactory(Protocol):
    """The type of the fixture `kafka_topic_factory`."""

    def __call__(
        self,
        name: str | None = None,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic, and returns its name. By default the name is made from the test's name. Without
        `partitions` or `replication_factor`, the broker's `num.partitions` and `default.replication.factor` are used.
        Raises KafkaError if the broker refuses the topic."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("jesenska", "a Kafka broker for tests")
    group.addoption(
        "--kafka-setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="A setting of the brokers behind the fixtures.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Checks the settings of --kafka-setting before any test runs: refuses a setting that a broker would refuse, and
    warns of an unknown name."""
    given: list[str] = config.getoption("--kafka-setting")
    if not given:
        return
    from jesenska.base.errors import JesenskaError
    from jesenska.config.layers import BrokerConfig
    from jesenska.config.properties import PropertiesError
    from jesenska.config.safety import StartRefused, refuse_unsafe
    from jesenska.config.sources import gather

    for text in given:
        name, equals, _ = text.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(
                f"--kafka-setting takes NAME=VALUE, and {text!r} is not: write it as in --kafka-setting "
                f"num.partitions=3."
            )
    try:
        gathered = gather(None, {}, given)
        refuse_unsafe(BrokerConfig(gathered.settings))
    except (JesenskaError, PropertiesError, StartRefused) as error:
        raise pytest.UsageError(f"--kafka-setting: {error}") from error
    for unknown in gathered.unknown:
        config.issue_config_time_warning(pytest.PytestConfigWarning(f"--kafka-setting: {unknown}"), 2)


def _settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in request.config.getoption("--kafka-setting"))


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all tests of the run share."""
    from jesenska.testing.broker import BrokerProcess

    with BrokerProcess(tmp_path_factory.mktemp("kafka") / "data", settings=_settings(request), warm=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_secured_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    """A broker with TLS and logins that all tests of the run share."""
    from jesenska.testing.secured import SecuredBroker

    directory = tmp_path_factory.mktemp("kafka-secured")
    with SecuredBroker(directory / "data", settings=_settings(request), warm=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    """A cluster of three brokers that all tests of the run share. New topics have a replica on each broker. A test
    that kills a broker must start it again."""
    from jesenska.testing.cluster import ClusterProcesses

    with ClusterProcesses(tmp_path_factory.mktemp("kafka") / "data", settings=_settings(request)) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic_factory(request: pytest.FixtureRequest) -> TopicFactory:
    """A function that creates topics: on `kafka_cluster` if the test uses this fixture, else on `kafka_broker`."""
    from jesenska.testing.topics import Topics

    where = "kafka_cluster" if "kafka_cluster" in request.fixturenames else "kafka_broker"
    return Topics(request.getfixturevalue(where).bootstrap, request.node.name).make


@pytest.fixture
def kafka_topic(kafka_topic_factory: TopicFactory) -> str:
    """The name of a new topic with the broker's `num.partitions`. The name is made from the test's name."""
    return kafka_topic_factory()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the logs of brokers that have ended to the report of a failed test."""
    report = yield
    if report.failed:
        fixtures = getattr(item, "funcargs", {})
        for name in ("kafka_broker", "kafka_secured_broker", "kafka_cluster"):
            server = fixtures.get(name)
            for broker in getattr(server, "brokers", [server] if server is not None else []):
                if (said := _end_of(broker)) is not None:
                    report.sections.append((name, said))
    return report


def _end_of(broker: ServerProcess) -> str | None:
    """Returns a text with the end of the broker's log if the broker has ended. Returns None if it runs."""
    if broker.is_running:
        return None
    return (
        f"The broker at {broker.address} does not run any more. The end of what it "
        f"said:\n{broker.log[-_LOG_CHARS_SHOWN:]}"
    )
