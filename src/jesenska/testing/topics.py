"""Creates topics for tests, with names made from the tests' names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from itertools import count

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster

_NAME_MAX_CHARS = 200
_numbers = count(1)


class Topics:
    """Creates topics for one test. `test` is the test's name."""

    def __init__(self, bootstrap: str, test: str) -> None:
        self._bootstrap = bootstrap
        self._test = re.sub(r"[^a-zA-Z0-9._-]", "-", test)[:_NAME_MAX_CHARS]

    def make(
        self,
        name: str | None = None,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic, and returns its name. By default the name is made from the test's name, and the partitions,
        replicas and settings are the broker's defaults. Raises KafkaError if the broker refuses the topic."""
        topic = NewTopic(
            name or f"{self._test}-{next(_numbers)}",
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            dict(settings or {}),
        )
        asyncio.run(self._create(topic))
        return topic.name

    async def _create(self, topic: NewTopic) -> None:
        cluster = Cluster(self._bootstrap)
        try:
            error = (await Admin(cluster).create_topics([topic]))[topic.name]
            if error is not None:
                raise error
            # Waits until every partition of the topic has a leader, so that the test's first request finds a leader.
            await cluster.topic(topic.name, create=True)
        finally:
            await cluster.close()
