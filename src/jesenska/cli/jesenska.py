"""jesenska: `up` starts a broker without a configuration file, `init` lays out a directory as Kafka's releases do; every other tool has Kafka's own name.

jesenska up                           127.0.0.1:9092, data in ./data
jesenska up --any-port                any free port if 9092 is taken
jesenska up --host 0.0.0.0            for other machines, too
jesenska up --zookeeper-port 2181     with its tree for ZooKeeper's clients, too
jesenska status                       whether it is ready, and what it holds; the exit code for health checks
jesenska settings retention           what settings do
jesenska init DIR                     DIR/bin, DIR/config: Kafka's quick start can be typed as it stands
jesenska completion bash              a script for bash or zsh: Tab completes what follows each tool
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jesenska.cli.completion import SHELLS, script
from jesenska.cli.directory_layout import lay_out
from jesenska.cli.settings import add_settings, settings
from jesenska.cli.status import add_status, status
from jesenska.cli.tool import Command, Parser, add_output, print_json, run
from jesenska.cli.up import add_up, up


def _parser() -> Parser:
    parser = Parser("jesenska", "A Kafka broker and its tools, in Python.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Command)
    add_up(_command(commands, "up", "Start a broker; no configuration file needed."))
    add_status(_command(commands, "status", "Say whether a broker is ready, and what it holds.", answers=True))
    add_settings(_command(commands, "settings", "Say what a setting does, and whether it does it yet.", answers=True))
    init = _command(commands, "init", "Lay out bin/ and config/ as Kafka's releases do.", answers=True)
    init.add_argument("directory", metavar="DIR", help="Where: a new directory, or . for this one.")
    completion = _command(commands, "completion", "Print a script with which Tab completes what follows each tool.")
    completion.add_argument("shell", choices=SHELLS, help='The shell; for bash, put eval "$(jesenska completion bash)" into ~/.bashrc.')
    return parser


def _command(commands: argparse._SubParsersAction[Command], name: str, what: str, *, answers: bool = False) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=what, allow_abbrev=False)
    command.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
    if answers:
        add_output(command)
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), arguments, lambda options: _COMMANDS[options.command](options))


def _completion(options: argparse.Namespace) -> int:
    print(script(options.shell), end="")
    return 0


def _init(options: argparse.Namespace) -> int:
    files = list(lay_out(Path(options.directory)))
    made = [path for path, is_new in files if is_new]
    if options.output == "json":
        print_json({"directory": options.directory, "made": [str(path) for path in made], "kept": [str(path) for path, is_new in files if not is_new]})
        return 0
    if len(made) < len(files):
        print(f"jesenska: {len(files) - len(made)} files were there and stay as they are.", file=sys.stderr)
    print(
        f"{options.directory} has bin/ and config/ now. In it:\n"
        f"\n"
        f"  bin/zookeeper-server-start.sh config/zookeeper.properties\n"
        f"  bin/kafka-server-start.sh config/server.properties\n"
        f"  bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 --topic test"
    )
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"up": up, "status": status, "settings": settings, "init": _init, "completion": _completion}

if __name__ == "__main__":
    sys.exit(main())
