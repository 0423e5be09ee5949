"""The options of `jesenska up`, and the settings that are the same for one broker and for several. This module imports
nothing of a broker, so that a supervisor of brokers stays small."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.log_lines import add_logging
from jesenska.cli.shared.tool import directory

DEFAULT_HOST, DEFAULT_PORT, DEFAULT_DATA = "127.0.0.1", 9092, "data"
_PORT_MAX = 65535
_BROKERS_MAX = 32
#: The largest replication factor and the largest min.insync.replicas that `jesenska up` sets, for any number of
#: brokers. They are Kafka's defaults for its internal topics.
_COPIES, _COPIES_IN_SYNC = 3, 2


def add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "-n",
        "--brokers",
        type=_brokers,
        default=1,
        metavar="N",
        help="How many brokers, each a process of its own (default: 1).",
    )
    up.add_argument(
        "--secured",
        metavar="DIR",
        help="Use TLS, logins and access rules from this directory of jesenska init DIR --secure.",
    )
    up.add_argument("--host", help="Address to listen on and to tell clients (default: 127.0.0.1, this machine only).")
    up.add_argument(
        "--port",
        type=_port,
        help="Port to listen on (default: 9092, or that of the secured directory); several brokers take the ones after "
        "it, too.",
    )
    up.add_argument("--any-port", action="store_true", help="Take any free port if that one is taken.")
    up.add_argument(
        "--data",
        type=directory,
        metavar="DIR",
        help="Directory for the data (default: ./data, or data in the secured directory).",
    )
    up.add_argument(
        "--zookeeper-port",
        type=_port,
        metavar="PORT",
        help="Serve the broker's tree to ZooKeeper's clients on that port (0: any), same address.",
    )
    up.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="A setting of server.properties; may be repeated.",
    )
    up.add_argument("file", nargs="?", help=argparse.SUPPRESS)
    add_logging(up, "warning")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write a number from 0 (any free one) to {_PORT_MAX}")
    return int(text)


def _brokers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= _BROKERS_MAX):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of brokers: write a number from 1 to {_BROKERS_MAX}"
        )
    return int(text)


def use_secured_directory(options: argparse.Namespace) -> None:
    """Reads the directory that --secured names, if it is given: `options.secured` becomes a `SecuredDirectory`, whose
    port is the default of --port. Raises JesenskaError with one sentence if the directory cannot be used, or if the
    data belong to a secured directory and --secured is not given."""
    if options.secured is None:
        _refuse_data_of_secured(options)
        return
    if options.host is not None:
        raise JesenskaError(
            f"--host cannot be given with --secured: the certificate in {options.secured} names the hosts. Make "
            f"another directory with jesenska init DIR --secure --host {options.host}."
        )
    # Imported here, because the check of the settings is needed only for a secured directory.
    from jesenska.cli.supervision.secured_directory import secured_directory

    options.secured = secured_directory(options.secured)


def _refuse_data_of_secured(options: argparse.Namespace) -> None:
    """Raises JesenskaError if the data are those of a secured directory: without --secured everybody could read
    them."""
    data = Path(options.data or DEFAULT_DATA).absolute()
    for root in (data.parent, data.parent.parent):
        if (root / "security" / "ca.pem").exists() and (root / "config" / "server.properties").exists():
            raise JesenskaError(
                f"{data} belongs to a directory of jesenska init --secure: start it with jesenska up --secured {root}, "
                f"or name another directory with --data."
            )


def refuse_ports(options: argparse.Namespace) -> None:
    """Raises JesenskaError with one sentence if the requested ports cannot all be used."""
    first = port_of(options)
    last = first + options.brokers - 1
    if first == 0:
        return
    if last > _PORT_MAX:
        raise JesenskaError(
            f"{options.brokers} brokers from port {first} on would need port {last}, and {_PORT_MAX} is the last "
            f"one: give a smaller --port."
        )
    if first <= (options.zookeeper_port or 0) <= last:
        raise JesenskaError(
            f"The broker and its tree cannot both have port {options.zookeeper_port}: give another --port or "
            f"--zookeeper-port."
        )


def port_of(options: argparse.Namespace) -> int:
    """Returns the port of the first broker; 0 means any free port."""
    if options.port is not None:
        return int(options.port)
    return DEFAULT_PORT if options.secured is None else int(options.secured.port)


def listening_host(options: argparse.Namespace) -> str:
    """Returns the host to listen at. An empty text means every address of this machine."""
    if options.secured is not None:
        return ""
    host = str(options.host or DEFAULT_HOST)
    return "" if host in ("0.0.0.0", "::") else host  # noqa: S104


def tree_host(options: argparse.Namespace) -> str:
    """Returns the host at which the metadata tree is served to ZooKeeper's clients. The tree of secured brokers has no
    TLS, so it is served on this machine only."""
    return listening_host(options) if options.secured is None else DEFAULT_HOST


def warn_if_open(options: argparse.Namespace) -> None:
    """Prints a warning on stderr if other machines can reach the broker: clients there may then read and change
    everything."""
    host = listening_host(options)
    if options.secured is not None or host == "localhost" or host.startswith("127.") or host == "::1":
        return
    print(
        "jesenska: everyone who reaches this broker can read, write and delete everything; jesenska init DIR --secure "
        "makes one with TLS and logins.",
        file=sys.stderr,
    )


def broker_defaults(brokers: int) -> dict[str, str]:
    """Returns the settings of a broker whose defaults differ from Kafka's defaults. `brokers` is the number of brokers
    in the cluster."""
    copies = str(min(_COPIES, brokers))
    defaults = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(_COPIES_IN_SYNC, brokers)),
    }
    return defaults if brokers == 1 else {**defaults, "default.replication.factor": copies}


def address_of(host: str, port: int) -> str:
    """Returns host:port for clients; an IPv6 address is written in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def announcement(
    addresses: Sequence[str],
    data: str,
    tree: str | None,
    login_file: str | None = None,
    client_file: str | None = None,
) -> str:
    """Returns the text that is printed when clients can connect. It contains commands to try first. `tree` is the
    address of the metadata tree for ZooKeeper's clients, or None; `login_file` is the file with the login that these
    clients need. `client_file` is the file with the settings of clients, or None if they need none."""
    tools = producer = consumer = login = ""
    if client_file is not None or login_file is not None:
        # Imported here, because a broker without logins does not need it.
        import shlex

        if client_file is not None:
            file = shlex.quote(client_file)
            tools, producer, consumer = (
                f" --{flag} {file}" for flag in ("command-config", "producer.config", "consumer.config")
            )
        if login_file is not None:
            login = f"KAFKA_OPTS=-Djava.security.auth.login.config={shlex.quote(login_file)} "
    bootstrap = ",".join(addresses)
    which, them = (f"{len(addresses)} brokers, ", "them") if len(addresses) > 1 else ("", "it")
    return (
        f"jesenska is up at {bootstrap} ({which}data in {data}; Ctrl-C stops {them})\n"
        f"\n"
        f"  kafka-topics --bootstrap-server {bootstrap}{tools} --create --topic test --partitions 3\n"
        f"  kafka-console-producer --bootstrap-server {bootstrap}{producer} --topic test\n"
        f"  kafka-console-consumer --bootstrap-server {bootstrap}{consumer} --topic test --from-beginning\n"
        + (f"  {login}zookeeper-shell {tree} ls /brokers/topics\n" if tree is not None else "")
    )
