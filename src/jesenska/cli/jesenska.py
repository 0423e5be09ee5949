"""jesenska: `up` starts a broker without a configuration file, `init` lays out a directory as Kafka's releases do; every other tool has Kafka's own name.

jesenska up                           127.0.0.1:9092, data in ./data
jesenska up --any-port                any free port if 9092 is taken
jesenska up --host 0.0.0.0            for other machines, too
jesenska up --zookeeper-port 2181     with its tree for ZooKeeper's clients, too
jesenska init DIR                     DIR/bin, DIR/config: Kafka's quick start can be typed as it stands
jesenska completion bash              a script for bash or zsh: Tab completes what follows each tool
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.broker.server import Broker
from jesenska.cli.broker_process import configure_logging, run_broker
from jesenska.cli.completion import SHELLS, script
from jesenska.cli.configuration import broker_config
from jesenska.cli.directory_layout import lay_out
from jesenska.cli.tool import Parser, add_output, print_json, run
from jesenska.net.listener import PortTakenError

_DEFAULT_PORT = 9092


def _parser() -> Parser:
    parser = Parser("jesenska", "A Kafka broker and its tools, in Python.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser)
    up = commands.add_parser("up", help="Start a broker; no configuration file needed.", allow_abbrev=False)
    up.add_argument("--host", default="127.0.0.1", help="Address to listen on and to tell clients (default: 127.0.0.1, this machine only).")
    up.add_argument("--port", type=int, default=_DEFAULT_PORT, help="Port to listen on (default: 9092).")
    up.add_argument("--any-port", action="store_true", help="Take any free port if that one is taken.")
    up.add_argument("--data", default="data", metavar="DIR", help="Directory for the data (default: ./data).")
    up.add_argument("--zookeeper-port", type=int, metavar="PORT", help="Serve the broker's tree to ZooKeeper's clients on that port (0: any), same address.")
    up.add_argument("--override", action="append", default=[], metavar="NAME=VALUE", help="A setting of server.properties; may be repeated.")
    up.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"], help="How much to log on stderr.")
    up.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
    init = commands.add_parser("init", help="Lay out bin/ and config/ as Kafka's releases do.", allow_abbrev=False)
    init.add_argument("directory", nargs="?", default=".", metavar="DIR", help="Where (default: here).")
    init.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
    add_output(init)
    completion = commands.add_parser("completion", help="Print a script with which Tab completes what follows each tool.", allow_abbrev=False)
    completion.add_argument("shell", choices=SHELLS, help='The shell; for bash, put eval "$(jesenska completion bash)" into ~/.bashrc.')
    completion.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
    return parser


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


def _up(options: argparse.Namespace) -> int:
    configure_logging(options.log_level)
    try:
        return _run(options, options.port)
    except PortTakenError as error:
        if error.port != options.port:
            # That of another listener: its sentence stands.
            raise
        if not options.any_port:
            raise JesenskaError(
                f"Port {error.port} is taken by another process, perhaps another broker: stop that one, choose one with --port, or add --any-port."
            ) from error
        print(f"Port {error.port} is taken; using another one.", file=sys.stderr)
        return _run(options, 0)


def _run(options: argparse.Namespace, port: int) -> int:
    host = f"[{options.host}]" if ":" in options.host else options.host
    everywhere = options.host in ("0.0.0.0", "::")  # noqa: S104
    defaults = {
        "listeners": f"PLAINTEXT://{'' if everywhere else host}:{port}",
        "log.dirs": str(Path(options.data)),
        "broker.id": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    if options.zookeeper_port is not None:
        defaults["jesenska.zookeeper.listener"] = f"{'' if everywhere else host}:{options.zookeeper_port}"
    config = broker_config(defaults=defaults, overrides=options.override)
    return run_broker(config, lambda broker: _announce(broker, options.data), lambda text: print(text, file=sys.stderr, flush=True))


def _announce(broker: Broker, data: str) -> None:
    host, port = broker.endpoint_for(broker.first_listener_name)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    tree = broker.tree_served_at
    more = f"\n  zookeeper-shell {f'[{tree[0]}]' if ':' in tree[0] else tree[0] or host}:{tree[1]} ls /brokers/topics" if tree is not None else ""
    print(
        f"jesenska is up at {address} (data in {data}; Ctrl-C stops it)\n"
        f"\n"
        f"  kafka-topics --bootstrap-server {address} --create --topic test --partitions 3\n"
        f"  kafka-console-producer --bootstrap-server {address} --topic test\n"
        f"  kafka-console-consumer --bootstrap-server {address} --topic test --from-beginning"
        f"{more}",
        flush=True,
    )


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"up": _up, "init": _init, "completion": _completion}

if __name__ == "__main__":
    sys.exit(main())
