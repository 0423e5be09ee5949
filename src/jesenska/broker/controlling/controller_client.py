"""Passes requests of clients to the controller: to create, expand or delete topics, to change settings, and to elect
leaders. A method returns when the change is made and clients can see it. If the controller refuses the change, the
method raises KafkaError with the error code and message for the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from jesenska.base.errors import ErrorCode, InvalidRequestError, KafkaError, LeaderNotAvailableError, UnknownServerError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.controlling.controllership import Controllership
from jesenska.broker.metadata_cache import Topic
from jesenska.broker.peers import Peers
from jesenska.broker.settings.settings_runtime import SettingsRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.controller.context import ControllerContext, PartitionView
from jesenska.controller.events import (
    AlterBrokerSettings,
    AlterReassignments,
    AlterTopicSettings,
    CreateTopic,
    DeleteTopic,
    ElectPreferred,
    ElectUncleanly,
    Event,
    ExpandTopic,
    IsrProposed,
    StopWanted,
)
from jesenska.controller.plans.config_changes import ConfigOp
from jesenska.controller.plans.internal_topics import automatic_topic
from jesenska.controller.plans.topics import TopicCreation, TopicPlan
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)

#: Times in seconds for a topic that this broker asks the controller, on another broker, to create automatically: the
#: timeout of the request, the timeout for the topic's arrival in this broker's metadata, and the pause between two
#: checks for the arrival.
_CREATION_SECONDS: Final = 30.0
_SHOWN_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.005

#: Types of resources in requests about settings: a topic, a broker.
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SettingsChange = Sequence[ConfigOp] | Mapping[str, str | None]


class ControllerClient:
    """Changes topics, settings and leaders of the cluster for the handlers of requests. A method that needs the
    controller raises NotControllerError if another broker is controller."""

    def __init__(
        self, core: SharedParts, controllership: Controllership, settings: SettingsRuntime, peers: Peers
    ) -> None:
        self._core = core
        self._controllership = controllership
        self._settings = settings
        self._peers = peers
        #: The requests in flight to the controller, on another broker, to create a topic automatically, by topic name.
        self._asked_for: dict[str, asyncio.Future[None]] = {}

    @property
    def is_controller(self) -> bool:
        return self._controllership.is_controller

    @property
    def facts(self) -> ControllerContext:
        """Returns the controller's copy of the metadata tree. Callers must not change it."""
        return self._controllership.runtime.controller.context

    async def _ask(self, make: Callable[[int], Event]) -> Any:
        return await self._controllership.runtime.ask(make)

    async def create(self, wanted: TopicCreation, *, validate_only: bool = False) -> tuple[TopicPlan, Topic | None]:
        """Creates a topic. Returns the topic's plan (its replicas and settings) and the topic. The topic is None if it
        was only validated, or has been deleted again."""
        plan: TopicPlan = await self._ask(lambda token: CreateTopic(token, wanted, validate_only))
        return plan, None if validate_only else self._core.view.topics.get(wanted.name)

    async def create_automatically(self, name: str) -> None:
        """Creates a topic that a client has used before it exists. The topic gets the broker's default settings; an
        internal topic gets its special settings. If another broker is controller, this broker sends a request to that
        broker, and raises LeaderNotAvailableError if the request fails."""
        wanted = automatic_topic(name, self._core.config, len(self._core.view.brokers))
        if self.is_controller:
            plan, _ = await self.create(wanted)
            logger.info(
                "topic %s was created with %d partitions: a client wanted it", name, len(plan.topic.node.replicas)
            )
            return
        asked = self._asked_for.get(name)
        if asked is None:
            asked = self._asked_for[name] = asyncio.ensure_future(self._create_at_controller(wanted))
            asked.add_done_callback(lambda _: self._asked_for.pop(name, None))
        await asyncio.shield(asked)

    async def _create_at_controller(self, wanted: TopicCreation) -> None:
        controller_id = self._controllership.controller_id
        try:
            channel = await self._peers.connect(controller_id)
            try:
                answer = await channel.request(
                    _request(wanted), CreateTopicsResponse, timeout_seconds=_CREATION_SECONDS
                )
            finally:
                channel.close()
        except KafkaError as error:
            raise LeaderNotAvailableError(
                f"Broker {controller_id}, the controller, cannot be asked for topic {wanted.name}: {error}"
            ) from error
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NOT_CONTROLLER:
                raise LeaderNotAvailableError(f"Broker {controller_id} is not the controller any more.")
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError.of(topic.error_code, topic.error_message or "")
        ends = self._core.clock.monotonic() + _SHOWN_SECONDS
        while wanted.name not in self._core.view.topics:
            if self._core.clock.monotonic() > ends:
                raise LeaderNotAvailableError(
                    f"Topic {wanted.name} was created, and this broker has not heard of it yet."
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def expand(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> None:
        """Adds partitions to a topic, so that it has `count` partitions."""
        await self._ask(lambda token: ExpandTopic(token, name, count, assignments, validate_only))

    async def delete(self, name: str) -> None:
        """Deletes a topic. Clients no longer see it when this returns; its files are deleted after
        file.delete.delay.ms."""
        await self._ask(lambda token: DeleteTopic(token, name))

    async def elect_uncleanly(self, name: str, number: int) -> bool:
        """Requests an unclean election: a replica outside the ISR becomes leader, if the partition has no leader and
        such a replica is online. Returns False if the partition still has no leader."""
        elected: bool = await self._ask(lambda token: ElectUncleanly(token, TopicPartition(name, number)))
        return elected

    async def elect_preferred(
        self, topic_partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, type[KafkaError] | None]:
        """Elects the preferred (first) replica of each partition as its leader; None means all partitions. Returns an
        error for each partition, or None if its preferred replica was elected. With None as argument, partitions that
        their preferred replica leads already are left out."""
        asked = None if topic_partitions is None else tuple(topic_partitions)
        errors: Mapping[TopicPartition, type[KafkaError] | None] = await self._ask(
            lambda token: ElectPreferred(token, asked)
        )
        return errors

    async def alter_reassignments(
        self, wanted: Sequence[tuple[TopicPartition, Sequence[int] | None]], *, may_change_factor: bool
    ) -> Sequence[KafkaError | None]:
        """Begins, changes or cancels (None) the reassignments of partitions. Returns an error or None for each
        request. A reassignment goes on after this returns."""
        answers: Sequence[KafkaError | None] = await self._ask(
            lambda token: AlterReassignments(token, wanted, may_change_factor)
        )
        return answers

    async def propose_isr(self, make: Callable[[int], IsrProposed]) -> PartitionView:
        """Asks the controller to change an ISR. `make` gets a token, a number that identifies the request, and returns
        the event for the controller. Returns the partition's state after the change. Raises KafkaError if the
        controller refuses the change."""
        stands: PartitionView = await self._ask(make)
        return stands

    async def stop_wanted(self, broker_id: int) -> Sequence[TopicPartition]:
        """Elects other leaders for the partitions of a broker that is about to stop. Returns the partitions that the
        broker still leads."""
        stays: Sequence[TopicPartition] = await self._ask(lambda token: StopWanted(token, broker_id))
        return stays

    async def alter(self, resource_type: int, name: str, change: SettingsChange, *, validate_only: bool) -> None:
        """Changes settings of a topic or a broker. If `change` is a sequence of operations, each one changes a single
        setting. If `change` is a mapping, it replaces all settings."""
        if resource_type == TOPIC_RESOURCE:
            await self.alter_topic(name, change, validate_only=validate_only)
        elif resource_type == BROKER_RESOURCE:
            await self.alter_broker(name, change, validate_only=validate_only)
        else:
            raise InvalidRequestError(
                f"Settings of resource type {resource_type} cannot be changed here; those of topics (2) and brokers "
                f"(4) can."
            )

    async def alter_topic(self, name: str, change: SettingsChange, *, validate_only: bool) -> None:
        await self._settings.ask(lambda token: AlterTopicSettings(token, name, change, validate_only))

    async def alter_broker(self, resource: str, change: SettingsChange, *, validate_only: bool) -> None:
        """Changes the settings of this broker, or of every broker if the name (`resource`) is empty."""
        await self._settings.ask(lambda token: AlterBrokerSettings(token, resource, change, validate_only))


def _request(wanted: TopicCreation) -> CreateTopicsRequest:
    topic = CreateTopicsRequestTopic(
        name=wanted.name,
        num_partitions=wanted.partitions,
        replication_factor=wanted.replication_factor,
        configs=[CreateTopicsRequestConfig(name=name, value=value) for name, value in wanted.configs.items()],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=int(_CREATION_SECONDS * 1000))


def as_kafka_error(error: Exception) -> KafkaError:
    """Returns an error that can be answered to a client: the error itself if it is a KafkaError, else
    UnknownServerError."""
    if isinstance(error, KafkaError):
        return error
    logger.error("an administrative request failed", exc_info=error)
    return UnknownServerError("The broker failed to do this; its log says why.")
