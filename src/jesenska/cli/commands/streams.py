"""`jesenska streams`: runs a program of the Streams API on Spark, or shows its topology.

    jesenska streams run app.py                          until Ctrl-C; the settings are those of the program
    jesenska streams run app.py --once                   ends when all present records are processed
    jesenska streams run app.py --property commit.interval.ms=100 --bootstrap-server localhost:9092
    jesenska streams describe app.py                     Topology.describe(): needs neither Spark nor a broker
    jesenska streams explain app.py                      how each sub-topology runs, and why

A program is a Python file with a variable `topology`. Its value is a Topology, a StreamsBuilder or a function that
returns one of them. The file may also have `config`, a dict of settings. `app.py:name` uses another name than
`topology`. Settings of the command line override the file of --command-config, which overrides the program's `config`.

    exit 0    the program was stopped by a signal, or with --once has processed all records
         1    the program cannot run, or has ended with an error: one sentence on stderr"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError
from jesenska.cli.commands.streams_program import StreamsProgram, load
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tool import add_bootstrap, add_output, print_json, properties_of, read_properties

if TYPE_CHECKING:
    from jesenska.pipeline.streams_on_spark import KafkaStreams
    from jesenska.pipeline.streams_on_spark.kafka_streams import State

_LOOK_SECONDS = 0.2


def add_streams(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(
        dest="streams_command", metavar="COMMAND", required=True, parser_class=type(parser)
    )
    _add(commands, "run", "Run a program of the Streams API on Spark.", _run)
    _add(commands, "describe", "Show its topology, as Topology.describe() does.", _describe)
    _add(commands, "explain", "Show how each part of it runs, and why.", _explain)


def streams(options: argparse.Namespace) -> int:
    """Runs a subcommand of `jesenska streams`, and returns its exit code."""
    code: int = options.streams_work(options)
    return code


def _add(commands: Any, name: str, what: str, work: Callable[[argparse.Namespace], int]) -> None:
    command: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
    command.set_defaults(streams_work=work)
    command.add_argument(
        "program", metavar="APP.PY[:NAME]", help="The program, and the name in it if that is not topology."
    )
    add_output(command)
    if name == "describe":
        return
    add_bootstrap(command)
    command.add_argument("--application-id", metavar="ID", help="application.id.")
    command.add_argument("--state-dir", metavar="DIR", help="state.dir: where checkpoints and state are kept.")
    command.add_argument(
        "--property", action="append", metavar="NAME=VALUE", help="A setting; may be given several times."
    )
    command.add_argument("--master", default="local[2]", metavar="MASTER", help="Spark's master (default: local[2]).")
    if name == "run":
        command.add_argument("--once", action="store_true", help="Process what the topics have now, then end.")


def _describe(options: argparse.Namespace) -> int:
    described = load(options.program).topology.describe()
    if options.output == "json":
        print_json({"topology": described})
    else:
        print(described, end="")
    return 0


def _explain(options: argparse.Namespace) -> int:
    with _application(options, load(options.program)) as application:
        explained = application.explain()
    if options.output == "json":
        print_json({"explained": explained})
    else:
        print(explained, end="")
    return 0


def _run(options: argparse.Namespace) -> int:
    stopped = threading.Event()
    program = load(options.program)
    application = _application(options, program)
    name = application.config.application_id

    def tell(new: State, old: State) -> None:
        if options.output == "json":
            print_json({"application": name, "state": new.name, "was": old.name})
            sys.stdout.flush()

    application.set_state_listener(tell)
    # Spark sets its own signal handlers when it starts. So the handlers of this command are set after Spark has
    # started.
    for number in heeded_signals():
        signal.signal(number, lambda *_: stopped.set())
    try:
        with application:
            if options.once:
                application.process_available()
                return 0
            application.start()
            print(f"jesenska: the application {name} runs; Ctrl-C ends it.", file=sys.stderr, flush=True)
            while not stopped.is_set() and not application.wait(_LOOK_SECONDS):
                pass
    except OSError as error:
        from jesenska.pipeline.streams_on_spark.queries.full_disks import of_a_full_disk

        if (full := of_a_full_disk(str(error), Path(application.config["state.dir"]))) is not None:
            raise full from error
        raise
    return 0


def _application(options: argparse.Namespace, program: StreamsProgram) -> KafkaStreams:
    """Returns the Streams application with its settings and a Spark session."""
    given = {
        "bootstrap.servers": options.bootstrap_server,
        "application.id": options.application_id,
        "state.dir": options.state_dir,
    }
    said = {name: value for name, value in given.items() if value is not None}
    try:
        from jesenska.pipeline.spark.session import SHORT_RUN, session
        from jesenska.pipeline.streams.settings import StreamsConfig
        from jesenska.pipeline.streams_on_spark import KafkaStreams

        config = StreamsConfig(
            {**program.config, **read_properties(options.command_config), **properties_of(options.property), **said}
        )
        KafkaStreams(program.topology, config)  # reports what is missing before Spark is started
        log = Path(config["state.dir"]).absolute() / f"{config.application_id}.spark.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        print(f"jesenska: starting Spark; what it says goes to {log}.", file=sys.stderr, flush=True)
        spark = session(config.application_id, options.master, SHORT_RUN, log=log)
    except ImportError as error:
        raise JesenskaError(f'{error.name} is not installed: pip install "jesenska[spark,streams]".') from error
    return KafkaStreams(program.topology, config, spark=spark)
