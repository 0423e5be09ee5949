"""kafka-streams-application-reset: resets an application of the Streams API, so that its next start begins from the
beginning. Flags and output are those of Apache Kafka 4.3.1's tool. The tool works for applications of Kafka Streams
and of jesenska's `KafkaStreams`.

    --input-topics a,b [--to-earliest | --to-offset N | ...]    the new offsets of these topics
    --intermediate-topics c                                     the application continues at the end of these topics
    --internal-topics app-s-changelog                           only these internal topics are deleted
    --state-dir state                                           the state below this directory is also removed

Internal topics are those whose names begin with the application's id and have an ending of Kafka Streams. Everything
is looked up before anything is changed. The tool refuses to reset a running application, which must be closed first.

Kafka's tool does not have --state-dir and --output json."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jesenska.base.errors import GroupIdNotFoundError, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.groups.offset_reset import (
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
from jesenska.client.cluster import Cluster, TopicInfo

_INTERNAL = re.compile(
    r".*(?:-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic)",
    re.DOTALL,
)


def _parser() -> Parser:
    parser = Parser(
        "kafka-streams-application-reset",
        "Lets an application of the Streams API begin anew: try it with --dry-run first.",
    )
    add_bootstrap(parser, old_name="--bootstrap-servers")
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="The ZooKeeper of the cluster, where no broker is named."
    )
    parser.add_argument("--config-file", metavar="FILE", dest="command_config", help=argparse.SUPPRESS)
    parser.add_argument("--application-id", metavar="ID", help="REQUIRED: The application's application.id.")
    parser.add_argument(
        "--input-topics",
        metavar="TOPIC,TOPIC",
        help="Topics that it reads: their offsets are set, to their beginning if nothing else is said.",
    )
    parser.add_argument(
        "--intermediate-topics",
        metavar="TOPIC,TOPIC",
        help="Topics that it writes and reads again: they are skipped to their end.",
    )
    parser.add_argument("--internal-topics", metavar="TOPIC,TOPIC", help="Delete only these of its internal topics.")
    add_places(parser.add_argument_group("where the offsets of the input topics are set to, at most one of them"))
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="Remove the application's state below this directory as well (the state.dir of KafkaStreams).",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="Remove members that are left in the application's group. Stop the application before.",
    )
    parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if not options.application_id:
        parser.error("Missing required argument --application-id")
    if options.application_id in (".", "..") or "/" in options.application_id:
        parser.error(f"{options.application_id} is not the id of an application")
    places = given(options)
    if len(places) > 1:
        parser.error(f'Option "[{places[0]}]" can\'t be used with option "[{places[1]}]"')
    if options.bootstrap_server:
        options.zookeeper = None  # Kafka's tool up to 1.0 takes both, and uses this only for topics
    elif not options.zookeeper:
        options.bootstrap_server = "localhost:9092"
    async with cluster_of(options) as cluster:
        tool = _Tool(parser.prog, options, cluster)
        async with telling("Waiting for the brokers"):
            await tool.look()
        await tool.do()
    return tool.code


def _names(text: str | None) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


class _Tool:
    """One run of the tool. Everything is looked up first (`look`), then changed (`do`)."""

    def __init__(self, name: str, options: argparse.Namespace, cluster: Cluster) -> None:
        self._name = name
        self._options = options
        self._cluster = cluster
        self._groups = Admin(cluster)
        self._id: str = options.application_id
        self._input = _names(options.input_topics)
        self._intermediate = _names(options.intermediate_topics)
        self._starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._missing: dict[str, list[str]] = {}
        self._to_delete: list[str] = []
        self._reset = reset_of(options) if given(options) else Reset("to-earliest")
        self._has_members = False
        self.code = 0

    async def look(self) -> None:
        topics = await self._cluster.topics()
        self._to_delete = self._internal_topics(topics)
        await self._look_at_members()
        self._missing = {kind: [topic for topic in names if topic not in topics] for kind, names in self._kinds()}
        self._starts = await self._starts_of(_partitions(self._input, topics))
        self._ends = await planned(
            self._cluster, self._id, _partitions(self._intermediate, topics), Reset("to-latest"), warn
        )

    def _kinds(self) -> tuple[tuple[str, list[str]], ...]:
        return ("input", self._input), ("intermediate", self._intermediate)

    def _internal_topics(self, topics: Iterable[str]) -> list[str]:
        found = sorted(topic for topic in topics if topic.startswith(f"{self._id}-") and _INTERNAL.fullmatch(topic))
        wanted = _names(self._options.internal_topics)
        if wrong := [topic for topic in wanted if topic not in found]:
            raise JesenskaError(
                f"{', '.join(wrong)}: not among the internal topics of {self._id}, which are "
                f"{', '.join(found) or 'none'}: "
                "name some of these with --internal-topics."
            )
        return wanted or found

    async def _look_at_members(self) -> None:
        group = (await self._groups.describe_groups([self._id]))[self._id]
        if isinstance(group, GroupIdNotFoundError):
            return
        if isinstance(group, KafkaError):
            raise group
        if not group.members:
            return
        if not self._options.force:
            named = ", ".join(
                f"{member.member_id} ({member.client_id}, {member.client_host})" for member in group.members[:5]
            )
            more = f" and {len(group.members) - 5} more" if len(group.members) > 5 else ""
            raise JesenskaError(
                f"The group {self._id} has active members, {named}{more}: stop the application first, or remove "
                f"members that are left over with --force."
            )
        self._has_members = True

    async def _starts_of(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not keys:
            return {}
        if self._options.from_file is not None:
            given = of_group(read_file(self._options.from_file), self._id, True)
            if strange := [key for key in given if key not in keys]:
                raise JesenskaError(
                    f"{self._options.from_file} has offsets of {strange[0]}, which is not a partition of an input "
                    f"topic: name it in --input-topics."
                )
            return await within(self._cluster, given, warn)
        return await planned(self._cluster, self._id, keys, self._reset, warn)

    async def do(self) -> None:
        """Resets the application and prints each step. With --dry-run the steps are only printed."""
        if self._options.dry_run:
            self._say("----Dry run displays the actions which will be performed when running Streams Reset Tool----")
        state = self._remove_state()  # refused while the application runs, before anything is changed
        await self._remove_members()
        await self._set_offsets()
        await self._remove_offsets_of_a_state()
        await self._delete_topics()
        if self._options.state_dir is None and not self._options.dry_run:
            print(
                f"{self._name}: The application's own state stands as it was: remove it, too, with --state-dir or "
                f"clean_up.",
                file=sys.stderr,
            )
        if missing := [topic for topics in self._missing.values() for topic in topics]:
            print(
                f"{self._name}: {', '.join(missing)}: there is no such topic; kafka-topics --describe shows those "
                f"that exist.",
                file=sys.stderr,
            )
            self.code = 1
        if self._options.output == "json":
            offsets = [
                {"topic": key.topic, "partition": key.partition, "offset": offset}
                for key, offset in sorted((self._starts | self._ends).items())
            ]
            print_json(
                {
                    "dryRun": self._options.dry_run,
                    "offsets": offsets,
                    "deletedTopics": self._to_delete,
                    "missingTopics": missing,
                    "removedState": state,
                }
            )

    async def _remove_members(self) -> None:
        if self._has_members:
            self._say(f"Force deleting all active members in the group: {self._id}")
            if not self._options.dry_run:
                await self._groups.remove_members_from_group(self._id)

    async def _set_offsets(self) -> None:
        if not self._input and not self._intermediate:
            self._say("No input or intermediate topics specified. Skipping seek.")
            return
        if self._input:
            self._say(f"Reset-offsets for input topics [{', '.join(self._input)}]")
        if self._intermediate:
            self._say(f"Seek-to-end for intermediate topics [{', '.join(self._intermediate)}]")
        for kind, topics in self._missing.items():
            if topics:
                self._say(f"Following {kind} topics are not found, skipping them")
            for topic in topics:
                self._say(f"Topic: {topic}")
        if self._starts:
            self._say(f"Following input topics offsets will be reset to (for consumer group {self._id})")
        for key, offset in sorted(self._starts.items()):
            self._say(f"Topic: {key.topic} Partition: {key.partition} Offset: {offset}")
        if self._ends:
            self._say(f"Following intermediate topics offsets will be reset to end (for consumer group {self._id})")
        for topic in dict.fromkeys(key.topic for key in sorted(self._ends)):
            self._say(f"Topic: {topic}")
        if not self._options.dry_run:
            self._tell_errors(
                "The offset of",
                await self._groups.alter_group_offsets(self._id, self._starts | self._ends),
                "was not set",
            )
        self._say("Done.")

    async def _remove_offsets_of_a_state(self) -> None:
        """Removes committed offsets whose metadata shows that `KafkaStreams` has a state for these offsets. If they
        were kept, the application would look for that state at its next start."""
        from jesenska.pipeline.connector.options import READ_BY_A_QUERY

        if self._options.dry_run:
            return
        committed = await self._groups.list_group_offsets(self._id)
        if of_a_state := [key for key, item in committed.items() if item.metadata.startswith(READ_BY_A_QUERY)]:
            self._tell_errors(
                "The offset of", await self._groups.delete_group_offsets(self._id, of_a_state), "was not removed"
            )

    async def _delete_topics(self) -> None:
        which = "specified" if self._options.internal_topics else "inferred"
        self._say(f"Deleting {which} internal topics [{', '.join(self._to_delete)}]")
        if self._to_delete and not self._options.dry_run:
            self._tell_errors("The topic", await Admin(self._cluster).delete_topics(self._to_delete), "was not deleted")
        self._say("Done.")

    def _tell_errors(
        self,
        what: str,
        results: Mapping[TopicPartition, KafkaError | None] | Mapping[str, KafkaError | None],
        failed: str,
    ) -> None:
        for name, error in results.items():
            if error is not None:
                print(f"{self._name}: {what} {name} {failed}: {sentence(error)}", file=sys.stderr)
                self.code = 1

    def _remove_state(self) -> bool:
        if self._options.state_dir is None:
            return False
        from jesenska.pipeline.streams_on_spark.stores.state_directory import StateDirectory

        path = Path(self._options.state_dir) / self._id
        removed = path.exists() if self._options.dry_run else StateDirectory(path).remove()
        self._say(f"Removing the state in {path}")
        self._say("Done." if removed else "There is none.")
        return removed

    def _say(self, text: str) -> None:
        if self._options.output == "text":
            print(text, flush=True)


def _partitions(topics: Iterable[str], known: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return [item.topic_partition for topic in topics if topic in known for item in known[topic].partitions]


if __name__ == "__main__":
    sys.exit(main())
