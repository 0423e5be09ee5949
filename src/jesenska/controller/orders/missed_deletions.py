"""Finds topics that a broker still knows although they are deleted. The broker missed the deletion because it was
paused or cut off from the network.

A controller sends all topics to a newly registered broker, in as many UpdateMetadata requests as needed. Each of these
requests has the type FULL, which means that it contains a part of all topics. The first request without this type
follows the last part. Known topics that no part has named are deleted. The metadata tree no longer has these topics,
so no other request will ever name them.

A controller of Apache Kafka in ZooKeeper mode does not send the type FULL. The broker then still knows a deleted topic
until a new topic with the same name is created, as Apache Kafka's brokers do."""

from __future__ import annotations

from collections.abc import Collection

from jesenska.controller.orders.requests import Metadata, Orderer


class TopicsGone:
    """Finds the deleted topics that one broker has missed."""

    def __init__(self) -> None:
        #: The controller that is sending all topics, None when all parts have arrived; and the topic names in the
        #: parts that have arrived.
        self._orderer: Orderer | None = None
        self._named: set[str] = set()
        #: True if the last UpdateMetadata was the first one after all parts.
        self.has_all = False

    def gone_after(self, orderer: Orderer, metadata: Metadata, known: Collection[str]) -> tuple[str, ...]:
        """Returns the topics that are deleted after this UpdateMetadata: the topics that it names as deleted, and the
        `known` topics that no part of all topics has named. Parts from a replaced controller, or for an earlier
        registration of the broker, are ignored."""
        if self._orderer != orderer:
            self._orderer, self._named = None, set()
        self.has_all = False
        names = {part.topic.name for part in metadata.topics}
        if metadata.is_all:
            self._orderer = orderer
            self._named |= names
            return metadata.gone
        if self._orderer is None:
            return metadata.gone
        missed = tuple(
            name for name in known if name not in self._named and name not in names and name not in metadata.gone
        )
        self._orderer, self._named = None, set()
        self.has_all = True
        return (*metadata.gone, *missed)
