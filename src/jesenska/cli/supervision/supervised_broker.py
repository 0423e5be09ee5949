"""A broker in a separate process, for a supervisor (`up_several`). It reports its state on stdout, one JSON object per
line, and logs to stderr.

    python -m jesenska.cli.supervision.supervised_broker
        --flag NAME=VALUE... [--default NAME=VALUE...] [--override NAME=VALUE...] [--file PATH]

    {"ready": true, "host": "127.0.0.1", "port": 9093}    clients can connect, at that address
    {"progress": "recovering: ..."}                       the reason why the start takes long
    {"failed": "..."}                                     the broker ends for this reason, with exit code 1

Settings have the same precedence as in `jesenska up`: flags before overrides, overrides before the environment, the
environment before the configuration file, and the file before defaults. The supervisor prints the warnings about
settings. The broker shuts down cleanly on SIGTERM and when its parent ends (`ending`)."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.broker.server import Broker
from jesenska.cli.shared.broker_process import run_broker
from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.log_lines import add_logging, configure_logging
from jesenska.cli.supervision.tree_orders import line_of

_STDOUT = 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="supervised_broker", allow_abbrev=False)
    for name in ("--default", "--override", "--flag"):
        parser.add_argument(name, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--file", metavar="PATH")
    parser.add_argument("--debug", action="store_true")
    add_logging(parser, "warning")
    options = parser.parse_args(arguments)
    try:
        configure_logging(options)
        config = broker_config(
            options.file, _settings(options.default), options.override, flags=_settings(options.flag), warns=False
        )
        # The warnings about this installation are the same for all brokers. So only the broker with the id 1 logs
        # them.
        is_first = config.integer("broker.id") == 1
        return run_broker(config, _ready, lambda text: _say(progress=text), warns=is_first)
    except JesenskaError as error:
        message = str(error)
    except OSError as error:
        # The function is imported here because its module imports the common parts of all tools.
        from jesenska.cli.shared.tool import sentence_of_system

        message = sentence_of_system(error)
    if options.debug:
        traceback.print_exc()
    _say(failed=message)
    return 1


def _settings(words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        found[name] = value
    return found


def _ready(broker: Broker) -> None:
    host, port = broker.endpoint_for(broker.first_listener_name)
    _say(ready=True, host=host, port=port)


def _say(**said: Any) -> None:
    """Writes a line for the supervisor. Errors are ignored, because the supervisor may have ended."""
    with suppress(OSError):
        os.write(_STDOUT, line_of(**said))


if __name__ == "__main__":
    sys.exit(main())
