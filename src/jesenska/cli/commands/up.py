"""`jesenska up`: starts brokers without a configuration file, or with the file of `jesenska init --secure`. A single
broker runs in this process (`up_alone`). Several brokers are separate processes; their metadata tree is in another
process (`up_several`).

Settings override each other in this order: the command's own flags (--host, --port, --data, --zookeeper-port),
--override, the environment (KAFKA_...), the configuration file, then `up_options.broker_defaults`."""

from __future__ import annotations

import argparse
import gc

from jesenska.base.errors import JesenskaError
from jesenska.cli.supervision.up_options import refuse_ports, use_secured_directory


def up(options: argparse.Namespace) -> int:
    """Starts the brokers, runs until a signal stops them, and returns the exit code."""
    if options.file is not None:
        raise JesenskaError(
            f"up takes no file: kafka-server-start {options.file} starts a broker with a configuration file."
        )
    use_secured_directory(options)
    refuse_ports(options)
    if options.brokers == 1:
        # Objects that are made during the start live long, so the garbage collector would check them repeatedly
        # without freeing any. The broker turns the collector on again when it is running (`broker_process`).
        gc.disable()
        try:
            from jesenska.cli.supervision.up_alone import run_alone

            return run_alone(options)
        finally:
            gc.enable()
    from jesenska.cli.supervision.up_several import run_several

    return run_several(options)
