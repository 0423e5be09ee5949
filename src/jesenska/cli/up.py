"""`jesenska up`: a broker without a configuration file.

What is set where beats what is set elsewhere in this order: the command's own flags (--host, --port, --data,
--zookeeper-port), --override, the environment (KAFKA_...), then the defaults below. A default gives way to an older
name of the same thing: to `port` and `host.name` where it says `listeners`, to `log.dir` where it says `log.dirs`, to
`node.id` where it says `broker.id`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.broker.server import Broker
from jesenska.cli.broker_process import run_broker
from jesenska.cli.configuration import broker_config
from jesenska.cli.log_lines import add_logging, configure_logging
from jesenska.config.layers import BrokerConfig
from jesenska.net.listener import PortTakenError

DEFAULT_HOST, DEFAULT_PORT, DEFAULT_DATA = "127.0.0.1", 9092, "data"
_PORT_MAX = 65535


def add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--host", help="Address to listen on and to tell clients (default: 127.0.0.1, this machine only).")
    up.add_argument("--port", type=_port, help="Port to listen on (default: 9092).")
    up.add_argument("--any-port", action="store_true", help="Take any free port if that one is taken.")
    up.add_argument("--data", metavar="DIR", help="Directory for the data (default: ./data).")
    up.add_argument("--zookeeper-port", type=_port, metavar="PORT", help="Serve the broker's tree to ZooKeeper's clients on that port (0: any), same address.")
    up.add_argument("--override", action="append", default=[], metavar="NAME=VALUE", help="A setting of server.properties; may be repeated.")
    up.add_argument("file", nargs="?", help=argparse.SUPPRESS)
    add_logging(up, "warning")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: write a number from 0 (any free one) to {_PORT_MAX}")
    return int(text)


def up(options: argparse.Namespace) -> int:
    """Runs the broker until a signal stops it."""
    if options.file is not None:
        raise JesenskaError(f"up takes no file: kafka-server-start {options.file} starts a broker with a configuration file.")
    if options.zookeeper_port and options.zookeeper_port == (DEFAULT_PORT if options.port is None else options.port):
        raise JesenskaError(f"The broker and its tree cannot both have port {options.zookeeper_port}: give another --port or --zookeeper-port.")
    configure_logging(options)
    config = config_of(options)
    try:
        return _run(config)
    except PortTakenError as error:
        if f":{error.port}" not in (config.string("listeners") or f":{error.port}"):
            # That of another listener: its sentence stands.
            raise
        if not options.any_port:
            raise JesenskaError(
                f"Port {error.port} is taken by another process, perhaps another broker: stop that one, choose one with --port, or add --any-port."
            ) from error
        print(f"Port {error.port} is taken; using another one.", file=sys.stderr)
        options.port = 0
        return _run(config_of(options))


def config_of(options: argparse.Namespace) -> BrokerConfig:
    """The settings that the command's line and the environment ask for."""
    host, port = options.host or DEFAULT_HOST, DEFAULT_PORT if options.port is None else options.port
    everywhere = host in ("0.0.0.0", "::")  # noqa: S104
    bound = "" if everywhere else f"[{host}]" if ":" in host else host
    listeners, directory = f"PLAINTEXT://{bound}:{port}", str(Path(options.data or DEFAULT_DATA))
    flags = {}
    if options.host is not None or options.port is not None:
        flags["listeners"] = listeners
    if options.data is not None:
        flags["log.dirs"] = directory
    if options.zookeeper_port is not None:
        flags["jesenska.zookeeper.listener"] = f"{bound}:{options.zookeeper_port}"
    defaults = {
        "listeners": listeners,
        "log.dirs": directory,
        "broker.id": "1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return broker_config(defaults=defaults, overrides=options.override, flags=flags)


def _run(config: BrokerConfig) -> int:
    return run_broker(config, lambda broker: _announce(broker, config), lambda text: print(text, file=sys.stderr, flush=True))


def _announce(broker: Broker, config: BrokerConfig) -> None:
    host, port = broker.endpoint_for(broker.first_listener_name)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    data = config.string("log.dirs") or config.string("log.dir")
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
