"""kafka-verifiable-consumer: reads a topic as a member of a group and prints events as JSON lines: partitions assigned
and revoked, records consumed, offsets committed. Flags and output are those of Apache Kafka 4.3.1's tool, which
Kafka's system tests use:

    {"timestamp":1795264183677,"name":"startup_complete"}
    {"timestamp":1795264188002,"name":"partitions_assigned","partitions":[{"topic":"t","partition":0}]}
    {"timestamp":1795264188231,"name":"records_consumed","count":6,
     "partitions":[{"topic":"t","partition":0,"count":6,"minOffset":0,"maxOffset":5}]}
    {"timestamp":1795264188246,"name":"offsets_committed","offsets":[{"topic":"t","partition":0,"offset":6}],
     "success":true}
    {"timestamp":1795264188270,"name":"partitions_revoked","partitions":[{"topic":"t","partition":0}]}
    {"timestamp":1795264188757,"name":"shutdown_complete"}

SIGINT, SIGTERM and SIGHUP end the tool cleanly; it then prints a `shutdown_requested` event. Unlike in Kafka's tool,
`count` does not include records fetched beyond --max-messages, and `shutdown_requested` is printed only if a signal
has requested the end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records.console_reading import assignor_of, fetch_options, group_options
from jesenska.cli.kafka.records.verifiable import Events, Stop, stopping
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    client_settings,
    cluster_of,
    read_properties,
    run_async,
    sentence,
    telling,
)
from jesenska.client.group import GroupConsumer
from jesenska.config.settings.client_settings import CONSUMER_SETTINGS
from jesenska.records.record import Record

_POLL_SECONDS = 0.25


def _parser() -> Parser:
    parser = Parser("kafka-verifiable-consumer", "Consumes a topic in a group and prints as JSON what happens.")
    add_bootstrap(parser, old_name="--broker-list")
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="Consume messages from this topic.")
    parser.add_argument("--group-id", required=True, metavar="GROUP", help="The id of the group.")
    parser.add_argument("--group-instance-id", metavar="ID", help="A name for this member that outlives its restart.")
    parser.add_argument(
        "--group-protocol", default="classic", metavar="PROTOCOL", help="Only classic is served (default: classic)."
    )
    parser.add_argument("--group-remote-assignor", help=argparse.SUPPRESS)
    parser.add_argument(
        "--max-messages",
        type=int,
        default=-1,
        metavar="N",
        help="How many; -1: until the process is ended (default: -1).",
    )
    parser.add_argument(
        "--session-timeout", type=int, metavar="MS", help="The session timeout (default: the consumer's, 45000)."
    )
    parser.add_argument("--verbose", action="store_true", help="A line for each record.")
    parser.add_argument(
        "--enable-autocommit", action="store_true", help="Commit from time to time instead of after each poll."
    )
    parser.add_argument(
        "--reset-policy",
        choices=["earliest", "latest", "none"],
        default="earliest",
        help="Where to begin (default: earliest).",
    )
    parser.add_argument(
        "--assignment-strategy",
        default="range",
        metavar="NAME",
        help="How partitions are shared out: a name or Kafka's class (default: range).",
    )
    parser.add_argument(
        "--consumer.config", dest="consumer_config", metavar="FILE", help="Older name of --command-config."
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.group_protocol.lower() != "classic" or options.group_remote_assignor is not None:
        raise JesenskaError(
            "Groups of the protocol CONSUMER are not built yet: leave --group-protocol and --group-remote-assignor out."
        )
    texts = read_properties(options.consumer_config or options.command_config)
    settings = client_settings(parser, CONSUMER_SETTINGS, texts)
    settings |= {"auto.offset.reset": options.reset_policy, "enable.auto.commit": options.enable_autocommit}
    settings |= {
        "group.instance.id": options.group_instance_id,
        "partition.assignment.strategy": (assignor_of(options.assignment_strategy),),
    }
    if options.session_timeout is not None:
        settings["session.timeout.ms"] = options.session_timeout
    async with cluster_of(options, texts, CONSUMER_SETTINGS) as cluster:
        async with telling("Waiting for the broker"):
            # A member of a group would try to connect without end. So if no broker answers, this is reported here, at
            # the start.
            await cluster.any_channel()
        with stopping() as stop:
            reading = _Reading(Events(cluster.clock), stop, options, settings["max.poll.records"])
            consumer = GroupConsumer(
                cluster,
                options.group_id,
                [options.topic],
                **fetch_options(settings),
                **group_options(settings),
                on_assigned=reading.assigned,
                on_revoked=reading.revoked,
            )
            return await reading.run(consumer)


class _Reading:
    """One run of the tool: reads, commits and prints events."""

    def __init__(self, events: Events, stop: Stop, options: argparse.Namespace, records_max: int) -> None:
        self._events, self._stop, self._options = events, stop, options
        self._left = options.max_messages
        self._records_max = records_max

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._events.say("partitions_assigned", partitions=[_named(key) for key in partitions])

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._events.say("partitions_revoked", partitions=[_named(key) for key in partitions])

    async def run(self, consumer: GroupConsumer) -> int:
        self._events.say("startup_complete")
        async with consumer:
            while self._left and not self._stop.is_set:
                records = await consumer.poll(
                    _POLL_SECONDS, self._records_max if self._left < 0 else min(self._left, self._records_max)
                )
                if records:
                    self._consumed(records)
                    if not self._options.enable_autocommit:
                        await self._commit(consumer, {key: found[-1].offset + 1 for key, found in records.items()})
            if self._stop.is_set:
                self._events.say("shutdown_requested")
            owned = sorted(consumer.assignment())
        if owned:
            self.revoked(owned)
        self._events.say("shutdown_complete")
        return self._stop.exit_code

    def _consumed(self, records: Mapping[TopicPartition, Sequence[Record]]) -> None:
        partitions = []
        for key, found in records.items():
            if self._options.verbose:
                for record in found:
                    self._events.say(
                        "record_data",
                        key=_text(record.key),
                        value=_text(record.value),
                        **_named(key),
                        offset=record.offset,
                    )
            partitions.append(
                _named(key) | {"count": len(found), "minOffset": found[0].offset, "maxOffset": found[-1].offset}
            )
        count = sum(len(found) for found in records.values())
        if self._left > 0:
            self._left -= count
        self._events.say("records_consumed", count=count, partitions=partitions)

    async def _commit(self, consumer: GroupConsumer, offsets: Mapping[TopicPartition, int]) -> None:
        named = [_named(key) | {"offset": offset} for key, offset in offsets.items()]
        try:
            await consumer.commit(offsets)
        except KafkaError as error:
            self._events.say("offsets_committed", offsets=named, success=False, error=sentence(error))
        else:
            self._events.say("offsets_committed", offsets=named, success=True)


def _named(key: TopicPartition) -> dict[str, object]:
    return {"topic": key.topic, "partition": key.partition}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
