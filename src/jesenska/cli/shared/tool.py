"""The common parts of all tools: flags in Kafka's spelling, one sentence for an error, the exit code, the connection
to a cluster.

    exit 0   done
         1   failed, or wrong flags (as Kafka's tools end): one sentence on stderr
       130   stopped by Ctrl-C

`--debug` shows the stack of an error. Kafka's own spellings of flags are kept; if two releases differ, both are
accepted. The modules of the client are imported when a tool connects to a cluster, so that a tool that only starts
servers uses little memory."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import errno
import json
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from jesenska import __version__
from jesenska.base.clock import SystemClock
from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError
from jesenska.base.system_errors import cause_of, is_out_of_descriptors, remedy_of
from jesenska.config.properties import PropertiesError, parse_properties
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.config.table import Table

if TYPE_CHECKING:
    from jesenska.client.cluster import Cluster

#: The packages that every installation needs. The keys are the modules that the packages provide.
_NEEDED_PACKAGES = {
    "google_crc32c": "google-crc32c",
    "cramjam": "cramjam",
    "lz4": "lz4",
    "zstandard": "zstandard",
    "re2": "google-re2",
    "sortedcontainers": "sortedcontainers",
}

FAILED, INTERRUPTED = 1, 130
#: If a tool waits for longer than this many seconds, it prints the reason, and prints the reason again at this
#: interval.
QUIET_SECONDS = 2.0


class Parser(argparse.ArgumentParser):
    """A parser of flags. It does not accept abbreviated flags. If the flags are wrong, it prints one sentence, and how
    to list the options."""

    #: True if the tool can be called without arguments. If False, the tool then prints its options and fails.
    runs_without_arguments = False

    def __init__(self, name: str, description: str) -> None:
        super().__init__(prog=name, description=description, allow_abbrev=False, formatter_class=_Wide)
        release = f"jesenska {__version__}" if name == "jesenska" else f"{name} of jesenska {__version__}"
        self.add_argument("--version", action="version", version=release, help="Display the release and exit.")
        self.add_argument("--debug", action="store_true", help="Show the stack behind an error.")

    def error(self, message: str) -> NoReturn:
        _refuse(self, message)


class Command(argparse.ArgumentParser):
    """The parser of one command of a tool that has several commands. Errors are printed as `Parser` prints them. The
    --help of a command lists the options of the command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses arguments, and refuses unknown arguments. Without this check, argparse would pass unknown arguments
        to the tool's parser, whose --help does not list the command's options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        _refuse(self, message)


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    print(
        f"{parser.prog}: {message.removesuffix('.')}{_near_miss(parser, message)}; {parser.prog} --help lists the "
        f"options.",
        file=sys.stderr,
    )
    raise SystemExit(FAILED)


def _near_miss(parser: argparse.ArgumentParser, message: str) -> str:
    """Returns a hint with the most similar flag if the message is about an unknown flag. Returns an empty text for
    other messages, or if no flag is similar."""
    _, found, given = message.partition("unrecognized arguments: ")
    wrong = given.split()[0].partition("=")[0] if found and given else ""
    options = {
        word for action in _actions(parser) if action.help != argparse.SUPPRESS for word in action.option_strings
    }
    near = difflib.get_close_matches(wrong, options, 1, 0.75) if wrong.startswith("-") else []
    return f" (did you mean {near[0]}?)" if near else ""


