"""Instructions that a broker executes for a request, counted by callgrind and compared with the table in
`bench/instructions.json`.

    python -m bench.instructions                        every case; about two minutes
    python -m bench.instructions --case heartbeat       one case; may be repeated
    python -m bench.instructions --list                 the names of the cases
    python -m bench.instructions --write                the counts become the table's

A count does not depend on how busy the machine is, or on how fast: two runs of one commit differ by less than half a
percent. So a case that has more than 3 % more instructions than in the table is a change of the code. It is reported,
and the exit code is 1. If the change is worth it, `--write` renews the table, in the commit that makes the change.

Only the work of the processes is counted, not that of the kernel: system calls count as nothing, so a change that
saves some of them needs a benchmark that takes the time. The cases are in `bench/counted_requests.py`; `start` is
`jesenska up` on an empty directory until clients can connect (`bench/counted_start.py`), with the number of modules
that are imported then.

Counts belong to an interpreter: its version, its compiler, and whether it was configured with --enable-optimizations.
The table has a row of counts for each interpreter that was written. For another one, write the counts of the commit to
compare with: check it out, set it up on that Python (`PYTHON=... script/setup test`), `--write` there, and copy the
table over. Compiled modules are built as `script/setup` builds them, without CFLAGS in the environment: gcc's -O1
gives other counts than its -O2.

Needs valgrind, on Linux."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TextIO

from tests.compiled_modules import changed_after_it_was_compiled

from bench.counted_requests import CASES, SPANS
from bench.machine import end_in_order
from bench.needs import VALGRIND, refuse, require
from jesenska.base.source_only import request_path_is_compiled, source_is_asked_for

TABLE: Final = Path(__file__).with_suffix(".json")
#: A case may have at most this many times the instructions of the table.
BAR: Final = 1.03
START, MODULES = "start", "start: modules imported"
_PROGRAM: Final = "instructions"
_ROOT: Final = Path(__file__).parents[1]
#: The C library's function in `counted_requests.mark`.
_MARK: Final = "getppid"
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)$", re.MULTILINE)

#: The whole environment of the counted programs: its size changes addresses in memory.
_ENVIRONMENT: Final = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}

Counts = dict[str, int]


# --- the table ------------------------------------------------------------------------------------------------------


def interpreter() -> str:
    """The Python that runs this, as the table names it."""
    is_optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"{platform.python_version()}, {platform.python_compiler()}{', optimised' if is_optimised else ''}"


def read_table(path: Path) -> dict[str, Counts]:
    """The counts of each interpreter; empty if there is no table yet."""
    found: dict[str, Counts] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write_table(path: Path, python: str, counts: Counts) -> None:
    """The counts become those of this interpreter; its other cases and the other interpreters' stay as they are."""
    table = read_table(path)
    table[python] = in_order({**table.get(python, {}), **counts})
    path.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")


def in_order(counts: Mapping[str, int]) -> Counts:
    """The counts in the cases' order, without removed cases."""
    return {name: counts[name] for name in (START, MODULES, *CASES) if name in counts}


def no_row(python: str) -> str:
    return (
        f"the table has no counts for Python {python}: set up the commit that you compare with on this Python, "
        f"run python -m bench.instructions --write there, and copy {TABLE.name} here."
    )


