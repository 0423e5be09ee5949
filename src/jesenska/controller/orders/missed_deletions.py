"""Finds topics that a broker still knows although they are deleted. The broker missed the deletion because it was
paused or cut off from the network. This module only decides.

A controller sends all topics to a newly registered broker, in as many UpdateMetadata requests as needed. Each of them
is marked as a part of all topics (type FULL). The first request without the mark follows the last part. Known topics
that no part has named are deleted. The metadata tree no longer has these topics, so no other request will ever name
them.

A controller of Apache Kafka in ZooKeeper mode does not mark these requests. The broker then still knows a deleted
topic until a new topic with the same name is created, as Apache Kafka's brokers do."""

from __future__ import annotations

from collections.abc import Collection

from jesenska.controller.orders.requests import Metadata, Orderer


class TopicsGone:
    """Finds the deleted topics that one broker has missed."""

    def __init__(self) -> None:
        #: The controller that is sending all topics, until all parts have arrived; and the topic names in the parts so
        #: far.
        self._orderer: Orderer | None = None
        self._named: set[str] = set()

    def gone_after(self, orderer: Orderer, metadata: Metadata, known: Collection[str]) -> tuple[str, ...]:
        """Returns the topics that are deleted after this UpdateMetadata: those that it names as deleted, and the
        `known` topics that no part has named. Parts of a controller that was replaced, or for an earlier registration,
        are ignored."""
        if self._orderer != orderer:
            self._orderer, self._named = None, set()
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
        return (*metadata.gone, *missed)
