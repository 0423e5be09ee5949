"""The fourth stage of a start: loads the logs, and finds the replicas that have lost data. Creates the links over
which this broker fetches from leaders."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.controlling.registration import Progress
from jesenska.broker.peers import Peers
from jesenska.broker.replicas.directory_failures import DirectoryFailures
from jesenska.broker.replicas.replica_manager import ReplicaManager, known_to
from jesenska.broker.replicas.starts import Starts
from jesenska.broker.settings.derived_settings import link_settings_of
from jesenska.broker.settings.replication_throttles import ReplicationThrottles
from jesenska.broker.settings.settings_runtime import SettingsRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.security import PeerListener
from jesenska.broker.stages.storage import Storage
from jesenska.broker.stages.tree import TreePlace
from jesenska.controller.changes.change_state import first_of
from jesenska.controller.context import ControllerContext
from jesenska.controller.settings import Settings
from jesenska.log.directory.partition_loading import Known, LoadProgress
from jesenska.replication.follower.links import FollowerLinks
from jesenska.replication.lost_data import Written, lost_replicas
from jesenska.replication.older_tree import Heard, newer_than_tree

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Replication:
    """The parts of this stage. `starts` is None if no other process can write to the metadata tree. `is_crashed` is
    True if the broker was not stopped cleanly or has lost data. The broker is then removed from every ISR that has
    another member, before it can lead."""

    settings: SettingsRuntime
    peers: Peers
    links: FollowerLinks
    throttles: ReplicationThrottles
    replicas: ReplicaManager
    failures: DirectoryFailures
    starts: Starts | None
    is_crashed: bool


async def load(
    core: SharedParts, place: TreePlace, storage: Storage, peer_listener: PeerListener, on_progress: Progress | None
) -> Replication:
    """Loads the logs. Raises JesenskaError, with a message of one sentence, if the metadata tree is older than the
    logs, or if a log cannot be read."""
    facts, view = place.facts, core.view
    machine = Settings(core.broker_id, facts.configs, core.config, lambda name: name in view.topics)
    settings = SettingsRuntime(core, place.store, machine, place.home.change_max_bytes)
    core.in_force.on_change(storage.reconfigure)
    core.in_force.change(settings.config)
    throttles = ReplicationThrottles(core.broker_id, settings.config, view)
    core.in_force.on_change(throttles.reconfigure)
    peers = Peers(core, peer_listener.name, peer_listener.security)

    def log_changed(topic_partition: TopicPartition) -> None:
        """Called when the log of a followed partition has more records or other offsets: wakes the requests that wait
        for it."""
        topic = view.topics.get(topic_partition.topic)
        if topic is not None and topic_partition.partition < len(topic.partitions):
            topic.partitions[topic_partition.partition].changed()

    fetchers = core.config.integer("num.replica.fetchers")
    links = FollowerLinks(
        peers.connect,
        core.clock,
        link_settings_of(core.broker_id, core.config),
        fetchers,
        log_changed,
        throttles.follower,
    )
    replicas = ReplicaManager(core, settings, links)
    settings.on_change(replicas.settings_changed)
    failures = DirectoryFailures(core.directories, replicas, place.store, core.broker_id)
    await _load_logs(core, storage, known_to(facts, settings.topic_config), on_progress)
    core.directories.expect(
        TopicPartition(name, number)
        for name, topic in facts.topics.items()
        for number, brokers in topic.node.replicas.items()
        if core.broker_id in brokers
    )
    if older_tree(core, facts, place.home.name) is not None:
        facts = await place.newest_facts()
        if (older := older_tree(core, facts, place.home.name)) is not None:
            raise older
    starts = None
    if place.home.is_shared:
        starts = Starts(place.store, core.broker_id, core.directories, core.machine.new_uuid)
        await place.until_reached(starts.look)
    lost = lost_data(core, facts, has_older_directory=starts is not None and starts.has_older)
    if starts is not None:
        starts.lack([key for key in lost if len(facts.topics[key.topic].partitions[key.partition].state.isr) == 1])
    replicas.refuse_to_lead(lost, None if starts is None else starts.found)
    return Replication(
        settings, peers, links, throttles, replicas, failures, starts, not core.directories.was_clean or bool(lost)
    )


async def _load_logs(core: SharedParts, storage: Storage, known: Known, on_progress: Progress | None) -> None:
    latest: list[LoadProgress] = []

    def progress(item: LoadProgress) -> None:
        latest[:] = [item]

    loop = asyncio.get_running_loop()
    loading = loop.run_in_executor(
        storage.threads.background, core.directories.load, known, core.clock.now_ms(), progress
    )
    while True:
        done, _ = await asyncio.wait({loading}, timeout=_PROGRESS_SECONDS)
        if done:
            break
        if latest and on_progress is not None:
            item = latest[0]
            on_progress(
                f"recovering: {item.partitions_done} of {item.partitions_total} partitions, "
                f"{item.checked_bytes / 1e6:.0f} MB checked"
            )
    loading.result()


def older_tree(core: SharedParts, facts: ControllerContext, tree: str) -> JesenskaError | None:
    """Returns an error if the metadata tree is older than a log of this broker, else None."""
    logs = core.directories.logs
    in_tree = {
        key: Heard(topic.topic_id, topic.partitions[key.partition].state.leader_epoch)
        for key in logs
        if (topic := facts.topics.get(key.topic)) is not None and key.partition in topic.partitions
    }
    found = newer_than_tree(
        in_tree, {key: Heard(log.topic_id, log.leader_epochs.latest_epoch) for key, log in logs.items()}
    )
    if found is None:
        return None
    log = logs[found]
    return JesenskaError(
        f"The log directory {log.directory.parent} is newer than {tree}: {found} has leader epoch "
        f"{log.leader_epochs.latest_epoch} in its log, but only {in_tree[found].leader_epoch} in the metadata tree. "
        f"Restore the newest copy of the tree, or rebuild the tree with jesenska tree rebuild."
    )


def lost_data(core: SharedParts, facts: ControllerContext, *, has_older_directory: bool) -> list[TopicPartition]:
    """Returns the replicas of this broker that have lost data, as far as the metadata tree and the disk show it."""
    directories = core.directories
    written = {
        TopicPartition(name, number): Written(topic.node.replicas.get(number, ()), partition.state)
        for name, topic in facts.topics.items()
        for number, partition in topic.partitions.items()
        if not topic.deleting
    }
    logs = directories.logs.keys() | directories.offline
    has_other = directories.has_new_directory or has_older_directory
    checkpointed = directories.in_checkpoints
    lost = list(
        lost_replicas(core.broker_id, written, logs, directories.cut_logs, checkpointed, has_other_directory=has_other)
    )
    if lost:
        logger.warning(
            "%d in-sync replicas have lost data here (%s): these replicas do not lead until another broker has led",
            len(lost),
            first_of(lost),
        )
    return lost
