"""Finds topics that a broker still knows though they are gone: it missed their deletion, as it was paused or cut off.
A decider.

A controller sends all topics to a broker that has come, in as many UpdateMetadata as needed. Each is marked as a part
of all (type FULL). The first one without the mark comes after the last part: known topics that none of them named are
gone. The tree has forgotten these topics, so no other order will ever name them.

A controller of Apache Kafka in ZooKeeper mode does not mark the orders with all topics. Then such a topic stays known
until another topic of its name comes, as with Apache Kafka's brokers."""

from __future__ import annotations

from collections.abc import Collection

from jesenska.controller.orders.requests import Metadata, Orderer


class TopicsGone:
    """The gone topics of one broker."""

    def __init__(self) -> None:
        #: The controller that is sending all topics, while parts are missing; and the names in the parts so far.
        self._orderer: Orderer | None = None
        self._named: set[str] = set()

    def gone_after(self, orderer: Orderer, metadata: Metadata, known: Collection[str]) -> tuple[str, ...]:
        """The topics that are gone after this order: those that it names as gone, and those `known` so far that no
        part has named. Parts of a controller that was replaced, or for an earlier registration, do not count."""
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
