"""kafka-server-start: starts a broker with a configuration file. The flags are those of Apache Kafka's script:

    kafka-server-start [-daemon] [-name NAME] [-loggc] FILE [--override NAME=VALUE]...

-daemon starts the broker in the background, with its output in $LOG_DIR/kafkaServer.out (./logs without LOG_DIR), and
returns when clients can connect (Kafka's script returns immediately). -name and -loggc are options for a JVM and are
ignored."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.broker.server import Broker
from jesenska.cli.shared.broker_process import run_broker
from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.log_lines import add_logging, configure_logging
from jesenska.cli.shared.tool import Parser, run


def _parser() -> Parser:
    parser = Parser("kafka-server-start", "Starts a broker with a configuration file.")
    parser.add_argument("file", metavar="FILE", help="The broker's configuration (server.properties).")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="A setting that beats the file and the environment.",
    )
    parser.add_argument("-daemon", action="store_true", help="Run in the background; return when clients can connect.")
    parser.add_argument("-name", metavar="NAME", help="Accepted and ignored.")
    parser.add_argument("-loggc", action="store_true", help="Accepted and ignored.")
    add_logging(parser, "info")
    parser.add_argument("--ready-descriptor", type=int, default=None, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    if sys.platform == "win32":
        print(
            "kafka-server-start: Windows is not supported; run it inside WSL, where it works as on Linux.",
            file=sys.stderr,
        )
        return 1
    return run(_parser(), arguments, _work)


def _work(options: argparse.Namespace) -> int:
    if options.daemon:
        return _in_background(options)
    configure_logging(options)
    config = broker_config(options.file, overrides=options.override)
    return run_broker(
        config,
        lambda broker: _announce(broker, options.ready_descriptor),
        lambda text: print(text, file=sys.stderr, flush=True),
    )


def _announce(broker: Broker, ready_descriptor: int | None) -> None:
    host, port = broker.endpoint_for(broker.first_listener_name)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    print(f"jesenska is up at {address} (kafka-server-stop or Ctrl-C stops it)", flush=True)
    if ready_descriptor is not None:
        os.write(ready_descriptor, f"{address}\n".encode())
        os.close(ready_descriptor)


def _in_background(options: argparse.Namespace) -> int:
    """Starts the same command in a new session, in the background. The new process writes the broker's address into a
    pipe when clients can connect. If the process ends before that, the pipe is closed."""
    log = Path(os.environ.get("LOG_DIR") or "logs") / "kafkaServer.out"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("ab")
    except OSError as error:
        raise JesenskaError(
            f"{log} cannot be written ({error.strerror}): set LOG_DIR to a directory that can be written."
        ) from error
    receiving, sending = os.pipe()
    command = [
        sys.executable,
        "-m",
        "jesenska.cli.kafka.cluster.kafka_server_start",
        "--log-level",
        options.log_level,
        "--log-format",
        options.log_format,
    ]
    if options.log_file is not None:
        command += ["--log-file", options.log_file]
    command += ["--ready-descriptor", str(sending), options.file]
    for override in options.override:
        command += ["--override", override]
    with output, os.fdopen(receiving, "rb") as ready:
        begins = output.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[sending], start_new_session=True
        )
        os.close(sending)
        address = ready.readline().strip().decode()
    if not address:
        process.wait()
        said = log.read_bytes()[begins:].decode(errors="replace").strip().splitlines()
        reason = said[-1].removeprefix("kafka-server-start: ").removesuffix(".") if said else "it said nothing"
        raise JesenskaError(f"The broker did not start: {reason} (more in {log}).")
    print(f"jesenska is up at {address} as process {process.pid}; it logs to {log}, kafka-server-stop stops it")
    # The broker continues to run when this process ends. The return code is set so that Python does not wait for the
    # broker.
    process.returncode = 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
