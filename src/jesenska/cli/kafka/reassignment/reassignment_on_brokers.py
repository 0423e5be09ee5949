"""The actions of kafka-reassign-partitions that ask brokers. Lines and their order are those of Apache Kafka 4.3.1's
tool; with --output json each action prints one document."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError, NoReassignmentInProgressError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.proposed_assignment import places_of, proposed, read_brokers
from jesenska.cli.kafka.reassignment.reassignment_files import (
    Target,
    as_items,
    read_targets,
    read_topics,
    text_of,
)
from jesenska.cli.kafka.reassignment.reassignment_throttles import (
    clear_brokers,
    clear_topics,
    moves_of,
    throttle,
    throttle_directories,
)
from jesenska.cli.kafka.reassignment.replica_moves import (
    MoveState,
    Replica,
    begin_moves,
    cancel_moves,
    move_states,
    replica_directories,
    require_directories,
    wanted_moves,
)
from jesenska.cli.shared.tool import print_json
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.reassignment_administration import OngoingReassignment
from jesenska.client.cluster import TopicInfo

_EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
_RUN_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
_TIMEOUT_MS: Final = 10_000
#: The largest number of times that metadata are read which may not show the end of a move yet, and the pause between.
_LOOKS_MAX: Final = 10
_LOOK_SECONDS: Final = 0.1
#: The number of refused partitions that an error names.
_NAMED_MAX: Final = 5


class ReassignmentOnBrokers:
    """The actions of the tool on one cluster."""

    def __init__(self, admin: Admin, options: argparse.Namespace) -> None:
        self._admin = admin
        self._options = options
        self._is_json = options.output == "json"

    async def work(self, action: str) -> int:
        """Runs one action and returns the exit code. Raises KafkaError or JesenskaError with one sentence if the
        action is refused."""
        work = {
            "verify": self._verify,
            "generate": self._generate,
            "execute": self._execute,
            "cancel": self._cancel,
            "list": self._list,
        }
        document = await work[action]()
        if self._is_json:
            print_json(document)
        return 0

    def _say(self, text: str) -> None:
        if not self._is_json:
            print(text)

    # --- actions; each returns the document of --output json ---------------------------------------------------------

    async def _generate(self) -> dict[str, Any]:
        options = self._options
        topics, brokers = read_topics(options.topics_to_move_json_file), read_brokers(options.broker_list)
        known = await self._admin.topics()
        missing = [name for name in topics if name not in known]
        if missing:
            raise UnknownTopicOrPartitionError(
                f"Topic {missing[0]} not found: kafka-topics --list shows those that exist."
            )
        racks = {broker_id: node.rack for broker_id, node in self._admin.cluster.nodes.items()}
        places = places_of(brokers, racks, ignores_racks=options.disable_rack_aware)
        current = {
            partition.topic_partition: partition.replicas for name in topics for partition in known[name].partitions
        }
        wanted = proposed(current, places, system_random().randrange)
        directories = await replica_directories(self._admin, current)
        self._say(f"Current partition replica assignment\n{text_of(current, directories)}\n")
        self._say(f"Proposed partition reassignment configuration\n{text_of(wanted)}")
        return {"current": as_items(current, directories), "proposed": as_items(wanted)}

    async def _execute(self) -> dict[str, Any]:
        options, admin = self._options, self._admin
        targets = read_targets(options.reassignment_json_file)
        replicas = {key: target.replicas for key, target in targets.items()}
        moves = wanted_moves(targets)
        ongoing = await admin.list_reassignments()
        if ongoing and not options.additional:
            raise JesenskaError(_EXISTING)
        current = await self._checked(replicas, moves, ongoing)
        directories = await replica_directories(admin, current)
        self._say(
            f"Current partition replica assignment\n\n{text_of(current, directories)}\n\nSave this to use as the "
            "--reassignment-json-file option during rollback"
        )
        await self._throttle(current, replicas, moves, ongoing)
        await self._begin(replicas)
        self._say(f"Successfully started partition reassignment{_s(replicas)} for {_listed(replicas)}")
        if moves:
            await begin_moves(admin, moves, _TIMEOUT_MS if options.timeout is None else options.timeout)
            for key, broker_id in sorted(moves):
                self._say(
                    f"Successfully started moving log directory to {moves[key, broker_id]} for replica {key} with "
                    f"broker {broker_id}"
                )
        return {
            "before": as_items(current, directories),
            "started": [str(key) for key in sorted(replicas)],
            "movesBetweenLogDirs": _documents(moves),
        }

    async def _verify(self) -> dict[str, Any]:
        targets = read_targets(self._options.reassignment_json_file)
        ongoing = await self._admin.list_reassignments()
        known = await self._topics_after(targets, ongoing)
        states: list[dict[str, Any]] = []
        self._say("Status of partition reassignment:")
        for key in sorted(targets):
            current, wanted = replicas_in(known, key), targets[key].replicas
            if key in ongoing:
                state, text = "in progress", f"Reassignment of partition {key} is still in progress."
            elif current == wanted:
                state, text = "completed", f"Reassignment of partition {key} is completed."
            else:
                state = "not active"
                text = (
                    f"There is no active reassignment of partition {key}, but replica set is {_ids(current)} rather "
                    f"than {_ids(wanted)}."
                )
            self._say(text)
            states.append({"partition": str(key), "state": state, "replicas": list(current)})
        moves = wanted_moves(targets)
        found: Mapping[Replica, MoveState] = await move_states(self._admin, moves) if moves else {}
        self._say("\n".join(found[at].sentence(*at, moves[at]) for at in sorted(found)))
        is_done = not ongoing and not any(state.is_under_way for state in found.values())
        clears = is_done and not self._options.preserve_throttles
        if clears:
            await self._clear(targets)
        return {
            "partitions": states,
            "movesBetweenLogDirs": [
                {"partition": str(key), "broker": broker_id, "wanted": moves[key, broker_id], **state.document()}
                for (key, broker_id), state in sorted(found.items())
            ],
            "throttlesRemoved": clears,
        }

    async def _topics_after(
        self, targets: Mapping[TopicPartition, Target], ongoing: Collection[TopicPartition]
    ) -> Mapping[str, TopicInfo]:
        """Returns the topics. A broker learns of the end of a move a moment after the controller. So for a moment the
        topics are read again while a partition that is not being moved still has all replicas of the move."""
        for _ in range(_LOOKS_MAX):
            known = await self._admin.topics()
            if not any(
                set(replicas_in(known, key)) > set(target.replicas)
                for key, target in targets.items()
                if key not in ongoing
            ):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return known

    async def _cancel(self) -> dict[str, Any]:
        targets = read_targets(self._options.reassignment_json_file)
        ongoing = [key for key in await self._admin.list_reassignments() if key in targets]
        errors = {}
        if ongoing:
            answers = await self._admin.alter_reassignments(dict.fromkeys(ongoing))
            # A move that has ended in between is no mistake.
            errors = {
                key: error
                for key, error in answers.items()
                if error is not None and not isinstance(error, NoReassignmentInProgressError)
            }
        if errors:
            raise JesenskaError(
                f"{len(errors)} of {len(ongoing)} reassignments cannot be cancelled ({_causes(errors)}): wait until "
                "they complete, or give another target with --execute --additional."
            )
        if ongoing:
            self._say(f"Successfully cancelled partition reassignment{_s(ongoing)} for: {_listed(ongoing)}")
        else:
            self._say("None of the specified partition reassignments are active.")
        moves = wanted_moves(targets)
        cancelled = sorted(await cancel_moves(self._admin, moves)) if moves else []
        if cancelled:
            listed = ",".join(f"{key}-{broker_id}" for key, broker_id in cancelled)
            self._say(f"Successfully cancelled log directory move{_s(cancelled)} for: {listed}")
        else:
            self._say("None of the specified partition moves are active.")
        if not self._options.preserve_throttles:
            await self._clear(targets)
        return {
            "cancelled": [str(key) for key in sorted(ongoing)],
            "movesBetweenLogDirs": _documents({at: moves[at] for at in cancelled}),
            "throttlesRemoved": not self._options.preserve_throttles,
        }

    async def _list(self) -> dict[str, Any]:
        ongoing = sorted((await self._admin.list_reassignments()).items())
        self._say("Current partition reassignments:" if ongoing else "No partition reassignments found.")
        for key, item in ongoing:
            adding = f" adding: {_ids(item.adding)}." if item.adding else ""
            removing = f" removing: {_ids(item.removing)}." if item.removing else ""
            self._say(f"{key}: replicas: {_ids(item.replicas)}.{adding}{removing}")
        return {
            "reassignments": [
                {
                    "partition": str(key),
                    "replicas": list(item.replicas),
                    "adding": list(item.adding),
                    "removing": list(item.removing),
                }
                for key, item in ongoing
            ]
        }

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _checked(
        self,
        wanted: Mapping[TopicPartition, Sequence[int]],
        moves: Mapping[Replica, str],
        ongoing: Mapping[TopicPartition, OngoingReassignment],
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Returns the present replicas of the partitions. Raises KafkaError or JesenskaError with one sentence if a
        partition, a broker or a log directory does not exist, or if a target has a forbidden number of replicas."""
        known = await self._admin.topics()
        for key in sorted(wanted):
            if not replicas_in(known, key):
                raise UnknownTopicOrPartitionError(
                    f"Unable to find partition: {key}: kafka-topics --describe shows those that exist."
                )
        nodes = self._admin.cluster.nodes
        unknown = sorted({broker_id for target in wanted.values() for broker_id in target} - set(nodes))
        if unknown:
            raise JesenskaError(
                f"Unknown broker id {unknown[0]}: the brokers that are up are {', '.join(map(str, sorted(nodes)))}."
            )
        current = {key: replicas_in(known, key) for key in wanted}
        if self._options.disallow_replication_factor_change:
            for key, target in sorted(wanted.items()):
                before = len(current[key]) - (len(ongoing[key].adding) if key in ongoing else 0)
                if len(target) != before:
                    raise JesenskaError(
                        f"{key}: The replication factor is changed from {before} to {len(target)}: name {before} "
                        "brokers, or leave out --disallow-replication-factor-change."
                    )
        await require_directories(self._admin, moves)
        return current

    async def _throttle(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        wanted: Mapping[TopicPartition, Sequence[int]],
        moves: Mapping[Replica, str],
        ongoing: Mapping[TopicPartition, OngoingReassignment],
    ) -> None:
        """Sets the throttles that the flags give."""
        rate, directory_rate = self._options.throttle, self._options.replica_alter_log_dirs_throttle
        limits = [value is not None and value >= 0 for value in (rate, directory_rate)]
        if any(limits):
            self._say(_RUN_VERIFY)
        if limits[0]:
            away = await throttle(self._admin, moves_of(current, wanted, ongoing), rate)
            if away:
                print(f"Broker {_ids(away)} is not up, and gets no throttle.", file=sys.stderr)
            self._say(f"The inter-broker throttle limit was set to {rate} B/s")
        if limits[1]:
            await throttle_directories(self._admin, {broker_id for _, broker_id in moves}, directory_rate)
            self._say(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")

    async def _begin(self, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
        may_change_factor = not self._options.disallow_replication_factor_change
        answers = await self._admin.alter_reassignments(wanted, may_change_factor=may_change_factor)
        errors = {key: error for key, error in answers.items() if error is not None}
        if errors:
            raise JesenskaError(
                f"{len(errors)} of {len(wanted)} reassignments were refused ({_causes(errors)}): correct the file; "
                "--list shows those that have begun, and --verify removes throttles when they are done."
            )

    async def _clear(self, targets: Mapping[TopicPartition, Target]) -> None:
        """Removes the throttles of all brokers, and of the topics in the file."""
        nodes = self._admin.cluster.nodes
        brokers = sorted({*nodes, *(broker_id for target in targets.values() for broker_id in target.replicas)})
        self._say(f"Clearing broker-level throttles on broker{_s(brokers)} {_ids(brokers)}")
        away = [broker_id for broker_id in brokers if broker_id not in nodes]
        if away:
            print(
                f"Broker {_ids(away)} is not up, and keeps its throttles: run this again when it is.", file=sys.stderr
            )
        await clear_brokers(self._admin, [broker_id for broker_id in brokers if broker_id in nodes])
        known = await self._admin.topics()
        topics = sorted({key.topic for key in targets})
        self._say(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
        await clear_topics(self._admin, [name for name in topics if name in known])


def replicas_in(known: Mapping[str, TopicInfo], key: TopicPartition) -> tuple[int, ...]:
    """Returns the present replicas of a partition; none if it does not exist."""
    for partition in known[key.topic].partitions if key.topic in known else ():
        if partition.topic_partition == key:
            return partition.replicas
    return ()


def _causes(errors: Mapping[TopicPartition, Exception]) -> str:
    """Returns the causes of refused requests, of the first partitions."""
    shown = [f"{key}: {str(error).removesuffix('.')}" for key, error in sorted(errors.items())[:_NAMED_MAX]]
    return "; ".join([*shown, *(["…"] if len(errors) > _NAMED_MAX else [])])


def _documents(moves: Mapping[Replica, str]) -> list[dict[str, Any]]:
    return [{"partition": str(key), "broker": at, "logDir": path} for (key, at), path in sorted(moves.items())]


def _s(items: Collection[object]) -> str:
    return "" if len(items) == 1 else "s"


def _ids(items: Sequence[int]) -> str:
    return ",".join(map(str, items))


def _listed(keys: Collection[TopicPartition]) -> str:
    return ",".join(map(str, sorted(keys)))
