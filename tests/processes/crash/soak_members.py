"""Members of the group in the soak: ours, as tasks of this process, and librdkafka's, as processes of their own. Each
can leave and die, and ours can lose its connections."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.membership.options import MembershipOptions
from tests.processes.crash.readers import GroupLedger, WatchedMember, keep_reading

SESSION_SECONDS = 3.0


class SoakMember(ABC):
    """A member of the group. `name` is its client id."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def owned(self) -> set[TopicPartition]:
        """The partitions that it believes it owns."""

    @abstractmethod
    async def leave(self) -> None:
        """Leaves the group in order."""

    @abstractmethod
    async def die(self) -> None:
        """Dies without a message to the group."""


class OurMember(SoakMember):
    def __init__(self, name: str, bootstrap: str, ledger: GroupLedger, group: str, topic: str, assignor: str) -> None:
        super().__init__(name)
        self._ledger = ledger
        self._leaving = False
        self._cluster = Cluster(bootstrap, ClientConfig(client_id=name))
        self._member = WatchedMember(
            self._cluster,
            group,
            [topic],
            MembershipOptions(assignors=(assignor,), session_timeout_seconds=SESSION_SECONDS, heartbeat_seconds=0.3),
            auto_commit_seconds=None,
            auto_offset_reset="earliest",
            max_wait_seconds=0.1,
        )
        self._member.ledger = ledger
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            await keep_reading(self._member, self._ledger, lambda: self._leaving)
        except Exception as error:
            self._ledger.fail(f"{self.name}: {error!r}")

    def owned(self) -> set[TopicPartition]:
        return self._member.assignment()

    def lose_connections(self) -> None:
        """Closes all its sockets. The member continues to live."""
        for channel in list(self._cluster._channels.values()):
            channel.close()

    async def leave(self) -> None:
        self._leaving = True
        await self._task
        await self._member.close()
        await self._cluster.close()

    async def die(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._cluster.close()
        await self._member.close(leave=False)


class LibrdkafkaMember(SoakMember):
    def __init__(self, name: str, bootstrap: str, ledger: GroupLedger, group: str, topic: str, assignor: str) -> None:
        super().__init__(name)
        self._ledger, self._group, self._topic = ledger, group, topic
        self._owned: set[TopicPartition] = set()
        self._expected = False
        arguments = [bootstrap, name, group, topic, assignor, str(int(SESSION_SECONDS * 1000))]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("rdkafka_member.py")), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def _key(self, partition: int | str) -> TopicPartition:
        return TopicPartition(self._topic, int(partition))

    def _listen(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        with self._process.stdout as output, self._process.stderr as errors:
            for line in output:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a line
                said = json.loads(line)
                if "owned" in said:
                    self._owned = {self._key(partition) for partition in said["owned"]}
                for partition, offsets in said.get("read", {}).items():
                    self._ledger.has_read(self._group, self._key(partition), offsets)
                if said.get("committed"):
                    self._ledger.has_committed(
                        self._group, {self._key(partition): offset for partition, offset in said["committed"].items()}
                    )
            text = errors.read().decode(errors="replace")
        self._process.wait()
        if not self._expected:
            self._ledger.fail(f"{self.name} ended with {self._process.returncode}: {text}")

    def owned(self) -> set[TopicPartition]:
        return set(self._owned)

    async def _end(self, number: signal.Signals) -> None:
        self._expected = True
        self._process.send_signal(number)
        await asyncio.to_thread(self._reader.join)

    async def leave(self) -> None:
        await self._end(signal.SIGTERM)

    async def die(self) -> None:
        await self._end(signal.SIGKILL)
