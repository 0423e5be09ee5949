"""A load on a cluster in which things happen to brokers, and what must be so when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jesenska.testing.faults import LoadFailedError, RecordedLoad, check, read_history
from jesenska.testing.faults.history import SendAcknowledged
from tests.cluster.cluster import BrokerCluster


@contextmanager
def loaded(
    cluster: BrokerCluster, topic: str, directory: Path, *, partitions: int = 3, members: int = 0
) -> Iterator[RecordedLoad]:
    """Two idempotent producers with acks=all and a reader, and so many members of a group, at work on the topic, which
    is made with a replica on each broker if it is not there. Behind the block nothing acknowledged may be lost, there
    twice or out of order, what was shown to readers stands, and all replicas have the same log. Brokers must run by
    then."""
    load = RecordedLoad(
        cluster.bootstrap,
        topic,
        directory,
        partitions=partitions,
        replication_factor=len(cluster.brokers),
        members=members,
    )
    load.start()
    try:
        yield load
    except BaseException:
        # It comes to its end when the brokers are back; nobody waits for that.
        threading.Thread(target=_stop, args=(load,), daemon=True).start()
        raise
    load.stop()
    history = read_history([load.path])
    assert any(isinstance(operation, SendAcknowledged) for operation in history)
    assert check(history) == []
    cluster.until_logs_equal(topic, partitions)


def _stop(load: RecordedLoad) -> None:
    with suppress(LoadFailedError):
        load.stop()
