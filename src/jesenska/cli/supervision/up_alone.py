"""`jesenska up` with one broker: the broker runs in this process, with its metadata tree.

A default is not used if an older name of the setting is set. The default of `listeners` is not used with `port` or
`host.name`, that of `log.dirs` not with `log.dir`, and that of `broker.id` not with `node.id`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.broker.server import Broker
from jesenska.cli.shared.broker_process import run_broker
from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.log_lines import configure_logging
from jesenska.cli.shared.several_directories import refuse_directory_of_several
from jesenska.cli.supervision.up_options import (
    DEFAULT_DATA,
    address_of,
    announcement,
    broker_defaults,
    listening_host,
    port_of,
    tree_host,
    warn_if_open,
)
from jesenska.config.layers import BrokerConfig
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import ForeignDataError, read_meta_properties
from jesenska.net.listener import PortTakenError


def run_alone(options: argparse.Namespace) -> int:
    """Starts one broker in this process, runs until a signal stops it, and returns the exit code."""
    configure_logging(options)
    warn_if_open(options)
    config = config_of(options)
    refuse_directory_of_several(Path(_data(config).split(",")[0].strip()))
    if options.secured is not None:
        refuse_directory_of_several(options.secured.data)
    try:
        return _run(options, config)
    except PortTakenError as error:
        if f":{error.port}" not in (config.string("listeners") or f":{error.port}"):
            # The port of another listener is taken, so the error is raised unchanged.
            raise
        if not options.any_port:
            raise JesenskaError(
                f"Port {error.port} is taken by another process, perhaps another broker: stop that process, "
                "choose another port with --port, or add --any-port."
            ) from error
        print(f"Port {error.port} is taken; using another one.", file=sys.stderr)
        options.port = 0
        return _run(options, config_of(options))


def config_of(options: argparse.Namespace) -> BrokerConfig:
    """Returns the configuration from the command line and the environment. If the directory's meta.properties contains
    a broker id, this id is used."""
    config = _config(options, "1")
    try:
        found = read_meta_properties(Path(_data(config).split(",")[0].strip()), FileLayer())
    except (OSError, ForeignDataError):
        return config  # the start reports the fault
    return config if found is None or found.broker_id is None else _config(options, str(found.broker_id))


def _config(options: argparse.Namespace, broker_id: str) -> BrokerConfig:
    host = listening_host(options)
    listeners, directory = f"PLAINTEXT://{address_of(host, port_of(options))}", str(Path(options.data or DEFAULT_DATA))
    flags = {}
    if options.secured is None and (options.host is not None or options.port is not None):
        flags["listeners"] = listeners
    if options.data is not None:
        flags["log.dirs"] = directory
    if options.zookeeper_port is not None:
        flags["jesenska.zookeeper.listener"] = address_of(tree_host(options), options.zookeeper_port)
    defaults = {"listeners": listeners, "log.dirs": directory, "broker.id": broker_id, **broker_defaults(1)}
    if options.secured is not None:
        if options.port is not None:
            flags |= options.secured.listener(options.port)
        return broker_config(options.secured.file, defaults, options.override, flags=flags)
    return broker_config(defaults=defaults, overrides=options.override, flags=flags)


def _data(config: BrokerConfig) -> str:
    return config.string("log.dirs") or config.string("log.dir") or ""


def _run(options: argparse.Namespace, config: BrokerConfig) -> int:
    client_file = None if options.secured is None else options.secured.client_file
    return run_broker(
        config,
        lambda broker: _announce(broker, config, client_file),
        lambda text: print(text, file=sys.stderr, flush=True),
    )


def _announce(broker: Broker, config: BrokerConfig, client_file: str | None) -> None:
    host, port = broker.endpoint_for(broker.first_listener_name)
    served = broker.tree_served_at
    tree = address_of(served[0] or host, served[1]) if served is not None else None
    text = announcement([address_of(host, port)], _data(config), tree, client_file=client_file)
    print(text, end="", flush=True)
