"""Which topics a broker still knows though they are gone: it missed their deletion, as it stood still or was cut off.
A decider.

A controller tells a broker that has come of all topics, in as many UpdateMetadata as that takes. Each says that it is
a part of all (type FULL). The first that does not say so comes after the last part: what the broker knows and neither
of them has named is gone. The tree has forgotten these topics, so no other order will ever name them.

A controller of Apache Kafka in ZooKeeper mode does not say which of its orders tell of all topics. Then such a topic
stays known until another one of its name is told, as with Apache Kafka's brokers."""

from __future__ import annotations

from collections.abc import Collection

from jesenska.controller.orders import Metadata, Orderer


class TopicsGone:
    """That of one broker."""

    def __init__(self) -> None:
        #: Who tells of all topics, while not all parts are here; and the names in those that are.
        self._orderer: Orderer | None = None
        self._named: set[str] = set()

    def told(self, orderer: Orderer, metadata: Metadata, known: Collection[str]) -> tuple[str, ...]:
        """The topics that are gone after this order: those that it says, and of those that the broker has `known` so
        far what no part has named. The parts of a controller that was replaced, or for an earlier registration, do not
        count."""
        if self._orderer != orderer:
            self._orderer, self._named = None, set()
        names = {part.topic.name for part in metadata.topics}
        if metadata.is_all:
            self._orderer = orderer
            self._named |= names
            return metadata.gone
        if self._orderer is None:
            return metadata.gone
        missed = tuple(name for name in known if name not in self._named and name not in names and name not in metadata.gone)
        self._orderer, self._named = None, set()
        return (*metadata.gone, *missed)
