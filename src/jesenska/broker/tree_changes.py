"""What others write in the tree, and what the lone controller does about it: the tools of 0.8 to 2.x (`--zookeeper`), ZooKeeper's shell, a person.

    /brokers/topics                     a topic is new: states of its partitions, logs, view        it is gone: it goes from the view, its data stay
    /brokers/topics/T                   it has more partitions, or its replicas were written anew
    /config/changes                     settings of a topic or a broker changed
    /admin/delete_topics                topics to delete
    /admin/reassign_partitions          asks for other replicas: what is so already is done, the rest needs brokers that are not there
    /admin/preferred_replica_election   asks for leaders that are there already
    /controller                         was taken away: claimed again
    /brokers/ids                        another broker has come: said in the log

A watch names what to look at; one task looks, one thing after the other, each while no other change of topics is at work. A look sets its watch anew, reads,
and acts on the difference to the facts. So it does not matter who made a change, how many were made at a time, or that this broker made it itself.
After the store was out of reach, everything is looked at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from jesenska.base.errors import KafkaError
from jesenska.base.topic_names import topic_name_problem
from jesenska.broker.core import BrokerCore
from jesenska.broker.membership import Membership
from jesenska.broker.topics import Topics
from jesenska.controller.context import ConfigView
from jesenska.controller.reading import entities, in_flight, load_config, load_topic
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, decode_config_change, decode_reassignment
from jesenska.metadata.registration import controller_of
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import MultiError, NoNodeError, TreeError
from jesenska.metadata.watches import WatchEvent

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 30.0
_AT_ONCE = 100
_TOPIC = "topic "  # what to look at: a topic's node; otherwise the path itself
_EVERYTHING = "everything"


class TreeChanges:
    """The controller's eyes; `start`, then `close`."""

    def __init__(self, core: BrokerCore, store: Store, topics: Topics, membership: Membership) -> None:
        self._core = core
        self._store = store
        self._topics = topics
        self._membership = membership
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._work: dict[str, Callable[[], Awaitable[None]]] = {
            _EVERYTHING: self._everything, paths.TOPICS: self._topic_names, paths.CONFIG_CHANGES: self._config_changes,
            paths.DELETE_TOPICS: self._deletions, paths.REASSIGN_PARTITIONS: self._reassignment, paths.PREFERRED_REPLICA_ELECTION: self._election,
            paths.CONTROLLER: self._controller, paths.BROKER_IDS: self._brokers,
        }  # fmt: skip
        self._hear = {what: partial(self._heard, what) for what in self._work}
        self._watched_topics: dict[str, Callable[[WatchEvent], None]] = {}
        self._failures: dict[str, int] = {}
        self._last_change = -1

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._store.on_state(self._state)
        self.look_at_everything()

    def look_at_everything(self) -> None:
        self._look(_EVERYTHING)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # What to look at

    def _look(self, what: str) -> None:
        self._due[what] = None
        self._wake.set()

    def _heard(self, what: str, _: WatchEvent) -> None:
        self._look(what)

    def _state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.look_at_everything()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                what = next(iter(self._due))
                try:
                    async with self._topics.changing():
                        # Before it is read: what changes meanwhile is looked at again.
                        del self._due[what]
                        await self._look_at(what)
                except (TreeError, MultiError, KafkaError) as error:
                    self._again_later(what, error)
                except Exception:
                    logger.exception("what was written in the tree could not be acted on (%s)", what)
                else:
                    self._failures.pop(what, None)

    def _again_later(self, what: str, error: Exception) -> None:
        if self._store.state is not SessionState.CONNECTED:
            return  # once it is again, everything is looked at
        failures = self._failures[what] = self._failures.get(what, 0) + 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
        logger.info("%s: not done (%s), tried again in %g s", what, error, pause)
        asyncio.get_running_loop().call_later(pause, self._look, what)

    async def _look_at(self, what: str) -> None:
        if what.startswith(_TOPIC):
            await self._topic(what.removeprefix(_TOPIC))
        else:
            await self._work[what]()

    async def _everything(self) -> None:
        await self._controller()
        await self._topic_names()
        names = list(self._topics.facts.topics)
        for name, changed in zip(names, await in_flight([partial(self._is_other, name) for name in names], _AT_ONCE), strict=True):
            if changed:
                await self._adopt(name)
        all_entities = await entities(self._store)
        for entity, found in zip(all_entities, await in_flight([partial(self._settings, entity) for entity in all_entities], _AT_ONCE), strict=True):
            self._apply(entity, found)
        await self._config_changes()
        for work in (self._deletions, self._reassignment, self._election, self._brokers):
            await work()

    # Topics

    async def _topic_names(self) -> None:
        names = (await self._store.children(paths.TOPICS, self._hear[paths.TOPICS]))[0]
        facts = self._topics.facts
        for name in names:
            # Those that this broker has made are known already, but not watched.
            if name not in facts.topics or name not in self._watched_topics:
                await self._topic(name)
        for name in facts.topics.keys() - names:
            self._watched_topics.pop(name, None)
            await self._topics.vanished(name)

    async def _topic(self, name: str) -> None:
        if await self._is_other(name):
            await self._adopt(name)

    async def _is_other(self, name: str) -> bool:
        """Whether a topic's node is not the one that is known; watches it."""
        problem = topic_name_problem(name)
        if problem is not None:
            logger.error("%s is ignored: %s", paths.topic(name), problem)
            return False
        hear = self._watched_topics.setdefault(name, partial(self._heard, _TOPIC + name))
        try:
            _, stat = await self._store.get(paths.topic(name), hear)
        except NoNodeError:
            return False  # /brokers/topics is looked at for that
        known = self._topics.facts.topics.get(name)
        return known is None or known.version != stat.version

    async def _adopt(self, name: str) -> None:
        known = self._topics.facts.topics.get(name)
        try:
            fresh = await load_topic(self._store, name, at_once=_AT_ONCE)
            if fresh is None:
                return
            if not fresh.node.replicas or sorted(fresh.node.replicas) != list(range(len(fresh.node.replicas))):
                raise NodeFormatError("its partitions are not numbered from 0 without a gap")
            if known is not None and len(fresh.node.replicas) < len(known.node.replicas):
                raise NodeFormatError("it has fewer partitions than before")
        except NodeFormatError as error:
            logger.error("%s is ignored: %s", paths.topic(name), error)
            return
        await self._config(f"topics/{name}")
        await self._topics.adopt(fresh)

    async def _deletions(self) -> None:
        names = (await self._store.children(paths.DELETE_TOPICS, self._hear[paths.DELETE_TOPICS]))[0]
        for name in names:
            if name not in self._topics.facts.topics:
                await self._topic(name)
            if name not in self._topics.facts.topics:
                logger.info("%s names no topic: taken away", paths.delete_topic(name))
                await self._take_away(paths.delete_topic(name))
            elif not self._core.config.boolean("delete.topic.enable"):
                logger.warning("%s is taken away without deleting the topic: delete.topic.enable=false", paths.delete_topic(name))
                await self._take_away(paths.delete_topic(name))
            else:
                await self._topics.end_deletion(name)
                self._watched_topics.pop(name, None)

    # Settings

    async def _config_changes(self) -> None:
        names = (await self._store.children(paths.CONFIG_CHANGES, self._hear[paths.CONFIG_CHANGES]))[0]
        last = self._last_change
        for name in names:
            digits = name[-10:]
            number = int(digits) if digits.isascii() and digits.isdigit() else -1
            if number <= self._last_change:
                continue
            last = max(last, number)
            path = f"{paths.CONFIG_CHANGES}/{name}"
            self._topics.told(path)
            try:
                entity = decode_config_change((await self._store.get(path))[0])
            except NoNodeError:
                continue
            except NodeFormatError as error:
                logger.error("%s is ignored: %s", path, error)
                continue
            if entity.startswith(("topics/", "brokers/")):
                await self._config(entity)
        self._last_change = last

    async def _config(self, entity: str) -> None:
        self._apply(entity, await self._settings(entity))

    async def _settings(self, entity: str) -> ConfigView | None:
        try:
            return await load_config(self._store, entity)
        except NodeFormatError as error:
            logger.error("/config/%s is ignored: %s", entity, error)
            return None

    def _apply(self, entity: str, found: ConfigView | None) -> None:
        known = self._topics.facts.configs.get(entity)
        if found is not None and (known is None or found.version != known.version or found.settings != known.settings):
            self._topics.settings_written(entity, found)

    # Work for a controller

    async def _reassignment(self) -> None:
        path = paths.REASSIGN_PARTITIONS
        if await self._store.exists(path, self._hear[path]) is None:
            return
        try:
            wanted = decode_reassignment((await self._store.get(path))[0])
        except NodeFormatError as error:
            logger.error("%s is taken away: %s", path, error)
            wanted = {}
        for topic_partition, replicas in wanted.items():
            topic = self._topics.facts.topics.get(topic_partition.topic)
            current = topic.node.replicas.get(topic_partition.partition) if topic is not None else None
            if current is None:
                logger.error("%s cannot get other replicas: there is no such partition", topic_partition)
            elif current != replicas:
                logger.error("%s stays on %s: it cannot move to %s, for broker %d is the only one", topic_partition, current, replicas, self._core.broker_id)
        await self._take_away(path)

    async def _election(self) -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        if await self._store.exists(path, self._hear[path]) is not None:
            logger.info("an election of preferred leaders was asked for: broker %d leads what it can lead", self._core.broker_id)
            await self._take_away(path)

    async def _controller(self) -> None:
        if await self._store.exists(paths.CONTROLLER, self._hear[paths.CONTROLLER]) is None:
            if await self._membership.claim():
                logger.info("broker %d is controller again, of epoch %d", self._core.broker_id, self._membership.epoch)
                self._topics.controller_since(self._membership.epoch, self._membership.epoch_version)
            return
        holder = await controller_of(self._store)
        if holder not in (None, self._core.broker_id):
            logger.error("broker %s is controller now: topics cannot be changed here until %s goes away", holder, paths.CONTROLLER)

    async def _brokers(self) -> None:
        for name in (await self._store.children(paths.BROKER_IDS, self._hear[paths.BROKER_IDS]))[0]:
            if name != str(self._core.broker_id):
                logger.error("broker %s has registered beside this one, which cannot be one of several yet: it gets no partitions", name)

    async def _take_away(self, path: str) -> None:
        with suppress(NoNodeError):
            await self._store.delete(path)
