"""A topic that is created and deleted repeatedly under the same name, while brokers are paused, cut off from the
network and killed.

No records are written to the topic. At the end of the simulation, the topic exists or does not exist, by chance. Every
broker must report this final state to clients. A broker that missed a deletion must not keep serving the old topic,
and must not prevent the new topic from having a leader. The checks of other topics do not apply to this topic, since
its leader epochs start again with each creation."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from jesenska.base.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.testing.simulation.clients import cluster_of
from jesenska.testing.simulation.machine.process import Process

CHURNED: Final = "churned"
_PARTITIONS: Final = 2
#: The pauses in seconds between two changes of the topic, and the pause before a refused change is tried again.
_PAUSES_SECONDS, _AGAIN_SECONDS = (0.5, 2.0, 5.0), 0.5
#: If a deletion takes longer than this many seconds, its request may have been sent more than once.
_ANSWERED_SECONDS: Final = 1.0


class Churner:
    """An operator who repeatedly creates and deletes the topic. Half of the time he continues only when every broker
    reports the last change. `brokers` returns the brokers, with None for a broker that is not up. `is_there` is True
    if the last change created the topic."""

    def __init__(self, process: Process, bootstrap: str, brokers: Callable[[], Sequence[Broker | None]]) -> None:
        self.process = process
        self.is_stopping = self.is_there = False
        #: True if a deletion was sent twice or got no response. It may then take effect later, on a topic that was
        #: created after it.
        self._deleted_twice = False
        self._bootstrap = bootstrap
        self._brokers = brokers

    async def run(self) -> None:
        random, changes = self.process.world.random, 0
        cluster = cluster_of(self.process, self._bootstrap)
        stays = random.random() < 0.5
        while not self.is_stopping or self.is_there is not stays:
            if not await self._change(Admin(cluster)):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            changes += 1
            if random.random() < 0.5:
                await self._settles()
            elif not self.is_stopping:
                await asyncio.sleep(random.choice(_PAUSES_SECONDS))
        await cluster.close()
        self.process.world.tell(
            self.process.name,
            f"has made and deleted the topic in {changes} changes, and it is {'there' if stays else 'gone'}",
        )

    async def _settles(self) -> None:
        # No event reports a change of the brokers' state, so the state is polled.
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            if self.is_settled or self.is_deleted_late:
                return

    async def _change(self, admin: Admin) -> bool:
        """Creates the topic, or deletes it. Returns True if that succeeded."""
        # A deletion waits for the brokers that have a replica. So most topics get one replica only: then other brokers
        # can miss the deletion.
        replicas = self.process.world.random.choice((1, 1, 1, 2, len(self._brokers())))
        began = asyncio.get_running_loop().time()
        try:
            if self.is_there:
                (error,) = (await admin.delete_topics([CHURNED])).values()
                self._note_deletion(began)
                is_done = error is None or isinstance(error, UnknownTopicOrPartitionError)
            else:
                (error,) = (await admin.create_topics([NewTopic(CHURNED, _PARTITIONS, replicas)])).values()
                # TopicAlreadyExistsError is also returned while the topic is still being deleted; its text then
                # contains "marked". In this case the creation must be tried again.
                is_done = error is None or (isinstance(error, TopicAlreadyExistsError) and "marked" not in str(error))
        except KafkaError:
            if self.is_there:
                self._note_deletion(began)
            return False
        if is_done:
            self.is_there = not self.is_there
        return is_done

    def _note_deletion(self, began: float) -> None:
        if asyncio.get_running_loop().time() - began > _ANSWERED_SECONDS:
            self._deleted_twice = True

    @property
    def is_deleted_late(self) -> bool:
        """Returns True if a deletion that was sent twice has deleted the topic that was created after it. Then no
        broker reports the topic."""
        return (
            self._deleted_twice
            and self.is_there
            and all(broker is not None and CHURNED not in broker.view.topics for broker in self._brokers())
        )

    @property
    def is_settled(self) -> bool:
        """Returns True if every broker is up and reports the expected state: the same topic with a leader for each
        partition, or no topic."""
        ids: set[uuid.UUID | None] = set()
        led: set[TopicPartition] = set()
        for broker in self._brokers():
            if broker is None:
                return False
            topic = broker.view.topics.get(CHURNED)
            ids.add(None if topic is None else topic.topic_id)
            led.update(
                partition.topic_partition
                for partition in (() if topic is None else topic.partitions)
                if partition.is_served
            )
        return (
            len(ids) == 1 and (None not in ids) is self.is_there and len(led) == (_PARTITIONS if self.is_there else 0)
        )
