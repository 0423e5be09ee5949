"""A group of ten members, ours and librdkafka's. Members join, leave, die and lose their connections, while the broker
is killed, stopped and started.

Whenever the group is stable, each partition must belong to exactly one member. When no more changes happen, it must
belong to exactly one live member, which knows it. Committed offsets must never go back, and every record must be read
at least once. Each of the two runs (eager, cooperative) takes a few seconds, with JESENSKA_TESTS=everything five
minutes. JESENSKA_SEED chooses the events.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.group_administration import GroupDescription
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.processes.crash.load import TOPIC, Ledger, produce
from tests.processes.crash.readers import GroupLedger
from tests.processes.crash.soak_members import LibrdkafkaMember, OurMember, SoakMember
from tests.profiles import rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SECONDS = rounds(quick=5, ci=5, everything=60)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
_HAS_LIBRDKAFKA = importlib.util.find_spec("confluent_kafka") is not None
_MEMBERS = 10
_KEYS = [TopicPartition(TOPIC, partition) for partition in range(24)]
_GROUP = "soak"
_SETTLE_SECONDS = 90
_SETTINGS = {
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}


class Soak:
    def __init__(self, broker: BrokerProcess, assignor: str) -> None:
        self._broker = broker
        self._assignor = assignor
        self._chance = Random(f"{SEED} {assignor}")
        self._members: dict[str, SoakMember] = {}
        self._born = 0
        self.groups = GroupLedger()
        self.ledger = Ledger()
        #: The number of times that each event and each check happened.
        self.counts: Counter[str] = Counter()

    # --- what happens ------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        self._born += 1
        kind = LibrdkafkaMember if _HAS_LIBRDKAFKA and self._born % 5 in (0, 3) else OurMember
        name = f"{kind.__name__}-{self._born}"
        self._members[name] = kind(name, self._broker.bootstrap, self.groups, _GROUP, TOPIC, self._assignor)

    def _one(self) -> SoakMember:
        return self._members.pop(self._chance.choice(sorted(self._members)))

    async def _leave(self) -> None:
        await self._one().leave()

    async def _die(self) -> None:
        await self._one().die()

    async def _lose_connections(self) -> None:
        ours = [member for member in self._members.values() if isinstance(member, OurMember)]
        for member in self._chance.sample(ours, min(2, len(ours))):
            member.lose_connections()

    async def _kill_broker(self) -> None:
        await asyncio.to_thread(self._broker.kill)
        await asyncio.to_thread(self._broker.start)

    async def _restart_broker(self) -> None:
        await asyncio.to_thread(self._broker.stop)
        await asyncio.to_thread(self._broker.start)

    def _next(self) -> Callable[[], Awaitable[None]]:
        few, many = len(self._members) < _MEMBERS - 3, len(self._members) > _MEMBERS + 1
        weights = {
            self._join: 0 if many else 9 if few else 3,
            self._leave: 0 if few else 3,
            self._die: 0 if few else 3,
            self._lose_connections: 2,
            self._kill_broker: 1,
            self._restart_broker: 1,
        }
        return self._chance.choices(list(weights), list(weights.values()))[0]

    async def shake(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_MEMBERS):
            await self._join()
        await self.settle()
        until = loop.time() + seconds
        while loop.time() < until:
            for _ in range(self._chance.randint(1, 3)):
                event = self._next()
                self.counts[event.__name__.strip("_")] += 1
                await event()
                await asyncio.sleep(self._chance.uniform(0, 0.7))
            if self._chance.random() < 0.5:
                await self.settle()
            assert self.groups.failures == self.ledger.failures == []
        while len(self._members) < _MEMBERS:
            await self._join()
        await self.settle()

    async def end(self) -> None:
        for member in self._members.values():
            await member.die()

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _check(self, group: GroupDescription) -> None:
        """Checks the coordinator's own view, at any moment."""
        if group.state == "Stable":
            owned = sorted(key for member in group.members for key in member.assignment)
            whole = self._assignor != "cooperative-sticky"  # moved partitions have no owner for a generation
            if len(set(owned)) != len(owned) or (whole and owned != _KEYS):
                self.groups.fail(f"the group is stable, and its partitions belong to {group.members}")
            self.counts["stable looks"] += 1

    async def watch(self) -> None:
        """Checks the group and its offsets all the time."""
        cluster = Cluster(self._broker.bootstrap)
        try:
            while True:
                try:
                    group = (await Admin(cluster).describe_groups([_GROUP]))[_GROUP]
                    if isinstance(group, GroupDescription):
                        self._check(group)
                    before = self.groups.floors(_GROUP)
                    found = await Admin(cluster).list_group_offsets(_GROUP)
                    self.groups.has_seen(
                        _GROUP, before, {key: item.offset for key, item in found.items()}, "a look from outside"
                    )
                    self.counts["looks at offsets"] += 1
                except KafkaError:
                    pass  # the broker is not there
                await asyncio.sleep(0.1)
        finally:
            await cluster.close()

    async def settle(self) -> None:
        """Returns when the group is stable with its live members, all partitions are owned, and each member owns the
        partitions that the coordinator has assigned to it."""
        cluster = Cluster(self._broker.bootstrap)
        group: GroupDescription | KafkaError | None = None
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                while True:
                    assert self.groups.failures == self.ledger.failures == []
                    group = (await Admin(cluster).describe_groups([_GROUP]))[_GROUP]
                    if isinstance(group, GroupDescription) and group.state == "Stable" and self._is_settled(group):
                        self.counts["settled"] += 1
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            views = {name: sorted(key.partition for key in member.owned()) for name, member in self._members.items()}
            raise AssertionError(
                f"the group does not settle. It is {group}. Its members believe to own {views}"
            ) from None
        finally:
            await cluster.close()

    def _is_settled(self, group: GroupDescription) -> bool:
        owned = sorted(key for member in self._members.values() for key in member.owned())
        return owned == _KEYS and {item.client_id: set(item.assignment) for item in group.members} == {
            name: member.owned() for name, member in self._members.items()
        }

    async def check_that_everything_was_read(self) -> None:
        cluster = Cluster(self._broker.bootstrap)
        try:
            ends = {
                key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(_KEYS, LATEST))).items()
            }
        finally:
            await cluster.close()
        await asyncio.to_thread(self.groups.wait_for_ends, [_GROUP], ends)
        for key, end in ends.items():
            missed = set(range(end)) - self.groups.read[_GROUP, key]
            assert not missed, f"nobody read {sorted(missed)[:10]} of {key}"
        self.counts["records"] = sum(ends.values())
        assert self.ledger.count == self.counts["records"]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_ten_members_share_the_partitions_whatever_happens_to_them_and_the_broker(
    tmp_path: Path, assignor: str
) -> None:
    print(f"JESENSKA_SEED={SEED}")
    with BrokerProcess(tmp_path / "data", settings=_SETTINGS) as broker:

        async def work() -> None:
            cluster = Cluster(broker.bootstrap)
            assert await Admin(cluster).create_topics([NewTopic(TOPIC, len(_KEYS), 1)]) == {TOPIC: None}
            await cluster.close()
            soak = Soak(broker, assignor)
            producing = asyncio.create_task(
                produce(broker.bootstrap, soak.ledger, "producer", True, Codec.NONE, 0.3, len(_KEYS))
            )
            watching = asyncio.create_task(soak.watch())
            try:
                await soak.shake(SECONDS)
                soak.ledger.stopping.set()
                await producing
                await soak.check_that_everything_was_read()
            finally:
                soak.ledger.stopping.set()
                watching.cancel()
                await asyncio.wait({watching, producing})
                await soak.end()
            assert soak.groups.failures == soak.ledger.failures == []
            assert soak.counts["settled"] >= 2 and soak.counts["stable looks"]
            print(f"{assignor}, {SECONDS} s: {dict(soak.counts)}, {soak.groups.commits[_GROUP]} commits")

        asyncio.run(work())
