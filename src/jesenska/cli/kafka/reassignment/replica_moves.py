"""The moves of replicas between log directories of a broker, as kafka-reassign-partitions begins, verifies and cancels
them (KIP-113)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from jesenska.base.errors import JesenskaError, ReplicaNotAvailableError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.reassignment_files import ANY, Target
from jesenska.cli.shared.tool import sentence
from jesenska.client.administration.admin import Admin

#: A replica: its partition and its broker.
Replica = tuple[TopicPartition, int]
_PAUSE_SECONDS: Final = 0.5


class MoveState(NamedTuple):
    """The log directory of a replica and, if it is being moved, the directory to which it is moved. None means that
    the broker has no such replica, or is not up."""

    current: str | None
    future: str | None
    is_up: bool = True

    @property
    def is_under_way(self) -> bool:
        return self.future is not None

    def document(self) -> dict[str, str | None]:
        """Returns the directories for --output json."""
        return {"logDir": self.current, "futureLogDir": self.future}

    def sentence(self, key: TopicPartition, broker_id: int, wanted: str) -> str:
        """Returns the line of the tool about the move to the directory `wanted`."""
        what = f"Reassignment of replica {key}-{broker_id}"
        if self.future == wanted:
            return f"{what} is still in progress."
        if self.future is not None:
            return f"Partition {key} on broker {broker_id} is being moved to log dir {self.future} instead of {wanted}."
        if self.current == wanted:
            return f"{what} completed successfully."
        if self.current is not None:
            return f"Partition {key} on broker {broker_id} is not being moved from log dir {self.current} to {wanted}."
        if not self.is_up:
            return f"Broker {broker_id} is not up, so the log directory of {key} on it is not known."
        return (
            f"Partition {key} is not found in any live log dir on broker {broker_id}. There is likely an offline log "
            "directory on the broker."
        )


def wanted_moves(targets: Mapping[TopicPartition, Target]) -> dict[Replica, str]:
    """Returns the log directories that targets name, by replica."""
    return {
        (key, broker_id): path
        for key, target in targets.items()
        for broker_id, path in zip(target.replicas, target.log_dirs, strict=True)
        if path != ANY
    }


async def move_states(admin: Admin, replicas: Collection[Replica]) -> dict[Replica, MoveState]:
    """Returns where the replicas are now."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for key, broker_id in replicas:
        by_broker.setdefault(broker_id, []).append(key)
    found: dict[Replica, MoveState] = {}
    for broker_id, of_broker in sorted(by_broker.items()):
        if broker_id not in admin.cluster.nodes:
            found |= {(key, broker_id): MoveState(None, None, is_up=False) for key in of_broker}
            continue
        current: dict[TopicPartition, str] = {}
        future: dict[TopicPartition, str] = {}
        for directory in await admin.describe_log_dirs(broker_id):
            for key, replica in directory.replicas.items():
                (future if replica.is_future else current)[key] = directory.path
        found |= {(key, broker_id): MoveState(current.get(key), future.get(key)) for key in of_broker}
    return found


async def replica_directories(
    admin: Admin, replicas: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, tuple[str, ...]]:
    """Returns the present log directories of the replicas of partitions, in the order of the replicas. A replica whose
    directory is not known has "any"."""
    states = await move_states(admin, [(key, broker_id) for key, brokers in replicas.items() for broker_id in brokers])
    return {
        key: tuple(states[key, broker_id].current or ANY for broker_id in brokers) for key, brokers in replicas.items()
    }


async def require_directories(admin: Admin, moves: Mapping[Replica, str]) -> None:
    """Raises JesenskaError with one sentence if a broker does not have a log directory that the moves name."""
    for broker_id, wanted in _by_broker(moves).items():
        known = {directory.path for directory in await admin.describe_log_dirs(broker_id) if directory.error is None}
        for key, path in sorted(wanted.items()):
            if path not in known:
                raise JesenskaError(
                    f"Failed to alter dir for {key}-{broker_id}: broker {broker_id} has no log directory {path} that "
                    f"works; it has {', '.join(sorted(known))}."
                )


async def begin_moves(admin: Admin, moves: Mapping[Replica, str], timeout_ms: int) -> None:
    """Begins the moves. A broker that does not have a new replica yet is asked again until the time limit. Raises
    JesenskaError if a broker refuses a move, or has no such replica at the time limit."""
    ends = time.monotonic() + timeout_ms / 1000
    waiting = dict(moves)
    while True:
        absent: dict[Replica, str] = {}
        for broker_id, wanted in _by_broker(waiting).items():
            for key, error in (await admin.alter_replica_log_dirs(broker_id, wanted)).items():
                if isinstance(error, ReplicaNotAvailableError):
                    absent[key, broker_id] = wanted[key]
                elif error is not None:
                    raise JesenskaError(f"Failed to alter dir for {key}-{broker_id}: {sentence(error)}")
        waiting = absent
        if not waiting or time.monotonic() >= ends:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    if waiting:
        key, broker_id = min(waiting)
        raise JesenskaError(
            f"Broker {broker_id} has no replica of {key} yet, so {len(waiting)} moves between log directories have not "
            "begun: run --execute --additional again, or give a longer --timeout."
        )


async def cancel_moves(admin: Admin, moves: Mapping[Replica, str]) -> list[Replica]:
    """Ends the moves that are under way to these directories: the replicas stay where they are. Returns them."""
    states = await move_states(admin, moves)
    under_way = {
        at: state.current
        for at, state in states.items()
        if state.future is not None and state.future == moves[at] and state.current is not None
    }
    for broker_id, wanted in _by_broker(under_way).items():
        for key, error in (await admin.alter_replica_log_dirs(broker_id, wanted)).items():
            if error is not None:
                raise JesenskaError(f"Failed to cancel the move of {key}-{broker_id}: {sentence(error)}")
    return list(under_way)


def _by_broker(moves: Mapping[Replica, str]) -> dict[int, dict[TopicPartition, str]]:
    """Returns the wanted directories of each broker, brokers in order."""
    found: dict[int, dict[TopicPartition, str]] = {}
    for (key, broker_id), path in sorted(moves.items(), key=lambda item: item[0][1]):
        found.setdefault(broker_id, {})[key] = path
    return found