def compared(before: Mapping[str, int], now: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """The table that is printed, and the names of the cases that are above the bar."""
    lines, above = ["| case | table | now | ratio |", "|---|---|---|---|"], []
    for name, value in now.items():
        known = before.get(name)
        ratio = value / known if known else None
        if ratio is not None and ratio > BAR:
            above.append(name)
        cells = [f"{known:,}" if known else "-", f"{value:,}", f"{ratio:.4f}" if ratio is not None else "-"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines, above


# --- counting -------------------------------------------------------------------------------------------------------


def _counted(place: Path, module: str, *arguments: str, reads: str = "") -> Iterator[str]:
    """Runs a module under callgrind, which writes into `place`; yields the lines that it prints, as it prints them.
    `reads` is its stdin."""
    valgrind = shutil.which("valgrind")
    assert valgrind is not None
    counting = [
        valgrind,
        "--tool=callgrind",
        f"--dump-before={_MARK}",
        "--dump-line=no",
        f"--callgrind-out-file={place}/out.%p",
    ]
    with (
        Path(place, "valgrind.txt").open("w+") as said,
        tempfile.TemporaryFile("w+", dir=place) as given,
        _started([*counting, *_python(module, *arguments)], given, reads, said) as process,
    ):
        try:
            assert process.stdout is not None
            yield from process.stdout
        except BaseException:
            process.terminate()
            raise
        if process.wait():
            said.seek(0)
            raise SystemExit(f"{_PROGRAM}: {module} failed under valgrind:\n{said.read()[-3000:]}")


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _started(command: Sequence[str], stdin: TextIO, reads: str, stderr: TextIO) -> subprocess.Popen[str]:
    stdin.write(reads)
    stdin.seek(0)
    return subprocess.Popen(
        command, cwd=_ROOT, env=_ENVIRONMENT, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def _write_bytecode(module: str, *arguments: str) -> None:
    """Runs a module once, so that Python has the bytecode of its imports: compiling them is not counted."""
    subprocess.run(
        _python(module, *arguments),
        cwd=_ROOT,
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def total_of(text: str) -> int:
    """The total count of one of callgrind's files."""
    found = _TOTAL.search(text)
    if found is None:
        raise SystemExit(
            f"{_PROGRAM}: callgrind has written a file without a total: this version of valgrind is not understood."
        )
    return int(found[1])


def per_request(totals: Sequence[int], requests: int) -> int:
    """Instructions a request, from the counts up to each mark of a case: the first is before everything, then spans of
    requests alternate with the parts between them."""
    assert len(totals) == 2 * SPANS, totals
    spans = totals[1::2]
    return round(median(spans) / requests)


def count_requests(names: Sequence[str], directory: str | None) -> Iterator[tuple[str, int]]:
    """Each case with its instructions a request, as soon as it is counted."""
    with tempfile.TemporaryDirectory(dir=directory) as given:
        place = Path(given)
        (place / "data").mkdir()
        words = ("bench.counted_requests", str(place / "data"), "1")
        _write_bytecode(*words)
        for line in _counted(place, *words, reads="".join(f"{name}\n" for name in names)):
            told: dict[str, Any] = json.loads(line)
            files = sorted(place.glob(f"out.{told['process']}.*"), key=lambda path: int(path.suffix[1:]))
            totals = [total_of(path.read_text()) for path in files]
            yield told["case"], per_request(totals, told["requests"])


def count_start(directory: str | None) -> Counts:
    """Instructions and modules of a start."""
    with tempfile.TemporaryDirectory(dir=directory) as given:
        place = Path(given)
        _write_bytecode("bench.counted_start", str(place / "first"))
        (modules,) = _counted(place, "bench.counted_start", str(place / "data"))
        return {START: sum(total_of(path.read_text()) for path in place.glob("out.*")), MODULES: int(modules)}


# --- the command ----------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=_PROGRAM, description="Counts a broker's instructions and compares them with the table."
    )
    made.add_argument(
        "--case", action="append", choices=[START, *CASES], metavar="NAME", help="only this case; may be repeated"
    )
    made.add_argument("--list", action="store_true", help="print the names of the cases and end")
    made.add_argument("--write", action="store_true", help="write the counts into the table")
    made.add_argument("--dir", help="where to keep the brokers' data while it runs")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    end_in_order()
    if options.list:
        print("\n".join((START, *CASES)))
        return 0
    require(_PROGRAM, [VALGRIND])
    if (reason := not_to_be_counted()) is not None:
        refuse(_PROGRAM, reason)
    python = interpreter()
    known = read_table(TABLE).get(python)
    if known is None and not options.write:
        refuse(_PROGRAM, no_row(python))
    wanted = dict.fromkeys(options.case or (START, *CASES))
    counts: Counts = {}
    if wanted.pop(START, START) is None:
        counts |= count_start(options.dir)
    for name, value in count_requests(list(wanted), options.dir) if wanted else ():
        print(f"{name}: {value:,}", file=sys.stderr, flush=True)
        counts[name] = value
    return tell(python, known or {}, in_order(counts), write=options.write)


def not_to_be_counted() -> str | None:
    """The reason why counts of this set-up would be useless, in a sentence with the remedy; None without one."""
    if source_is_asked_for() or not request_path_is_compiled():
        return (
            "the request path is not compiled, and the table is of compiled code: run script/setup test, without "
            "JESENSKA_PURE."
        )
    if (changed := changed_after_it_was_compiled()) is not None:
        return f"{changed} was changed after it was compiled: run script/setup test."
    return None


def tell(python: str, known: Mapping[str, int], counts: Counts, *, write: bool) -> int:
    """Prints the comparison, and writes the table if `write`; returns the exit code."""
    lines, above = compared(known, counts)
    print("\n".join([f"Python {python}, instructions a request", "", *lines]))
    if write:
        write_table(TABLE, python, counts)
        return 0
    if new := [name for name in counts if name not in known]:
        print(f"{_PROGRAM}: not in the table yet: {', '.join(new)}; --write adds what was counted.", file=sys.stderr)
    for name in above:
        print(
            f"{_PROGRAM}: {name} takes {(counts[name] / known[name] - 1) * 100:.1f} % more than in the table: find "
            f"out why, or --write.",
            file=sys.stderr,
        )
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
