"""Finds tests that fail now and then, by running them many times:

    python -m tests.repeat tests/units/log tests/units/net/test_channel.py --times 50 --hold-back
    python -m tests.repeat tests/units/log/test_files.py::test_a --times 1 --hold-back --seed 17  one run once more

A path is a directory, a file or a test's node id. Each file is a run of its own, with the seed of the first run and
one more for each that follows. `--hold-back` disturbs timing by that seed (`tests/repeat/hold_back.py` says how), at a
low priority beside processes that compute. For each test that failed: how often, what was said the first time, and the
command that runs it once more with that seed. Times are never the same twice, so that may take more than one attempt.
Ctrl-C ends the runs and tells what came of those that had ended.

Exit code: 0 if all passed, 1 if any failed, 2 if there is nothing to run, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.repeat import hold_back
from tests.repeat.runs import ROOT, HeldBack, Repeater, Test


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.repeat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="directory, file or node id of tests")
    parser.add_argument("--times", type=_at_least_one, default=50, help="how often each runs (default: 50)")
    parser.add_argument("--hold-back", action="store_true", help="disturb timing")
    parser.add_argument(
        "--longest",
        type=float,
        default=hold_back.LONGEST_S,
        metavar="SECONDS",
        help="of a pause (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, help="of the first run (default: any)")
    parser.add_argument(
        "--at-a-time",
        type=_at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="processes (default: one more than processors)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="a run that takes longer is ended and has failed (default: 900)",
    )
    options = parser.parse_args(arguments)
    try:
        targets = [target for path in options.paths for target in _targets(path)]
    except FileNotFoundError as error:
        print(f"There are no tests at {error}: name directories, files or node ids of tests.", file=sys.stderr)
        return 2
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="repeat-") as directory:
        repeater = Repeater(
            targets,
            times=options.times,
            seed=seed,
            at_a_time=options.at_a_time,
            limit_s=options.limit,
            held_back=HeldBack(options.longest) if options.hold_back else None,
            directory=Path(directory),
        )
        signal.signal(signal.SIGTERM, _interrupted)
        is_interrupted = False
        try:
            repeater.run()
        except KeyboardInterrupt:
            is_interrupted = True
    how = f" --hold-back --longest {options.longest:g}" if options.hold_back else ""
    failed = {name: test for name, test in repeater.tests.items() if test.failed}
    for name, test in failed.items():
        print(
            f"----- {name}\nfailed {test.failed} of {test.times} times, first with seed "
            f"{test.seed}:\n{_indented(test.first)}"
        )
        print(f"python -m tests.repeat {shlex.quote(name)} --times 1 --seed {test.seed}{how}\n")
    for name, test in failed.items():
        print(f"{name}: failed {test.failed} of {test.times} times, first with seed {test.seed}")
    held_back = f", {repeater.processes} processes held back" if options.hold_back else ""
    print(
        f"{_counted(repeater.tests)}, seeds {seed} to {seed + options.times - 1}{held_back}: {len(failed) or 'none'} "
        f"failed"
    )
    if is_interrupted:
        print(
            f"Interrupted: {repeater.left_out} of {repeater.count} runs were ended or have not begun.", file=sys.stderr
        )
        return 130
    return 1 if failed else 0


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return int(text)


def _targets(path: str) -> list[str]:
    """The files of a directory; a file or a node id itself. FileNotFoundError if there is none."""
    file = ROOT / path.partition("::")[0]
    found = (
        sorted(
            str(found.relative_to(ROOT) if found.is_relative_to(ROOT) else found) for found in file.rglob("test_*.py")
        )
        if file.is_dir()
        else [path]
    )
    if not file.exists() or not found:
        raise FileNotFoundError(path)
    return found


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _counted(tests: dict[str, Test]) -> str:
    skipped = sum(not test.times for test in tests.values())
    return f"{len(tests) - skipped} tests" + (f" ({skipped} more were skipped)" if skipped else "")


if __name__ == "__main__":
    sys.exit(main())
