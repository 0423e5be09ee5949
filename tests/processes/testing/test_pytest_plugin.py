"""The fixtures as a project uses them: tests in a directory of their own, run by a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess

_TESTS = """
import asyncio
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer

SEEN = []

def produced(broker, topic):
    async def work():
        cluster = Cluster(broker.bootstrap)
        producer = Producer(cluster)
        try:
            return await (await producer.send(topic, b"value"))
        finally:
            await producer.close()
            await cluster.close()
    return asyncio.run(work())

def test_one(kafka_broker, kafka_topic):
    SEEN.append((kafka_broker.pid, kafka_topic))
    assert produced(kafka_broker, kafka_topic)

def test_two(kafka_broker, kafka_topic):
    SEEN.append((kafka_broker.pid, kafka_topic))
    assert len({pid for pid, _ in SEEN}) == 1
    assert len({topic for _, topic in SEEN}) == 2
    assert kafka_topic.startswith("test_two")

def test_setting(kafka_broker):
    assert kafka_broker.settings == {"num.partitions": "3"}

def replicas(server, topic):
    async def work():
        cluster = Cluster(server.bootstrap)
        try:
            return [len(item.replicas) for item in (await cluster.topic(topic)).partitions]
        finally:
            await cluster.close()
    return asyncio.run(work())

def test_topics(kafka_broker, kafka_topic, kafka_topic_factory):
    assert replicas(kafka_broker, kafka_topic) == [1, 1, 1]
    assert kafka_topic_factory("mine", partitions=5, settings={"cleanup.policy": "compact"}) == "mine"
    assert replicas(kafka_broker, "mine") == [1] * 5

def test_cluster(kafka_cluster, kafka_topic, kafka_topic_factory):
    assert replicas(kafka_cluster, kafka_topic) == [3, 3, 3]
    assert replicas(kafka_cluster, kafka_topic_factory(partitions=1, replication_factor=2)) == [2]
    kafka_cluster.brokers[0].kill()
    assert produced(kafka_cluster, kafka_topic)
    kafka_cluster.brokers[0].start()
"""


def test_each_test_has_a_topic_of_its_own_on_one_broker(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(_TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--kafka-setting",
        "num.partitions=3",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_broker_that_was_killed_is_told_with_its_log(tmp_path: Path) -> None:
    tests = """
import os, signal
import pytest

def test_kills(kafka_broker):
    os.kill(kafka_broker.pid, signal.SIGKILL)
    while kafka_broker.is_running:
        pass

def test_after_it(kafka_broker, kafka_topic):
    pass

def test_of_something_else():
    assert not "a broker"
"""
    (tmp_path / "test_mine.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.count("does not run any more. The end of what it said:") == 1
    assert "jesenska is up at" in done.stdout.partition("does not run any more")[2]


def test_a_run_without_a_broker_imports_nothing_of_it() -> None:
    program = (
        "import sys; before = set(sys.modules); import jesenska.testing.pytest_plugin; print(*sorted(set(sys.modules) "
        "- before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import pytest; {program}"], capture_output=True, text=True, check=True, timeout=100
    )
    # A checkout may ask for its source in place of the compiled modules.
    assert set(done.stdout.split()) - {"jesenska.base", "jesenska.base.source_only"} == {
        "jesenska",
        "jesenska.testing",
        "jesenska.testing.pytest_plugin",
    }


@pytest.mark.parametrize(
    ("setting", "code", "says"),
    [
        (
            "num.partitions",
            4,
            "ERROR: --kafka-setting takes NAME=VALUE, and 'num.partitions' is not: write it as in --kafka-setting "
            "num.partitions=3.",
        ),
        (
            "num.partitions=x",
            4,
            "ERROR: --kafka-setting: Invalid value x for configuration num.partitions: Not a number of type INT",
        ),
        (
            "num.partitons=3",
            0,
            "PytestConfigWarning: --kafka-setting: The setting num.partitons is not known and has no effect; did you "
            "mean num.partitions?",
        ),
    ],
)
def test_a_mistake_in_a_setting_is_told_before_a_test_runs(tmp_path: Path, setting: str, code: int, says: str) -> None:
    (tmp_path / "test_mine.py").write_text("def test_nothing():\n    pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--kafka-setting",
        setting,
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == code
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_warm_broker_is_a_broker_like_any_other(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        port, first = broker.port, broker.pid
        broker.kill()
        broker.start()
        assert (broker.port, broker.pid != first) == (port, True)
        assert broker.stop() == 0
        broker.start()
    assert broker.log.count("jesenska is up") == 3
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_two_warm_brokers_share_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one", warm=True) as one, BrokerProcess(tmp_path / "two", warm=True) as two:
        assert one.port != two.port
        one.kill()
        assert two.stop() == 0


def test_a_warm_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    from jesenska.testing.process import ServerFailedError

    with pytest.raises(ServerFailedError, match=r"num\.partitions"):
        BrokerProcess(tmp_path / "data", settings={"num.partitions": "many"}, warm=True).start()


@pytest.mark.parametrize("warm", [False, True])
def test_settings_in_the_environment_of_the_tests_are_not_those_of_their_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    for name, value in {
        "KAFKA_ZOOKEEPER_CONNECT": "tree.invalid:2181",
        "KAFKA_CFG_LISTENERS": "none",
        "KAFKA_LOG_DIRS": str(tmp_path / "theirs"),
    }.items():
        monkeypatch.setenv(name, value)
    with BrokerProcess(tmp_path / "data", warm=warm, environment={"KAFKA_BROKER_ID": "77"}) as broker:
        assert broker.stop() == 0
    assert "broker.id=77\n" in (tmp_path / "data" / "meta.properties").read_text()
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(("document", "count"), [("testing.md", 7), ("faults.md", 2)])
def test_the_examples_of_the_documentation_pass(tmp_path: Path, document: str, count: int) -> None:
    pytest.importorskip("kafka")
    pytest.importorskip("confluent_kafka")
    text = (Path(__file__).parents[3] / "docs" / document).read_text()
    examples = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert len(examples) == count
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} passed" in done.stdout
