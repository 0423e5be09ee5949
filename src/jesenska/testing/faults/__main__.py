"""The command `python -m jesenska.testing.faults`: finds violations in histories. Its exit codes:

exit 0   no finding
     1   findings, one per line on stdout
     2   a history cannot be read, or the flags are wrong: one sentence on stderr
   130   stopped by Ctrl-C"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from jesenska.testing.faults.checkers import CHECKERS, check
from jesenska.testing.faults.history import HistoryError, read_history

_PROGRAM = "python -m jesenska.testing.faults"
_FOUND, _UNREADABLE, _INTERRUPTED = 1, 2, 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="Judges what clients of a Kafka cluster did and saw.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser(
        "check",
        help="Look for what must not be.",
        description="Looks for what must not be in histories.",
        allow_abbrev=False,
    )
    checking.add_argument("histories", nargs="+", metavar="HISTORY.jsonl", help="Files of one history, in any order.")
    checking.add_argument("--output", choices=["text", "json"], default="text", help="How to answer (default: text).")
    checking.add_argument(
        "--kind",
        action="append",
        choices=list(CHECKERS),
        metavar="KIND",
        help=f"Look for this only; may be repeated: {', '.join(CHECKERS)}.",
    )
    checking.add_argument(
        "--trimmed",
        action="store_true",
        help="The topics have a retention: what is below their first offset is not lost.",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        history = read_history(options.histories)
        found = check(history, trimmed=options.trimmed, kinds=options.kind or CHECKERS)
    except HistoryError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return _UNREADABLE
    except KeyboardInterrupt:
        return _INTERRUPTED
    try:
        if options.output == "json":
            print(
                json.dumps(
                    {"operations": len(history), "findings": [asdict(finding) for finding in found]},
                    ensure_ascii=False,
                    separators=(",", ":"),
                )
            )
        else:
            for finding in found:
                print(finding)
            print(f"{len(history)} operations, {len(found)} findings", file=sys.stderr)
        sys.stdout.flush()
    except BrokenPipeError:
        # The program that reads the output has ended. So that Python can flush its output at the end, it is sent to
        # /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
