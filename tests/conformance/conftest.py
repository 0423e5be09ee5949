"""The peers: in CI (JESENSKA_PEERS=required) a missing one fails the run, elsewhere it is skipped and listed at the
end."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
from collections.abc import Iterator

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.peers.judge import Judge
from tests.peers.tools import Tools

RELEASES = ("3.9.1", "4.3.1")
_OF_TRANSACTIONS = (
    "src/jesenska/transactions",
    "src/jesenska/broker/coordinators/transactions.py",
    "src/jesenska/broker/coordinators/transaction_verification.py",
)
#: Releases that are asked about transactions; the older one differs in what is named, and its answers stay what they
#: are.
RELEASES_OF_TRANSACTIONS = (pytest.param("3.9.1", marks=pytest.mark.hour(*_OF_TRANSACTIONS)), "4.3.1")


def need(*programs: str) -> None:
    """Skips, or fails in CI, unless every program is there."""
    refuse([name for name in programs if shutil.which(name) is None])


def need_modules(*modules: str) -> None:
    """The same for Python packages."""
    refuse([name for name in modules if importlib.util.find_spec(name) is None])


def refuse(missing: list[str]) -> None:
    """Skips, or fails in CI, if anything is missing."""
    if missing:
        sentence = f"{', '.join(missing)} not installed"
        if os.environ.get("JESENSKA_PEERS") == "required":
            pytest.fail(sentence)
        pytest.skip(sentence, allow_module_level=True)


@pytest.fixture(scope="session")
def judge_3() -> Iterator[Judge]:
    need("java", "mvn")
    with Judge("3.9.1") as judge:
        yield judge


@pytest.fixture(scope="session")
def judge_4() -> Iterator[Judge]:
    need("java", "mvn")
    with Judge("4.3.1") as judge:
        yield judge


@pytest.fixture(scope="session", params=RELEASES)
def judge(request: pytest.FixtureRequest) -> Judge:
    """Each release's classes in turn."""
    found: Judge = request.getfixturevalue("judge_3" if request.param == "3.9.1" else "judge_4")
    return found


@pytest.fixture(scope="session")
def tools_3() -> Iterator[Tools]:
    need("java", "mvn")
    with Tools("3.9.1") as tools:
        yield tools


@pytest.fixture(scope="session")
def tools_4() -> Iterator[Tools]:
    need("java", "mvn")
    with Tools("4.3.1") as tools:
        yield tools


@pytest.fixture(scope="session", params=RELEASES)
def tools(request: pytest.FixtureRequest) -> Tools:
    """Each release's tools in turn."""
    found: Tools = request.getfixturevalue("tools_3" if request.param == "3.9.1" else "tools_4")
    return found


#: What our producer writes for the peers to read: as many records in each codec, each in a topic of its own.
WRITTEN = [(b"key %d" % number, b"value %d " % number + b"again and " * (number % 60)) for number in range(300)]


@pytest.fixture(scope="session")
def written_by_us(broker: BrokerProcess) -> dict[Codec, str]:
    """Topics of one partition by the codec in which our client has written WRITTEN into them."""
    names = {codec: f"ours-{codec.name.lower()}" for codec in Codec}

    async def write() -> None:
        cluster = Cluster(broker.bootstrap)
        try:
            await Admin(cluster).create_topics([NewTopic(name, 1, 1) for name in names.values()])
            for codec, name in names.items():
                async with Producer(cluster, compression=codec, batch_size=4000) as producer:
                    for number, (key, value) in enumerate(WRITTEN):
                        await producer.send(name, value, key, 0, [("number", b"%d" % number)])
        finally:
            await cluster.close()

    asyncio.run(write())
    return names
