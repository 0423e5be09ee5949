"""What the rooms of a broker share: its settings in force, its clock, its threads, who waits, what it knows of the
cluster, its logs."""

from __future__ import annotations

import asyncio
import os

from jesenska.base.regions import FileRegion
from jesenska.broker.machine import Machine
from jesenska.broker.metadata_cache import MetadataCache
from jesenska.broker.pool import Pool
from jesenska.broker.waiting import WaitingRoom
from jesenska.config.layers import BrokerConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.replication.isr_syncs import IsrSyncs
from jesenska.replication.partition import Partition

_POOL_THREADS = 2


class BrokerCore:
    """One broker, for those of its rooms that know neither requests nor each other."""

    def __init__(self, config: BrokerConfig, machine: Machine) -> None:
        loop = asyncio.get_running_loop()
        #: The settings in force.
        self.config = config
        self.machine = machine
        self.clock = machine.clock
        self.random = machine.random
        self.loop = loop
        #: -1 until it is known.
        self.broker_id = config.integer("broker.id")
        self.pool = Pool(loop, machine.threads(_POOL_THREADS, "pool"))
        self.waiting = WaitingRoom(loop)
        self.view = MetadataCache("", -1)
        self.isr_syncs = IsrSyncs()
        #: Partitions with followers that are to join the ISR when their next requests come.
        self.joining: set[Partition] = set()
        #: Set by `Broker.start`.
        self.directories: LogDirectories

    def reconfigure(self, config: BrokerConfig) -> None:
        """Settings that changed while running take effect."""
        self.config = config

    def read_region(self, region: FileRegion) -> bytes:
        """The bytes of a piece of a log; blocks, so it belongs into the pool."""
        return os.pread(region.file.fileno(), region.size_bytes, region.position)
