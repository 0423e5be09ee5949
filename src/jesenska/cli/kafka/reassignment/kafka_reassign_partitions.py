"""kafka-reassign-partitions: moves replicas of partitions to other brokers, and to other log directories. Flags and
output lines are those of Apache Kafka 4.3.1's tool.

    --generate --topics-to-move-json-file FILE --broker-list 1,2,3    proposes an assignment, prints the present one
    --execute --reassignment-json-file FILE [--throttle BYTES]        begins the moves of a file
    --verify --reassignment-json-file FILE                            prints what is done; if all is done, removes the
                                                                      throttles
    --cancel --reassignment-json-file FILE                            ends moves; the replicas are as before
    --list                                                            prints the moves that are not done

With --zookeeper the tool works as the tools of Kafka 0.8 to 2.x: it writes the request into the metadata tree
(/admin/reassign_partitions), and prints what 1.0.2's tool prints (`reassignment_in_tree`).

The exit code is 1 if a request was refused. A file is checked completely before anything is sent: its form, its
partitions, brokers and log directories. Differs from Kafka's tool: an unknown broker in --broker-list is refused
(there it is left out), and so is a file with mistakes for --verify and --cancel; --cancel ends its lines with line
breaks; and a broker that is down keeps its throttle, with a line about it (there the tool waits for the broker, and
fails)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import Final

from jesenska.cli.kafka.reassignment import reassignment_in_tree
from jesenska.cli.kafka.reassignment.reassignment_on_brokers import ReassignmentOnBrokers
from jesenska.cli.shared.tool import Parser, add_bootstrap, add_output, cluster_of, run_async, telling
from jesenska.client.administration.admin import Admin

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
#: The flags that each action needs, and those that it may have.
_NEEDED: Final = {
    "verify": ("reassignment_json_file",),
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
_ALLOWED: Final = {
    "verify": ("preserve_throttles",),
    "generate": ("disable_rack_aware",),
    "execute": (
        "throttle",
        "replica_alter_log_dirs_throttle",
        "timeout",
        "additional",
        "disallow_replication_factor_change",
    ),
    "cancel": ("preserve_throttles", "timeout"),
    "list": (),
}
#: The same with --zookeeper, where the other two actions do not exist.
_ALLOWED_IN_TREE: Final = {"verify": (), "generate": ("disable_rack_aware",), "execute": ("throttle",)}
_OF_ACTIONS: Final = sorted({name for names in (*_NEEDED.values(), *_ALLOWED.values()) for name in names})
_NUMBER_MAX: Final = 2**63 - 1


def _parser() -> Parser:
    parser = Parser("kafka-reassign-partitions", "Moves replicas of partitions to other brokers or directories.")
    add_bootstrap(parser)
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT", help=argparse.SUPPRESS)
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="Ask in the tree there, as releases before 2.5 did."
    )
    _add_actions(parser)
    _add_throttles(parser)
    parser.add_argument(
        "--additional", action="store_true", help="Begin moves although others are under way; change their throttle."
    )
    parser.add_argument(
        "--disallow-replication-factor-change", action="store_true", help="Refuse another number of replicas."
    )
    parser.add_argument(
        "--timeout", type=int, metavar="MS", help="How long to wait for a move between directories to begin (10000)."
    )
    add_output(parser)
    return parser


def _add_actions(parser: Parser) -> None:
    actions = parser.add_argument_group("actions (exactly one)")
    actions.add_argument("--generate", action="store_true", help="Propose an assignment to the named brokers.")
    actions.add_argument("--execute", action="store_true", help="Begin the reassignment in the file.")
    actions.add_argument("--verify", action="store_true", help="Print which moves are done; remove their throttles.")
    actions.add_argument("--cancel", action="store_true", help="Cancel the moves in the file.")
    actions.add_argument("--list", action="store_true", help="Print all moves that are not done.")
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="The partitions with their wanted replicas.")
    parser.add_argument(
        "--topics-to-move-json-file", metavar="FILE", help='The topics of --generate: {"topics": [{"topic": "t"}]}.'
    )
    parser.add_argument("--broker-list", metavar="ID[,...]", help="The brokers of --generate.")
    parser.add_argument("--disable-rack-aware", action="store_true", help="Ignore racks (with --generate).")


def _add_throttles(parser: Parser) -> None:
    parser.add_argument(
        "--throttle", type=int, metavar="BYTES", help="The limit of the moves between brokers in bytes a second."
    )
    parser.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=int,
        metavar="BYTES",
        help="The limit of the moves between directories of a broker in bytes a second.",
    )
    parser.add_argument("--preserve-throttles", action="store_true", help="Do not remove throttles.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


def _action(parser: Parser, options: argparse.Namespace) -> str:
    """Returns the action. Ends the tool if the flags do not go together."""
    found = [name for name in _ACTIONS if getattr(options, name)]
    if len(found) != 1:
        parser.error(f"Command must include exactly one action: {', '.join('--' + name for name in _ACTIONS)}")
    (action,) = found
    if options.zookeeper is not None and action not in _ALLOWED_IN_TREE:
        parser.error(f"--{action} cannot be used with --zookeeper: name a broker with --bootstrap-server")
    allowed: Collection[str] = _ALLOWED[action] if options.zookeeper is None else _ALLOWED_IN_TREE[action]
    missing = [_flag(name) for name in _NEEDED[action] if getattr(options, name) is None]
    if missing:
        parser.error(f"Missing required argument {missing[0]}")
    for name in _OF_ACTIONS:
        if getattr(options, name) not in (None, False) and name not in (*_NEEDED[action], *allowed):
            where = "" if options.zookeeper is None else " and --zookeeper"
            parser.error(f'Option "{_flag(name)}" can\'t be used with action "--{action}"{where}')
    for name in ("throttle", "replica_alter_log_dirs_throttle", "timeout"):
        value = getattr(options, name)
        if value is not None and not -1 <= value <= _NUMBER_MAX:
            parser.error(f"{_flag(name)} {value} is not a limit: write a number, or -1 for none")
    return action


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    action = _action(parser, options)
    if options.bootstrap_controller is not None:
        parser.error("There is no separate controller: name a broker with --bootstrap-server")
    if options.zookeeper is not None:
        if options.bootstrap_server is not None or options.command_config is not None:
            parser.error("--zookeeper cannot be used with --bootstrap-server or --command-config")
        async with telling("Waiting for ZooKeeper"):
            return await reassignment_in_tree.work(options, action)
    async with telling("Waiting for the brokers"), cluster_of(options) as cluster:
        return await ReassignmentOnBrokers(Admin(cluster), options).work(action)


if __name__ == "__main__":
    sys.exit(main())
