"""The services of the machine on which a broker runs: clock, random numbers, ids, files, network, threads. A
simulation replaces all of them.

Timers and tasks belong to the event loop, which the caller provides."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from jesenska.base.clock import Clock, Random, SystemClock, system_random
from jesenska.base.identifiers import random_uuid
from jesenska.log.disk.files import FileLayer
from jesenska.metadata.zookeeper.streams import Streams, SystemStreams
from jesenska.net.network import Network, SystemNetwork

#: A function that makes an executor (thread pool) from the number and the name of its threads.
Threads = Callable[[int, str], Executor]


def _threads(count: int, name: str) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix=f"jesenska-{name}")


@dataclass(frozen=True, slots=True)
class Machine:
    """The services that one broker uses. By default these are the services of the operating system."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=system_random)
    #: Returns random bytes that cannot be guessed, for nonces, salts and secrets.
    secret_bytes: Callable[[int], bytes] = os.urandom
    new_uuid: Callable[[], uuid.UUID] = random_uuid
    files: FileLayer = field(default_factory=FileLayer)
    network: Network = field(default_factory=SystemNetwork)
    #: Makes the connections of ZooKeeper's protocol, for the metadata tree's server and for its clients.
    streams: Streams = field(default_factory=SystemStreams)
    #: Makes the threads of the thread pool, of the log directories, and of the metadata tree's journal. Their results
    #: are returned to the event loop.
    threads: Threads = _threads
    #: Makes the threads among which `LogDirectories` divides the work of a start and a stop. Their results are awaited
    #: in another thread, not on the event loop.
    helpers: Threads = _threads
    #: True if timers of the event loop may be called late; the broker then measures the lag.
    loop_may_be_late: bool = True
