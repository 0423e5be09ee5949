"""The controller's reactions to changes of the metadata tree by other processes: tools of Kafka 0.8 to 2.x
(`--zookeeper`), ZooKeeper's shell, other brokers.

  /brokers/topics                     a new topic gets states and logs, and is shown to clients. A removed topic is
                                      hidden from clients; its data are not deleted
  /brokers/topics/T                   topic T has more partitions, or other replicas
  /config/changes                     settings of a topic or a broker have changed
  /admin/delete_topics                topics to delete
  /admin/reassign_partitions          requested moves of replicas (`reassignments`)
  /admin/preferred_replica_election   requested elections of preferred leaders
  /admin/jesenska_lost_brokers        brokers that never come back: deletions no longer wait for them
  /isr_change_notification            leaders have written ISRs, which are sent to every broker
  /log_dir_event_notification         log directories of brokers have failed: the brokers are asked for their offline
                                      replicas
  /brokers/ids                        brokers have registered or left. If this broker must be the only broker, another
                                      broker is reported in the log

A watch that fires causes a look (`events.Look`) at a part of the tree. A look sets its watch again, reads the part,
and handles each difference from the context (the controller's copy of the tree). So it does not matter which process
made a change, or how many changes were made. After a lost connection to the store, everything is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jesenska.base.topic_names import topic_name_problem
from jesenska.controller.changes.brokers import Brokers
from jesenska.controller.changes.change_state import Asking, ControllerState, Steps, refusal, whole, write
from jesenska.controller.changes.config_looks import ConfigLooks
from jesenska.controller.changes.deletions import Deletions
from jesenska.controller.changes.leadership import Leadership
from jesenska.controller.changes.reassignments import Reassignments
from jesenska.controller.changes.topic_changes import TopicChanges
from jesenska.controller.context import ConfigView, PartitionView, TopicView
from jesenska.controller.effects import Children, Exists, Get, GetMade, Read
from jesenska.controller.events import EVERYTHING, TOPIC, BrokerCame, Look
from jesenska.controller.plans.topics import forget_topic
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    BrokerRegistration,
    NodeFormatError,
    PartitionStateNode,
    TopicNode,
    decode_log_dir_event,
    decode_lost_brokers,
    decode_partitions,
)
from jesenska.metadata.tree_operations import Delete, MultiError, NoNodeError, TreeError


class TreeLooks:
    """The reactions of one controller to changes of the metadata tree (ZooKeeper's nodes). A look reads a part of the
    tree again."""

    def __init__(
        self,
        shared: ControllerState,
        topics: TopicChanges,
        deletions: Deletions,
        brokers: Brokers,
        leadership: Leadership,
        reassignments: Reassignments,
        several: bool,
    ) -> None:
        self._shared = shared
        self._context = shared.context
        self._topics = topics
        self._deletions = deletions
        self._configs = ConfigLooks(shared, self._settings_found, self._remember_config_change)
        self._brokers_up = brokers
        self._several = several
        self._leadership = leadership
        self._looks: dict[str, Callable[[], Steps]] = {
            EVERYTHING: self._everything,
            paths.TOPICS: self._topic_names,
            paths.CONFIG_CHANGES: self._configs.changes,
            paths.DELETE_TOPICS: self._marked,
            paths.REASSIGN_PARTITIONS: reassignments.look,
            paths.PREFERRED_REPLICA_ELECTION: self._election,
            paths.ISR_CHANGES: self._isr_changes,
            paths.LOG_DIR_EVENTS: self._log_dir_events,
            paths.BROKER_IDS: self._brokers,
            paths.LOST_BROKERS: self._lost_brokers,
        }
        self._watched: set[str] = set()

    def look(self, event: Look) -> Steps:
        """Reads a part of the metadata tree, or all of it, and reacts to the changes."""
        if event.at.startswith(TOPIC):
            yield from self._topics_written([event.at.removeprefix(TOPIC)])
        else:
            yield from self._looks[event.at]()

    def _everything(self) -> Steps:
        yield from self._topic_names()
        yield from self._topics_written(list(self._context.topics))
        yield from self._configs.everything()
        for work in (
            self._configs.changes, self._marked, self._looks[paths.REASSIGN_PARTITIONS], self._election, self._isr_changes, self._brokers, self._brokers_up.elect,  # noqa: E501
            self._log_dir_events, self._lost_brokers,
        ):  # fmt: skip
            yield from work()

    # Topics

    def _topic_names(self) -> Steps:
        names = yield from self._children(paths.TOPICS)
        topics = self._context.topics
        # Topics that this controller has created are known, but not watched yet.
        yield from self._topics_written([name for name in names if name not in topics or name not in self._watched])
        there = set(names)
        for name, topic in [
            (name, topic) for name, topic in topics.items() if name not in there and not topic.deleting
        ]:
            self._shared.say(
                "error",
                f"topic {name} was removed from the tree: clients do not see it any more, but its data stay in "
                "the log directories",
            )
            self._watched.discard(name)
            forget_topic(self._context, name)
            self._shared.replicas.forget(name)
            self._shared.tell_everybody(gone=(whole(topic),))

    def _topics_written(self, names: Sequence[str]) -> Steps:
        """Adopts the topics that differ from the context (the controller's copy of the metadata tree). Sets watches on
        all of the topics."""
        legal = []
        for name in names:
            problem = topic_name_problem(name)
            if problem is None:
                legal.append(name)
            else:
                self._shared.say("error", f"{paths.topic(name)} is ignored: {problem}")
        versions = yield Read(tuple(Exists(paths.topic(name), TOPIC + name) for name in legal))
        for name, version in zip(legal, versions, strict=True):
            if version is None:
                continue  # /brokers/topics is looked at for that
            self._watched.add(name)
            known = self._context.topics.get(name)
            if known is None or known.version != version:
                yield from self._adopt(name)

    def _adopt(self, name: str) -> Steps:
        known = self._context.topics.get(name)
        try:
            written = yield from self._read_topic(name)
            if written is None:
                return
            if not written.node.replicas or sorted(written.node.replicas) != list(range(len(written.node.replicas))):
                raise NodeFormatError("its partitions are not numbered from 0 without a gap")
            if known is not None and len(written.node.replicas) < len(known.node.replicas):
                raise NodeFormatError("it has fewer partitions than before")
        except NodeFormatError as error:
            self._shared.say("error", f"{paths.topic(name)} is ignored: {error}")
            return
        yield from self._configs.entities([f"topics/{name}"])
        yield from self._topics.adopt(written)

    def _read_topic(self, name: str) -> Asking:
        found, numbers = yield Read((Get(paths.topic(name)), Children(paths.partitions(name))))
        if found is None:
            return None
        known = [int(number) for number in numbers or () if number.isascii() and number.isdigit()]
        states = yield Read(tuple(Get(paths.partition_state(name, number)) for number in known))
        partitions = {
            number: PartitionView(PartitionStateNode.decode(state[0]), state[1])
            for number, state in zip(known, states, strict=True)
            if state is not None
        }
        return TopicView(name, TopicNode.decode(found[0]), found[1], partitions)

    def _marked(self) -> Steps:
        names = yield from self._children(paths.DELETE_TOPICS)
        for name in names:
            if name not in self._context.topics:
                yield from self._topics_written([name])
            if name not in self._context.topics:
                self._shared.say(
                    "info", f"{paths.delete_topic(name)} names a topic that does not exist, and is removed"
                )
                yield from self._take_away(paths.delete_topic(name))
            elif not self._shared.config.boolean("delete.topic.enable"):
                self._shared.say(
                    "warning",
                    f"{paths.delete_topic(name)} is removed, and the topic is not deleted, because "
                    "delete.topic.enable=false",
                )
                yield from self._take_away(paths.delete_topic(name))
            else:
                self._watched.discard(name)
                yield from self._deletions.begin(name)
        yield from self._deletions.again()

    # Settings

    def _settings_found(self, entity: str, found: ConfigView | None) -> Steps:
        """Stores changed settings in the context, or drops them if their node is gone. They may allow the election of
        a leader for partitions without a leader."""
        self._context.store_settings(entity, found)
        if entity.startswith("brokers/"):
            self._shared.settings_changed()
        yield from self._leadership.elect_where_allowed()

    def _remember_config_change(self, path: str) -> None:
        """Called with the path of each node under /config/changes. Does nothing: each broker deletes the nodes that it
        has created itself (`controller.settings`)."""

    # Requests to the controller in the tree

    def _election(self) -> Steps:
        path = paths.PREFERRED_REPLICA_ELECTION
        (found,) = yield Read((Exists(path, path),))
        if found is not None:
            self._shared.say(
                "info",
                f"an election of preferred leaders was asked for: broker {self._shared.broker_id} leads what it can "
                "lead",
            )
            yield from self._take_away(path)

    def _lost_brokers(self) -> Steps:
        path = paths.LOST_BROKERS
        (found,) = yield Read((Get(path, path),))
        if found is None:
            return
        try:
            lost = decode_lost_brokers(found[0])
        except NodeFormatError as error:
            self._shared.say("error", f"{path} cannot be read and is removed: {error}")
        else:
            yield from self._deletions.forget_brokers(lost)
        yield from self._take_away(path)

    def _isr_changes(self) -> Steps:
        """Reads the ISRs that leaders have written, sends them to the brokers, and deletes the notification nodes."""
        names = yield from self._children(paths.ISR_CHANGES)
        change_paths = [f"{paths.ISR_CHANGES}/{name}" for name in names]
        nodes = yield Read(tuple(Get(path) for path in change_paths))
        changed: dict[str, dict[int, None]] = {}
        for path, node in zip(change_paths, nodes, strict=True):
            try:
                for name, number in decode_partitions(node[0]) if node is not None else ():
                    topic = self._context.topics.get(name)
                    if topic is not None and number in topic.partitions:
                        changed.setdefault(name, {})[number] = None
            except NodeFormatError as error:
                self._shared.say("error", f"{path} cannot be read and is removed: {error}")
        for name, numbers in changed.items():
            if not self._context.topics[name].deleting:
                yield from self._leadership.read_again(name, numbers)
        for path in change_paths:
            yield from self._take_away(path)

    def _log_dir_events(self) -> Steps:
        """Asks brokers whose log directories have failed which replicas are offline, and deletes the notification
        nodes."""
        names = yield from self._children(paths.LOG_DIR_EVENTS)
        change_paths = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]
        nodes = yield Read(tuple(Get(path) for path in change_paths))
        brokers: dict[int, None] = {}
        for path, node in zip(change_paths, nodes, strict=True):
            try:
                if node is not None:
                    brokers[decode_log_dir_event(node[0])] = None
            except NodeFormatError as error:
                self._shared.say("error", f"{path} cannot be read and is removed: {error}")
        for broker_id in brokers:
            self._leadership.ask_for_replicas(broker_id)
        for path in change_paths:
            yield from self._take_away(path)

    def _brokers(self) -> Steps:
        names = yield from self._children(paths.BROKER_IDS)
        if self._several:
            yield from self._registered([int(name) for name in names if name.isascii() and name.isdigit()])
            return
        for name in names:
            if name != str(self._shared.broker_id):
                self._shared.say(
                    "error",
                    f"broker {name} has registered, but this broker cannot be one of several brokers yet: broker "
                    f"{name} gets no partitions",
                )

    def _registered(self, broker_ids: Sequence[int]) -> Steps:
        """Compares the registered brokers with the context. A broker with another registration than before has left
        and registered again."""
        nodes = yield Read(tuple(GetMade(paths.broker(broker_id)) for broker_id in broker_ids))
        came: list[BrokerCame] = []
        there: dict[int, int] = {}
        for broker_id, node in zip(broker_ids, nodes, strict=True):
            if node is None:
                continue
            data, epoch = node
            there[broker_id] = epoch
            if self._context.broker_epochs.get(broker_id) == epoch:
                continue
            try:
                registration = BrokerRegistration.decode(data)
            except NodeFormatError as error:
                self._shared.say("error", f"{paths.broker(broker_id)} is ignored: {error}")
                del there[broker_id]
                continue
            came.append(BrokerCame(None, broker_id, registration, registration.crashed, epoch))
        gone = [
            broker_id
            for broker_id in self._context.brokers
            if there.get(broker_id) != self._context.broker_epochs.get(broker_id, -1)
        ]
        if gone or came or self._brokers_up.is_unsettled:
            yield from self._brokers_up.changed(gone, came)

    def _children(self, path: str) -> Asking:
        """Returns the names of a node's children, and watches them: a change causes another look."""
        (names,) = yield Read((Children(path, path),))
        if names is None:
            raise NoNodeError(path)
        return names

    def _take_away(self, path: str) -> Steps:
        try:
            yield from write((Delete(path),))
        except (MultiError, TreeError) as error:
            if not isinstance(refusal(error), NoNodeError):
                raise
