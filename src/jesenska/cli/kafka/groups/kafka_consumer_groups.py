"""kafka-consumer-groups: lists, describes and deletes groups, and sets and deletes the groups' offsets. Flags and
output are those of Apache Kafka 4.3.1's tool.

    --list [--state [STATES]] [--type [TYPES]]
    --describe (--group G | --all-groups) [--offsets | --members | --state] [--verbose]
    --delete (--group G | --all-groups)                --delete-offsets --group G --topic T[:0,1]
    --reset-offsets (--group G | --all-groups) (--topic T[:0,1] | --all-topics | --from-file F) WHERE
                    [--dry-run | --execute] [--export]

A group's offsets can be set only while it has no members. Without --execute nothing is changed.

With --zookeeper this tool works like the tools before 2.0: --list, --describe and --delete of the groups that store
their offsets in ZooKeeper's nodes (groups_in_tree).

Differs from Kafka's tool: failures are reported on stderr and the exit code is 1 (0 in most cases in Kafka's tool);
partitions are sorted; a malformed line of a file is an error. --validate-regex, which belongs to the new group
protocol, is not supported."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Sequence

from jesenska.base.errors import GroupIdNotFoundError, JesenskaError, KafkaError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.groups import groups_in_tree
from jesenska.cli.kafka.groups.group_tables import (
    NOTHING,
    Column,
    OffsetRow,
    group_json,
    members_json,
    members_text,
    offset_rows,
    offsets_json,
    offsets_text,
    state_text,
    table,
)
from jesenska.cli.kafka.groups.offset_reset import (
    PLACES,
    FileOffsets,
    Reset,
    add_places,
    given,
    of_group,
    planned,
    read_file,
    reset_of,
    warn,
    within,
)
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    print_json,
    run_async,
    sentence,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.group_administration import GroupDescription, GroupListing, OffsetAndMetadata
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_VIEWS = ("offsets", "members", "state")
_STATES = ("CompletingRebalance", "Empty", "PreparingRebalance", "Stable", "Dead", "Reconciling", "Assigning")
_TYPES = ("Consumer", "Classic")
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
#: Flags that are allowed only with some actions, each with these actions.
_BELONGS = {
    "group": ("describe", "delete", "reset-offsets", "delete-offsets"),
    "all-groups": ("describe", "delete", "reset-offsets"),
    "topic": ("reset-offsets", "delete-offsets", "delete"),
    "all-topics": ("reset-offsets",),
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("list", "describe"),
    "type": ("list",),
    "dry-run": ("reset-offsets",),
    "execute": ("reset-offsets",),
    "export": ("reset-offsets",),
    **dict.fromkeys(PLACES, ("reset-offsets",)),
}


def _parser() -> Parser:
    parser = Parser("kafka-consumer-groups", "Lists, describes and deletes consumer groups, and sets their offsets.")
    add_bootstrap(parser)
    actions = parser.add_argument_group("what to do, exactly one of them")
    actions.add_argument("--list", action="store_true", help="List all consumer groups.")
    actions.add_argument(
        "--describe",
        action="store_true",
        help="Show a group's partitions with its offsets and how far they lie behind.",
    )
    actions.add_argument("--delete", action="store_true", help="Delete groups without members, with their offsets.")
    actions.add_argument("--reset-offsets", action="store_true", help="Set the offsets of a group without members.")
    actions.add_argument(
        "--delete-offsets", action="store_true", help="Forget a group's offsets of topics that it does not read."
    )
    parser.add_argument("--group", action="append", metavar="GROUP", help="The group; may be given several times.")
    parser.add_argument("--all-groups", action="store_true", help="All consumer groups.")
    parser.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:N,N]",
        help="A topic, or some of its partitions; may be given several times.",
    )
    parser.add_argument("--all-topics", action="store_true", help="All partitions that the group has offsets of.")
    views = parser.add_argument_group("what --describe shows, and what --list adds")
    views.add_argument("--offsets", action="store_true", help="Partitions and offsets (the default).")
    views.add_argument("--members", action="store_true", help="The members.")
    views.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATES",
        help="The group's state; with --list the states of all, or only groups in these (stable,empty).",
    )
    views.add_argument(
        "--type",
        nargs="?",
        const="",
        metavar="TYPES",
        help="With --list the types of groups, or only groups of these (classic,consumer).",
    )
    views.add_argument("--verbose", action="store_true", help="More columns.")
    add_places(parser.add_argument_group("where --reset-offsets goes, exactly one of them"), "to-current")
    parser.add_argument("--dry-run", action="store_true", help="Show what --reset-offsets would do (the default).")
    parser.add_argument("--execute", action="store_true", help="Do it.")
    parser.add_argument("--export", action="store_true", help="Print the offsets as CSV.")
    parser.add_argument("--timeout", type=int, metavar="MS", help="How long each request may take (default: 30000).")
    parser.add_argument("--new-consumer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help="The ZooKeeper of groups that keep their offsets there (in place of --bootstrap-server).",
    )
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    action = _check(parser, options)
    if options.zookeeper:
        if options.bootstrap_server:
            raise JesenskaError(
                "--bootstrap-server and --zookeeper were both given: give --bootstrap-server for the groups that "
                "brokers coordinate, or --zookeeper for old groups in ZooKeeper."
            )
        async with telling("Waiting for ZooKeeper"):
            return await groups_in_tree.work(options, action)
    timeout = {} if options.timeout is None else {"request.timeout.ms": str(options.timeout)}
    async with cluster_of(options, timeout) as cluster, telling("Waiting for the group's coordinator"):
        # The look-up of a coordinator takes up to half a minute. So this line first checks if any broker answers.
        await cluster.any_channel()
        tool = _Tool(cluster, options)
        return await {
            "list": tool.list_groups,
            "describe": tool.describe,
            "delete": tool.delete,
            "reset-offsets": tool.reset,
            "delete-offsets": tool.delete_offsets,
        }[action]()


def _check(parser: Parser, options: argparse.Namespace) -> str:
    actions = given(options, _ACTIONS)
    if len(actions) != 1:
        parser.error("Command must include exactly one action: " + ", ".join(f"--{name}" for name in _ACTIONS))
    action = actions[0]
    if action == "delete" and options.topic and not options.zookeeper:
        parser.error("The consumer does not support topic-specific offset deletion from a consumer group")
    for name in given(options, list(_BELONGS)):
        if action not in _BELONGS[name]:
            parser.error(f'Option "[{name}]" can\'t be used with option "[{action}]"')
    if options.group and options.all_groups:
        parser.error('Option "[group]" can\'t be used with option "[all-groups]"')
    if options.group and not all(options.group):
        parser.error("--group needs a name")
    is_topic_deletion = action == "delete" and options.topic
    if (
        action in ("describe", "delete", "reset-offsets")
        and not options.group
        and not options.all_groups
        and not is_topic_deletion
    ):
        parser.error(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if action == "describe" and (len(given(options, _VIEWS)) > 1):
        parser.error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if action == "describe" and options.state:
        parser.error("--state takes no states with --describe")
    if action == "delete-offsets" and (not options.group or not options.topic):
        parser.error("Option [delete-offsets] takes the following options: [topic], [group]")
    if action == "delete-offsets" and len(options.group) > 1:
        parser.error("--delete-offsets takes one --group")
    if action == "reset-offsets":
        _check_reset(parser, options)
    if options.timeout is not None and options.timeout <= 0:
        parser.error("--timeout must be positive")
    return action


def _check_reset(parser: Parser, options: argparse.Namespace) -> None:
    if options.dry_run and options.execute:
        parser.error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    where = given(options, PLACES)
    if options.from_file is None and not options.topic and not options.all_topics:
        parser.error("One of the reset scopes should be defined: --all-topics, --topic")
    if len(where) > 1:
        parser.error(f'Option "[{where[0]}]" can\'t be used with option "[{where[1]}]"')
    if not where:
        parser.error(
            f"Option '[reset-offsets]' requires one of the following scenarios: "
            f"[{', '.join(f'[{name}]' for name in PLACES)}]"
        )
    if not options.dry_run and not options.execute:
        print(
            "WARN: No action will be performed as the --execute option is missing. --dry-run says that this is meant.",
            file=sys.stderr,
        )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


class _Tool:
    """One run of the tool. The method of each action returns the exit code."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._json = options.output == "json"
        self._groups = Admin(cluster)
        self._code = 0

    def _fail(self, text: str) -> None:
        print(f"\nError: {text}", file=sys.stderr)
        self._code = 1

    async def _all(self) -> list[GroupListing]:
        """Returns the consumer groups, with or without members."""
        return [item for item in await self._groups.list_groups() if item.protocol_type in ("consumer", "")]

    async def _group_ids(self) -> list[str]:
        if self._options.all_groups:
            return [item.group_id for item in await self._all()]
        return list(dict.fromkeys(self._options.group))

    # --- list --------------------------------------------------------------------------------------------------------

    async def list_groups(self) -> int:
        states = _words(self._options.state, _STATES, "state list", "states")
        types = _words(self._options.type, _TYPES, "types list", "types")
        found = [
            item
            for item in await self._all()
            if (not states or item.state.lower() in states) and (not types or item.group_type.lower() in types)
        ]
        if self._json:
            print_json(
                [
                    {"group": item.group_id, "type": item.group_type.capitalize() or None, "state": item.state or None}
                    for item in found
                ]
            )
        elif self._options.state is None and self._options.type is None:
            for item in found:
                print(item.group_id)
        else:
            with_type, with_state = self._options.type is not None, self._options.state is not None
            columns = [
                Column("GROUP", 25),
                *([Column("TYPE", 20)] if with_type else []),
                *([Column("STATE", 20)] if with_state else []),
            ]
            print(
                table(
                    columns,
                    [
                        [
                            item.group_id,
                            *([item.group_type.capitalize() or "Unknown"] if with_type else []),
                            *([item.state or "Unknown"] if with_state else []),
                        ]
                        for item in found
                    ],
                )
            )
        return 0

    # --- describe ----------------------------------------------------------------------------------------------------

    async def describe(self) -> int:
        documents = []
        for group_id, group in (await self._groups.describe_groups(await self._group_ids())).items():
            if isinstance(group, GroupIdNotFoundError):
                self._fail(f"Consumer group '{group_id}' does not exist.")
            elif isinstance(group, KafkaError):
                self._fail(f"Consumer group '{group_id}': {sentence(group)}")
            elif self._json:
                documents.append(await self._document(group))
            else:
                await self._print(group)
        if self._json:
            print_json(documents)
        return self._code

    async def _print(self, group: GroupDescription) -> None:
        if group.state == "Empty":
            print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
        elif group.state in _REBALANCING:
            print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
        sys.stderr.flush()
        verbose = self._options.verbose
        if self._options.members:
            text = members_text(group, verbose=verbose)
        elif self._options.state is not None:
            text = state_text(group, verbose=verbose)
        else:
            rows = await self._rows(group)
            if not rows:
                return
            text = offsets_text(group, rows, verbose=verbose)
        print("\n" + text, flush=True)

    async def _document(self, group: GroupDescription) -> dict[str, object]:
        document: dict[str, object] = group_json(group)
        if self._options.members:
            document["members"] = members_json(group)
        elif self._options.state is None:
            document["offsets"] = offsets_json(await self._rows(group))
        else:
            document["memberCount"] = len(group.members)
        return document

    async def _rows(self, group: GroupDescription) -> list[OffsetRow]:
        committed: dict[TopicPartition, OffsetAndMetadata] = await self._groups.list_group_offsets(group.group_id)
        keys = set(committed).union(*(member.assignment for member in group.members))
        return offset_rows(group, committed, await self._ends(keys))

    async def _ends(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the log end offsets of the partitions in `keys`. Partitions that do not exist or have no leader are
        left out."""
        if not keys:
            return {}
        await self._cluster.refresh({key.topic for key in keys})
        led = []
        for name in {key.topic for key in keys}:
            try:
                led += [
                    item.topic_partition for item in (await self._cluster.topic(name)).partitions if item.leader >= 0
                ]
            except UnknownTopicOrPartitionError:
                continue
        found = await list_offsets(self._cluster, dict.fromkeys(sorted(set(keys) & set(led)), LATEST))
        return {key: item.offset for key, item in found.items()}

    # --- delete ------------------------------------------------------------------------------------------------------

    async def delete(self) -> int:
        results = await self._groups.delete_groups(await self._group_ids())
        done = [name for name, error in results.items() if error is None]
        failed = {name: error for name, error in results.items() if error is not None}
        if failed:
            lines = [
                f"* Group '{name}' could not be deleted due to: {sentence(error)}" for name, error in failed.items()
            ]
            self._fail("\n".join(["Deletion of some consumer groups failed:", *lines]))
        if self._json:
            print_json(
                [
                    {"group": name, "error": None if error is None else sentence(error)}
                    for name, error in results.items()
                ]
            )
        elif not failed:
            print(f"Deletion of requested consumer groups ({_quoted(done)}) was successful.")
        elif done:
            print(f"\nThese consumer groups were deleted successfully: {_quoted(done)}")
        return self._code

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def _named(self, *, must_exist: bool) -> dict[str, list[TopicPartition]]:
        """Returns the partitions that --topic names, by topic. A topic that does not exist gets an empty list, or
        raises an error if `must_exist` is set."""
        found: dict[str, list[TopicPartition]] = {}
        for text in self._options.topic:
            topic, colon, numbers = text.partition(":")
            if colon:
                keys = [_partition(topic, number.strip(), text) for number in numbers.split(",")]
                if must_exist:
                    await self._must_exist(keys)
            else:
                try:
                    keys = [item.topic_partition for item in (await self._cluster.topic(topic)).partitions]
                except UnknownTopicOrPartitionError:
                    if must_exist:
                        raise
                    keys = []
            found.setdefault(topic, []).extend(key for key in keys if key not in found.get(topic, ()))
        return found

    async def _must_exist(self, keys: Collection[TopicPartition]) -> None:
        missing = [
            str(key) for key in sorted(keys) if key.partition >= len((await self._cluster.topic(key.topic)).partitions)
        ]
        if missing:
            raise UnknownTopicOrPartitionError(
                f'The partitions "{", ".join(missing)}" do not exist: kafka-topics --describe shows those that do.'
            )

    async def delete_offsets(self) -> int:
        group_id = self._options.group[0]
        named = await self._named(must_exist=False)
        keys = [key for keys in named.values() for key in keys]
        results: dict[TopicPartition, KafkaError | None]
        refused: KafkaError | None = None
        try:
            results = await self._groups.delete_group_offsets(group_id, keys) if keys else {}
        except KafkaError as error:
            refused, results = error, dict.fromkeys(keys, error)
        rows: list[tuple[str, object, KafkaError | None]] = [
            (key.topic, key.partition, error) for key, error in sorted(results.items())
        ]
        unknown = UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        rows += [(topic, NOTHING, unknown) for topic, found in named.items() if not found]
        if refused is not None:
            self._fail(sentence(refused))
        elif any(error is not None for _, _, error in rows):
            self._fail("Encountered some partition-level error, see the follow-up details.")
        if self._json:
            print_json(
                [
                    {"topic": topic, "partition": number, "error": None if error is None else sentence(error)}
                    for topic, number, error in rows
                ]
            )
            return self._code
        if not self._code:
            print(f"Request succeeded for deleting offsets from group {group_id}.")
        lines = [
            [topic, number, "Successful" if error is None else f"Error: {sentence(error)}"]
            for topic, number, error in rows
        ]
        print("\n" + table([Column("TOPIC", 15), Column("PARTITION", 10), Column("STATUS", 15, grows=False)], lines))
        return self._code

    # --- reset -------------------------------------------------------------------------------------------------------

    async def reset(self) -> int:
        reset = reset_of(self._options)
        from_file = read_file(self._options.from_file) if self._options.from_file is not None else None
        group_ids = await self._group_ids()
        plans: dict[str, dict[TopicPartition, int]] = {}
        for group_id, group in (await self._groups.describe_groups(group_ids)).items():
            if isinstance(group, KafkaError) and not isinstance(group, GroupIdNotFoundError):
                self._fail(f"Consumer group '{group_id}': {sentence(group)}")
            elif isinstance(group, GroupDescription) and group.state not in ("Empty", "Dead"):
                self._fail(
                    f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is "
                    f"{group.state}."
                )
            else:
                plans[group_id] = await self._plan(group_id, reset, from_file, only_group=len(group_ids) == 1)
        if self._options.execute:
            # All new offsets are planned before anything is changed, so that wrong arguments change nothing.
            plans = {group_id: await self._execute(group_id, plan) for group_id, plan in plans.items()}
        rows = [(group_id, key, offset) for group_id, plan in plans.items() for key, offset in sorted(plan.items())]
        self._print_reset(rows, several=len(group_ids) != 1)
        return self._code

    async def _execute(self, group_id: str, plan: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commits the planned offsets of a group, and returns the offsets that were committed."""
        results: dict[TopicPartition, KafkaError | None]
        try:
            results = await self._groups.alter_group_offsets(group_id, plan)
        except KafkaError as error:
            results = dict.fromkeys(plan, error)
        failed = {key: error for key, error in results.items() if error is not None}
        for text in dict.fromkeys(sentence(error) for error in failed.values()):
            names = ", ".join(str(key) for key, error in sorted(failed.items()) if sentence(error) == text)
            self._fail(f"Consumer group '{group_id}': the offsets of {names} were not set: {text}")
        return {key: offset for key, offset in plan.items() if results.get(key, failed) is None}

    async def _plan(
        self, group_id: str, reset: Reset, from_file: FileOffsets | None, *, only_group: bool
    ) -> dict[TopicPartition, int]:
        if from_file is not None:
            offsets = of_group(from_file, group_id, only_group)
            await self._must_exist(offsets)
            return await within(self._cluster, offsets, warn) if offsets else {}
        if self._options.all_topics:
            keys = sorted(await self._groups.list_group_offsets(group_id))
        else:
            keys = [key for keys in (await self._named(must_exist=True)).values() for key in keys]
        return await planned(self._cluster, group_id, keys, reset, warn)

    def _print_reset(self, rows: Sequence[tuple[str, TopicPartition, int]], *, several: bool) -> None:
        if self._json:
            print_json(
                [
                    {"group": group, "topic": key.topic, "partition": key.partition, "newOffset": offset}
                    for group, key, offset in rows
                ]
            )
        elif self._options.export:
            for group, key, offset in rows:
                print(f"{group + ',' if several else ''}{key.topic},{key.partition},{offset}")
        else:
            columns = [Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10), Column("NEW-OFFSET")]
            print("\n" + table(columns, [[group, key.topic, key.partition, offset] for group, key, offset in rows]))


def _words(text: str | None, known: Sequence[str], what: str, plural: str) -> set[str]:
    """Returns the words of a comma-separated list in lower case. Raises JesenskaError for an unknown word."""
    words = {word.strip().lower() for word in (text or "").split(",") if word.strip()}
    if words - {word.lower() for word in known}:
        raise JesenskaError(f"Invalid {what} '{text}'. Valid {plural} are: {', '.join(known)}")
    return words


def _partition(topic: str, number: str, argument: str) -> TopicPartition:
    if not topic or not re.fullmatch(r"\d{1,9}", number):
        raise JesenskaError(f"Invalid partition '{number}' specified in topic arg '{argument}': write TOPIC:0,1.")
    return TopicPartition(topic, int(number))


if __name__ == "__main__":
    sys.exit(main())
