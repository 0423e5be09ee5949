"""kafka-leader-election: starts leader elections of partitions. Flags and output lines are those of Apache Kafka
4.3.1's tool.

    --election-type preferred   the first replica of a partition leads again, if it is in sync
    --election-type unclean     a partition without a leader is led by any replica that is up; records that only other
                                replicas had are lost

    --topic NAME --partition N | --path-to-json-file FILE | --all-topic-partitions

The file has the form {"partitions": [{"topic": "t", "partition": 0}]}. The exit code is 1 if the election of a
partition failed. It is no failure if the replica is already the leader. Differs from Kafka's tool: partitions are
sorted, and --admin.config is accepted without a warning. If no broker answers, this is reported immediately."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.cluster.election_results import Wording, add_admin_config, elect
from jesenska.cli.shared.json_files import PARTITION_MAX, read_partitions
from jesenska.cli.shared.tool import Parser, add_bootstrap, add_output, run_async
from jesenska.client.administration.topic_administration import PREFERRED, UNCLEAN

_TYPES = {"preferred": PREFERRED, "unclean": UNCLEAN}


def _parser() -> Parser:
    parser = Parser(
        "kafka-leader-election", "Has leaders of partitions elected: the preferred ones, or any replica that is up."
    )
    add_bootstrap(parser)
    add_admin_config(parser)
    parser.add_argument(
        "--election-type",
        type=str.lower,
        choices=list(_TYPES),
        help="REQUIRED: preferred (the first replica) or unclean (whichever is up).",
    )
    parser.add_argument(
        "--topic", metavar="TOPIC", help="The topic of the one partition to elect a leader for; needs --partition."
    )
    parser.add_argument("--partition", type=int, metavar="N", help="The number of that partition.")
    parser.add_argument("--all-topic-partitions", action="store_true", help="Elect for every partition that needs it.")
    parser.add_argument(
        "--path-to-json-file", metavar="FILE", help='The partitions: {"partitions": [{"topic": "t", "partition": 0}]}.'
    )
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    _check(parser, options)
    kind = options.election_type.upper()
    wording = Wording(
        elected=f"Successfully completed leader election ({kind}) for partitions",
        not_needed="Valid replica already elected for partitions",
        failed=f"Error completing leader election ({kind}) for partition:",
        counted="replica(s)",
    )
    return await elect(parser, options, _TYPES[options.election_type], _partitions(options), wording)


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if options.election_type is None:
        parser.error("Missing required option(s): --election-type")
    if sum([options.topic is not None, options.all_topic_partitions, options.path_to_json_file is not None]) != 1:
        parser.error(
            "One and only one of the following options is required: --topic, --all-topic-partitions, "
            "--path-to-json-file"
        )
    if options.topic is not None and options.partition is None:
        parser.error("Missing required option(s): --partition")
    if options.topic is None and options.partition is not None:
        parser.error("Option --partition is only allowed if --topic is used")
    if options.partition is not None and not 0 <= options.partition <= PARTITION_MAX:
        parser.error(f"--partition {options.partition} is not the number of a partition")


def _partitions(options: argparse.Namespace) -> list[TopicPartition] | None:
    """Returns the partitions that the options select. Returns None for all partitions."""
    if options.topic is not None:
        return [TopicPartition(options.topic, options.partition)]
    return None if options.all_topic_partitions else read_partitions(options.path_to_json_file, "Replica election data")


if __name__ == "__main__":
    sys.exit(main())
