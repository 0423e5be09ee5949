"""The command `jesenska`: `up` starts brokers without a configuration file, `init` makes a directory in the layout of
Kafka's releases. Every other tool of the package has Kafka's own name.

    jesenska up                           127.0.0.1:9092, data in ./data
    jesenska up --any-port                any free port if 9092 is taken
    jesenska up --host 0.0.0.0            clients on other machines can also connect
    jesenska up --zookeeper-port 2181     also serves the metadata tree to ZooKeeper's clients
    jesenska up -n 3                      three brokers, at 9092 to 9094, and their metadata tree: a cluster
    jesenska branch orders trial          a new topic that shares the records of the topic orders
    jesenska status                       state of a broker and its cluster; the exit code is for health checks
    jesenska settings retention           the meaning of settings
    jesenska init DIR                     DIR/bin, DIR/config: the commands of Kafka's quick start work unchanged
    jesenska init DIR --secure            a broker with TLS and logins, and the settings of its clients
    jesenska cert DIR broker-1 --host h   a certificate for one more broker or client, or a new one for an old name
    jesenska import DIR --zookeeper ...   a data directory of Apache Kafka becomes one of jesenska, in place
    jesenska export DIR --zookeeper ...   the reverse: writes the metadata into a ZooKeeper, for Apache Kafka up to 3.9
    jesenska tree backup FILE --data DIR  a copy of a cluster's metadata tree; also restore, inventory and rebuild
    jesenska forget-broker 3 --data DIR   deletes topics without waiting for a lost broker
    jesenska balance                      moves replicas and leaders, so that the brokers have even loads
    jesenska decommission 3               moves everything away from a broker; recommission is the reverse
    jesenska verify DIR                   prints damaged records of a log directory, which may be in use
    jesenska streams run app.py           a program of the Streams API, on Spark
    jesenska completion bash              a script for bash or zsh: Tab completes the arguments of each tool

The modules of a command are imported only for this command. So a broker's start does not wait for modules that only
other commands need."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.tool import Command, Parser, add_output, print_json, run

_SECURED_PORT = 9093

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[Command]


def _parser(wanted: str | None = None) -> Parser:
    """Returns a parser with the options of all commands, or only of the command `wanted`."""
    parser = Parser("jesenska", "A Kafka broker and its tools, in Python.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Command)
    for name, add in _COMMANDS.items():
        if wanted in (None, name):
            add(commands)
    return parser


def _up(commands: _Commands) -> None:
    from jesenska.cli.commands.up import up
    from jesenska.cli.supervision.up_options import add_up

    command = _command(commands, "up", "Start a broker, or several; no configuration file needed.", up)
    add_up(command)


def _status(commands: _Commands) -> None:
    from jesenska.cli.commands.status import add_status, status

    command = _command(commands, "status", "Say whether a broker is ready, and what it holds.", status, answers=True)
    add_status(command)


def _branch(commands: _Commands) -> None:
    from jesenska.cli.commands.branch import add_branch, branch

    command = _command(commands, "branch", "Make a topic that begins as the copy of another one.", branch, answers=True)
    add_branch(command)


def _settings(commands: _Commands) -> None:
    from jesenska.cli.commands.settings import add_settings, settings

    command = _command(
        commands, "settings", "Say what a setting does, and whether it does it yet.", settings, answers=True
    )
    add_settings(command)


def _init(commands: _Commands) -> None:
    command = _command(commands, "init", "Lay out bin/ and config/ as Kafka's releases do.", _lay_out, answers=True)
    command.add_argument("directory", metavar="DIR", help="Where: a new directory, or . for this one.")
    command.add_argument(
        "--secure",
        action="store_true",
        help="A broker with TLS and logins: certificates, an administrator with a random password, clients' settings.",
    )
    command.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        help="With --secure: a name or address of the broker; the first is told to clients (default: localhost and "
        "127.0.0.1).",
    )
    command.add_argument("--port", type=int, help="With --secure: the broker's port (default: 9093).")


def _cert(commands: _Commands) -> None:
    command = _command(
        commands, "cert", "Sign a certificate with the authority of jesenska init --secure.", _sign, answers=True
    )
    command.add_argument("directory", metavar="DIR", help="The directory of jesenska init --secure.")
    command.add_argument("name", metavar="NAME", help="The name in it, and of its file: broker-1, anna.")
    command.add_argument(
        "--host", action="append", metavar="NAME", help="For a broker: a name or address of it. None: for a client."
    )


def _import(commands: _Commands) -> None:
    from jesenska.cli.commands.importing import add_import, import_directories

    command = _command(
        commands,
        "import",
        "Make a data directory of Apache Kafka one that a broker here serves.",
        import_directories,
        answers=True,
    )
    add_import(command)


def _export(commands: _Commands) -> None:
    from jesenska.cli.commands.exporting import add_export, export_directory

    command = _command(
        commands,
        "export",
        "Write a broker's metadata into a ZooKeeper, for Apache Kafka up to 3.9.",
        export_directory,
        answers=True,
    )
    add_export(command)


def _tree(commands: _Commands) -> None:
    from jesenska.cli.commands.tree_files import add_tree, tree

    add_tree(_command(commands, "tree", "Back up the tree of a cluster, put it back, or build it anew.", tree))


def _forget(commands: _Commands) -> None:
    from jesenska.cli.commands.forgetting import add_forget, forget

    add_forget(
        _command(
            commands,
            "forget-broker",
            "Have deletions of topics not wait for brokers that never come again.",
            forget,
            answers=True,
        )
    )


def _verify(commands: _Commands) -> None:
    from jesenska.cli.commands.verifying import add_verify, verify

    add_verify(
        _command(
            commands, "verify", "Read log directories from end to end: which records are damaged?", verify, answers=True
        )
    )


def _balance(commands: _Commands) -> None:
    from jesenska.cli.balance.balance import add_balance, balance

    what = "Spread replicas and leaders evenly over the brokers."
    add_balance(_command(commands, "balance", what, balance, answers=True))


def _decommission(commands: _Commands) -> None:
    from jesenska.cli.balance.balance import add_decommission, decommission

    what = "Move everything away from a broker, so that it can be switched off."
    add_decommission(_command(commands, "decommission", what, decommission, answers=True))


def _recommission(commands: _Commands) -> None:
    from jesenska.cli.balance.balance import add_recommission, recommission

    what = "Let a broker take new replicas again."
    add_recommission(_command(commands, "recommission", what, recommission, answers=True))


def _streams(commands: _Commands) -> None:
    from jesenska.cli.commands.streams import add_streams, streams

    add_streams(
        _command(commands, "streams", "Run a program of the Streams API on Spark, or show its topology.", streams)
    )


def _completion(commands: _Commands) -> None:
    from jesenska.cli.commands.completion import SHELLS

    command = _command(
        commands, "completion", "Print a script with which Tab completes what follows each tool.", _complete
    )
    command.add_argument(
        "shell", choices=SHELLS, help='The shell; for bash, put eval "$(jesenska completion bash)" into ~/.bashrc.'
    )


_COMMANDS: dict[str, Callable[[_Commands], None]] = {
    "up": _up,
    "status": _status,
    "branch": _branch,
    "settings": _settings,
    "init": _init,
    "cert": _cert,
    "import": _import,
    "export": _export,
    "tree": _tree,
    "forget-broker": _forget,
    "verify": _verify,
    "balance": _balance,
    "decommission": _decommission,
    "recommission": _recommission,
    "streams": _streams,
    "completion": _completion,
}


def _command(
    commands: _Commands, name: str, what: str, work: Callable[[argparse.Namespace], int], *, answers: bool = False
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=what, allow_abbrev=False)
    command.set_defaults(work=work)
    command.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
    if answers:
        add_output(command)
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = given[0] if given and given[0] in _COMMANDS else None
    return run(_parser(wanted), given, lambda options: options.work(options))


def _complete(options: argparse.Namespace) -> int:
    from jesenska.cli.commands.completion import script

    print(script(options.shell), end="")
    return 0


def _secured(options: argparse.Namespace) -> Iterator[tuple[Path, bool]]:
    """Creates the files of a secured broker. Returns an iterator over the files of the layout; for each file it gives
    the path, and True if this call has created the file."""
    from jesenska.cli.commands.secure_layout import lay_out_secured, refuse_other_address

    port = _SECURED_PORT if options.port is None else options.port
    if not 0 < port < 65536:
        raise JesenskaError(f"--port {port} is not a port: write a number from 1 to 65535.")
    directory = Path(options.directory)
    refuse_other_address(directory, options.host[0] if options.host else None, options.port)
    return lay_out_secured(directory, options.host or ["localhost", "127.0.0.1"], port)


def _sign(options: argparse.Namespace) -> int:
    from jesenska.cli.commands.secure_layout import sign

    path = sign(Path(options.directory), options.name, options.host or [])
    if options.output == "json":
        print_json({"certificate": str(path)})
    else:
        print(f"{path} has a new key and certificate. A broker that uses this file shows it from now on.")
    return 0


def _lay_out(options: argparse.Namespace) -> int:
    from jesenska.cli.commands.directory_layout import lay_out

    if not options.secure and options.host:
        raise JesenskaError("--host is for --secure: a broker without TLS needs no name.")
    directory = Path(options.directory)
    files = list(_secured(options) if options.secure else lay_out(directory))
    made = [path for path, is_new in files if is_new]
    if options.output == "json":
        print_json(
            {
                "directory": options.directory,
                "made": [str(path) for path in made],
                "kept": [str(path) for path, is_new in files if not is_new],
            }
        )
        return 0
    if len(made) < len(files):
        print(f"jesenska: {len(files) - len(made)} files were there and stay as they are.", file=sys.stderr)
    if options.secure:
        config = directory.absolute() / "config"
        print(
            f"{options.directory} has config/ and security/ now:\n"
            f"\n"
            f"  jesenska up --secured {options.directory}        (or, with three brokers: -n 3)\n"
            f"  kafka-topics --command-config {config}/client.properties --list"
        )
        return 0
    print(
        f"{options.directory} has bin/ and config/ now. In it:\n"
        f"\n"
        f"  bin/zookeeper-server-start.sh config/zookeeper.properties\n"
        f"  bin/kafka-server-start.sh config/server.properties\n"
        f"  bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 --topic test"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
