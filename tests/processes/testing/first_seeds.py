"""The seed from which on each planted mistake is looked for: one that finds it.

Code that does more or less, or in another order, has a seed do something else, so that a mistake is found some seeds
later, and the tests take longer.

    python -m tests.processes.testing.first_seeds            which seeds find their mistake no more
    python -m tests.processes.testing.first_seeds --write    looks for others in their place"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes.testing.planted_in_children import KNOWN

_TABLE = Path(__file__).with_suffix(".json")
FIRST_SEEDS: Mapping[str, int] = json.loads(_TABLE.read_text(encoding="utf-8"))
#: Seeds that are tried from there on.
SEEDS = 150
#: The number of seeds that are tried if the earlier ones do not find the mistake.
_OTHER_SEEDS = 300
#: The exit code of a search whose seed fails for another reason than expected.
_OTHER_WORDS = 2


class Searches:
    """A process that searches for planted mistakes, one after the other. It is a context manager, which ends the
    process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.processes.testing.planted_in_children"]
        environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=Path(__file__).parents[3],
            env=environment,
        )

    def find(self, bug: str, first: int, seeds: int) -> tuple[int, str]:
        """Returns the exit code of the search (0: found), and its output. Raises RuntimeError if the process has
        ended."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        print(bug, first, seeds, file=asked, flush=True)
        printed = ""
        for line in answered:
            if line.startswith("exit "):
                return int(line.removeprefix("exit ")), printed
            printed += line
        raise RuntimeError(f"the search has ended: {printed}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _found(searches: Searches, name: str) -> tuple[int, str]:
    """The result of the search for the first seed that finds the mistake. If no seed finds it, the result of the last
    one."""
    first = 1
    while True:
        code, printed = searches.find(name, first, _OTHER_SEEDS)
        if code != _OTHER_WORDS:
            return code, printed
        first = _seed(printed) + 1


def _seed(printed: str) -> int:
    found = re.match(r"seed (\d+)", printed)
    assert found is not None, printed
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.processes.testing.first_seeds",
        description="Checks with which seeds planted mistakes are found.",
    )
    parser.add_argument(
        "--write", action="store_true", help="write other seeds in the place of those that find nothing"
    )
    writes = parser.parse_args().write
    table, missed = {}, 0
    with Searches() as searches:
        for name in (name for known in KNOWN for name in known.BUGS):
            table[name] = FIRST_SEEDS.get(name, 1)
            code, printed = searches.find(name, table[name], 1)
            if code == 0:
                continue
            missed += 1
            if writes:
                code, printed = _found(searches, name)
                table[name] = _seed(printed) if code == 0 else table[name]
            print(f"{name}: {printed.strip()}", flush=True)
    if writes:
        _TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print(f"{len(table) - missed} of {len(table)} are found by their seed.")
    return 0 if writes or not missed else 1


if __name__ == "__main__":
    sys.exit(main())
