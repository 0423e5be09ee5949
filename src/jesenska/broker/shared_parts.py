"""The parts that the rooms of a broker share: its id, its settings in force, its machine, its threads, waiting
requests, its metadata cache, its logs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jesenska.base.clock import Clock
from jesenska.base.regions import FileRegion
from jesenska.broker.config_in_force import ConfigInForce
from jesenska.broker.machine import Machine
from jesenska.broker.metadata_cache import MetadataCache
from jesenska.broker.pool import Pool
from jesenska.broker.waiting import WaitingRoom
from jesenska.config.layers import BrokerConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.replication.leader.isr_syncs import IsrSyncs
from jesenska.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class SharedParts:
    """One broker, for its rooms that know neither requests nor each other."""

    broker_id: int
    in_force: ConfigInForce
    machine: Machine
    clock: Clock
    pool: Pool
    waiting: WaitingRoom
    view: MetadataCache
    directories: LogDirectories
    isr_syncs: IsrSyncs
    #: Partitions with followers that are to join the ISR when their next requests come.
    joining: set[Partition]

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self.in_force.config

    def read_region(self, region: FileRegion) -> bytes:
        """The bytes of a piece of a log; blocks, so it belongs into the pool."""
        return os.pread(region.file.fileno(), region.size_bytes, region.position)
