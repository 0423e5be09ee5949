"""What handlers ask of the controller: topics created, expanded, deleted, settings changed, leaders elected. Each
returns when it is done and seen by clients; KafkaError with the code and sentence of the answer where it is
refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from jesenska.base.errors import InvalidRequestError, KafkaError, UnknownServerError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.controller_runtime import ControllerRuntime
from jesenska.broker.core import BrokerCore
from jesenska.broker.metadata_cache import Topic
from jesenska.controller.config_changes import ConfigOp
from jesenska.controller.context import ControllerContext
from jesenska.controller.events import AlterBrokerSettings, AlterTopicSettings, CreateTopic, DeleteTopic, ElectUncleanly, ExpandTopic
from jesenska.controller.internal_topics import automatic_topic
from jesenska.controller.topics import TopicCreation, TopicPlan

logger = logging.getLogger(__name__)

#: Kinds of resources in requests about settings.
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SettingsChange = Sequence[ConfigOp] | Mapping[str, str | None]


class Topics:
    """The topics of the cluster, for those who change them."""

    def __init__(self, core: BrokerCore, runtime: ControllerRuntime) -> None:
        self._core = core
        self._ask = runtime.ask
        #: What the tree holds. To be read only.
        self.facts: ControllerContext = runtime.controller.context

    async def create(self, wanted: TopicCreation, *, validate_only: bool = False) -> tuple[TopicPlan, Topic | None]:
        """Creates a topic; its plan, and the topic unless it was only validated, or has gone again meanwhile."""
        plan: TopicPlan = await self._ask(lambda token: CreateTopic(token, wanted, validate_only))
        return plan, None if validate_only else self._core.view.topics.get(wanted.name)

    async def create_automatically(self, name: str) -> None:
        """Creates a topic that a client asked for, with the broker's defaults, or with those of Kafka's own topics."""
        await self.create(automatic_topic(name, self._core.config, len(self._core.view.brokers)))

    async def expand(self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False) -> None:
        """Raises a topic to `count` partitions."""
        await self._ask(lambda token: ExpandTopic(token, name, count, assignments, validate_only))

    async def delete(self, name: str) -> None:
        """Deletes a topic: gone from the view at once, its files after file.delete.delay.ms."""
        await self._ask(lambda token: DeleteTopic(token, name))

    async def elect_uncleanly(self, name: str, number: int) -> bool:
        """Lets a replica lead that was not in sync, if nobody leads the partition and one is up. False where that does
        not help."""
        elected: bool = await self._ask(lambda token: ElectUncleanly(token, TopicPartition(name, number)))
        return elected

    async def alter(self, resource_type: int, name: str, change: SettingsChange, *, validate_only: bool) -> None:
        """Changes single settings (operations) or all of them (a mapping) of a topic or a broker."""
        if resource_type == TOPIC_RESOURCE:
            await self.alter_topic(name, change, validate_only=validate_only)
        elif resource_type == BROKER_RESOURCE:
            await self.alter_broker(name, change, validate_only=validate_only)
        else:
            raise InvalidRequestError(f"Settings of resource type {resource_type} cannot be changed here; those of topics (2) and brokers (4) can.")

    async def alter_topic(self, name: str, change: SettingsChange, *, validate_only: bool) -> None:
        await self._ask(lambda token: AlterTopicSettings(token, name, change, validate_only))

    async def alter_broker(self, resource: str, change: SettingsChange, *, validate_only: bool) -> None:
        """The same for this broker, or for every broker (the empty name)."""
        await self._ask(lambda token: AlterBrokerSettings(token, resource, change, validate_only))


def as_kafka_error(error: Exception) -> KafkaError:
    """What a request's answer says of an error that has no code."""
    if isinstance(error, KafkaError):
        return error
    logger.error("an administrative request failed", exc_info=error)
    return UnknownServerError("The broker failed to do this; its log says why.")
