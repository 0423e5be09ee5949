"""The parts of a broker that most of its packages use: id, current settings, machine, thread pool, waiting requests,
metadata cache, logs."""

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
    """The parts of one broker that its packages share."""

    broker_id: int
    in_force: ConfigInForce
    machine: Machine
    clock: Clock
    pool: Pool
    waiting: WaitingRoom
    view: MetadataCache
    directories: LogDirectories
    isr_syncs: IsrSyncs
    #: Partitions whose ISR a follower may join with its next fetch.
    joining: set[Partition]

    @property
    def config(self) -> BrokerConfig:
        """Returns the current settings."""
        return self.in_force.config

    def read_region(self, region: FileRegion) -> bytes:
        """Reads the bytes of a region of a log's file. This blocks, so it must run in the thread pool."""
        return os.pread(region.file.fileno(), region.size_bytes, region.position)
