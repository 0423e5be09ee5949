"""`jesenska up`: brokers without a configuration file. One is this process (`up_alone`); several are processes of
their own, with their tree in another one (`up_several`).

What is set where beats what is set elsewhere in this order: the command's own flags (--host, --port, --data,
--zookeeper-port), --override, the environment (KAFKA_...), then `up_options.broker_defaults`."""

from __future__ import annotations

import argparse

from jesenska.base.errors import JesenskaError
from jesenska.cli.up_options import refuse_ports


def up(options: argparse.Namespace) -> int:
    """Runs the brokers until a signal stops them."""
    if options.file is not None:
        raise JesenskaError(f"up takes no file: kafka-server-start {options.file} starts a broker with a configuration file.")
    refuse_ports(options)
    if options.brokers == 1:
        from jesenska.cli.up_alone import run_alone

        return run_alone(options)
    from jesenska.cli.up_several import run_several

    return run_several(options)