def meant(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the known name that is most similar to `name`. The hint is written after an unknown name in
    a message. Returns an empty text if no name is similar."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, 0.75) or [item for item in names if item.startswith(name + ".")]
    return f" (did you mean {near[0]}?)" if near else ""


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields the arguments (argparse's actions) of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=120)


def run(parser: Parser, arguments: Sequence[str] | None, work: Callable[[argparse.Namespace], int | None]) -> int:
    """Parses the arguments, calls `work` and returns the exit code. A tool that is called without arguments prints its
    options and fails, as Kafka's tools do."""
    _open_what_is_closed()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given and not parser.runs_without_arguments:
        parser.print_help(sys.stderr)
        return FAILED
    debug = False
    try:
        try:
            options = parser.parse_args(given)
            debug = options.debug
            code = work(options) or 0
        except SystemExit:
            sys.stdout.flush()
            raise
        # Buffered output is written here, so that a failure is reported as an error of the tool. Otherwise the
        # interpreter would print the failure when it ends.
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The program that reads the tool's output has ended.
        _drop_output()
        return 0
    except ModuleNotFoundError as error:
        if debug or error.name not in _NEEDED_PACKAGES:
            raise
        _drop_output()
        print(
            f"{parser.prog}: The package {_NEEDED_PACKAGES[error.name]} is not installed: install jesenska, or, for a "
            f"source tree, pip install {' '.join(_NEEDED_PACKAGES.values())}.",
            file=sys.stderr,
        )
        return FAILED
    except (JesenskaError, PropertiesError) as error:
        if debug:
            raise
        _drop_output()
        print(f"{parser.prog}: {sentence(error)}{_remedy_of_refusal(error)}", file=sys.stderr)
        return FAILED
    except OSError as error:
        if debug:
            raise
        _drop_output()
        print(f"{parser.prog}: {sentence_of_system(error)}", file=sys.stderr)
        return FAILED


def _drop_output() -> None:
    """Discards output that cannot be written. Otherwise the interpreter would try again to write it when it ends, and
    would print an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_what_is_closed() -> None:
    """Replaces standard streams that the shell has closed (`<&-`, `>&-`). Standard input becomes empty; output is
    discarded."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def sentence_of_system(error: OSError) -> str:
    """Returns an error of the operating system as one sentence."""
    if error.errno == errno.ENOSPC:
        return f"The disk is full{f' ({error.filename})' if error.filename else ''}: make room on it, then try again."
    if is_out_of_descriptors(error):
        return f"{error.filename or 'A file or a connection'} cannot be opened ({cause_of(error)}): {remedy_of(error)}."
    return f"{error.filename or 'A system call'}: {error.strerror or error}."


def run_async(
    parser: Parser, arguments: Sequence[str] | None, work: Callable[[argparse.Namespace], Awaitable[int | None]]
) -> int:
    """Works like `run`, for work that is a coroutine."""

    async def main(options: argparse.Namespace) -> int | None:
        return await work(options)

    return run(parser, arguments, lambda options: asyncio.run(main(options)))


def sentence(error: BaseException) -> str:
    """Returns the error's text as one sentence with a full stop."""
    text = str(error).strip() or type(error).__name__
    return text if text[-1] in ".!?:" else text + "."


#: The resource of each refusal, with the flag of kafka-acls that names it.
_RESOURCES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("topic", "--topic NAME"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("group", "--group NAME"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ("cluster", "--cluster"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("transactional id", "--transactional-id ID"),
}


def _remedy_of_refusal(error: BaseException) -> str:
    """Returns the sentence that follows an error of a user without the right, or an empty text for other errors."""
    if not isinstance(error, KafkaError) or error.code not in _RESOURCES or "kafka-acls" in str(error):
        return ""
    resource, flag = _RESOURCES[error.code]
    return f" The user lacks a right to the {resource}: an administrator adds it with kafka-acls --add {flag}."


# --- the connection --------------------------------------------------------------------------------------------------


def add_bootstrap(parser: argparse.ArgumentParser, *, old_name: str | None = None) -> None:
    """Adds the flags that name the cluster: `--bootstrap-server`, the older name of this flag if the tool had one, and
    `--command-config`."""
    names = ["--bootstrap-server", *([old_name] if old_name else [])]
    parser.add_argument(
        *names, dest="bootstrap_server", metavar="HOST:PORT[,...]", help="The Kafka server to connect to."
    )
    parser.add_argument(
        "--command-config", metavar="FILE", help="Property file containing configs to be passed to the client."
    )


def seconds(text: str) -> float:
    """Parses the value of a flag for a waiting time in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time to wait: write a number of seconds above 0")
    return value


def id_of_broker(text: str) -> int:
    """Parses the value of a flag for a broker's id."""
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise argparse.ArgumentTypeError(f"{text!r} is not a broker's id: write a number from 0 on")
    return int(text)


def directory(text: str) -> str:
    """Parses the value of a flag for a directory. An empty value is an error: it may come from a shell variable that
    is not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no directory: write its path")
    return text


def read_properties(path: str | None) -> dict[str, str]:
    """Returns the settings in a property file. Returns an empty dict if `path` is None."""
    if path is None:
        return {}
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as error:
        remedy = remedy_of(error) if is_out_of_descriptors(error) else "name one that exists"
        raise JesenskaError(f"The file {path} cannot be read ({error.strerror}): {remedy}.") from error
    except PropertiesError as error:
        raise JesenskaError(f"The file {path} is not in the format of a property file: {error}") from error


def properties_of(items: Sequence[str] | None) -> dict[str, str]:
    """Returns the settings that are given as name=value. Raises JesenskaError for text without this form."""
    found = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise JesenskaError(f"{item!r} is not a setting: write name=value.")
        found[name.strip()] = value
    return found


def client_settings(parser: argparse.ArgumentParser, table: Table, texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns the typed values of a client's settings, including defaults. Unknown settings and settings without
    effect are printed on stderr. Raises InvalidConfigError for a value that is not valid."""
    for unknown in table.unknown(texts):
        print(f"{parser.prog}: {unknown}", file=sys.stderr)
    for setting in table.without_effect(texts):
        print(f"{parser.prog}: {setting.name} has no effect yet: {setting.reason}", file=sys.stderr)
    return {setting.name: setting.default for setting in table} | table.parse(
        {name: text for name, text in texts.items() if name in table}
    )


@contextlib.asynccontextmanager
async def cluster_of(
    options: argparse.Namespace, settings: dict[str, str] | None = None, table: Table = ADMIN_SETTINGS
) -> AsyncIterator[Cluster]:
    """Connects to the cluster, and closes the connections at the end of the `with` block. The cluster is named by the
    flags or, without these flags, by `bootstrap.servers` in the settings. `table` is the table of the settings."""
    from jesenska.cli.shared.zookeeper_option import brokers_in
    from jesenska.client.client_config import client_config
    from jesenska.client.cluster import Cluster

    settings = read_properties(getattr(options, "command_config", None)) | (settings or {})
    bootstrap, zookeeper = options.bootstrap_server, getattr(options, "zookeeper", None)
    if bootstrap and zookeeper:
        raise JesenskaError("--bootstrap-server and --zookeeper were both given: give only one of them.")
    if not bootstrap:
        if zookeeper:
            async with telling("Waiting for ZooKeeper"):
                bootstrap = await brokers_in(zookeeper)
        else:
            bootstrap = settings.get("bootstrap.servers")
    if not bootstrap:
        raise JesenskaError("No broker is named: give --bootstrap-server host:port, for example 127.0.0.1:9092.")
    cluster = Cluster(bootstrap, client_config(table, settings))
    try:
        yield cluster
    finally:
        await cluster.close()


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--output json`. Every tool that prints results has it in addition to Kafka's flags."""
    parser.add_argument(
        "--output",
        choices=["text", "json"],
        default="text",
        help="How to answer: as Kafka's tool does, or as JSON (default: text).",
    )


def add_commands(parser: Parser) -> Callable[[str, str, Callable[..., Awaitable[Any]]], argparse.ArgumentParser]:
    """Returns a function that adds a command to a tool with several commands. The function's arguments are the
    command's name, a sentence about the command, and the function that is stored as `options.work`."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Command)

    def add(name: str, what: str, work: Callable[..., Awaitable[Any]]) -> argparse.ArgumentParser:
        command: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
        command.set_defaults(work=work)
        return command

    return add


def require_bootstrap(parser: Parser, options: argparse.Namespace) -> None:
    """Ends the tool with an error if neither --bootstrap-server nor a file of settings is given."""
    if options.bootstrap_server is None and getattr(options, "command_config", None) is None:
        parser.error("the following arguments are required: --bootstrap-server")


@contextlib.asynccontextmanager
async def telling(what: str) -> AsyncIterator[None]:
    """Prints on stderr what the tool waits for, while the block runs: after two seconds and then every two seconds."""

    async def tell() -> None:
        waited = 0.0
        while True:
            await asyncio.sleep(QUIET_SECONDS)
            waited += QUIET_SECONDS
            print(f"{what} ({waited:.0f} s so far)", file=sys.stderr, flush=True)

    task = asyncio.get_running_loop().create_task(tell())
    try:
        yield
    finally:
        task.cancel()


class Telling:
    """Prints the current step on stderr: first after two seconds, and then every two seconds."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._printed_at = self._clock.monotonic()

    def tell(self, text: str) -> None:
        now = self._clock.monotonic()
        if now - self._printed_at >= QUIET_SECONDS:
            self._printed_at = now
            print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Prints one JSON document on stdout, for `--output json`."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
