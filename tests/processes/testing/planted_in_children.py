"""Deliberate mistakes, each in a child of one process that has loaded all modules before.

`JESENSKA_PURE=1 PYTHONHASHSEED=0 python -m tests.processes.testing.planted_in_children` reads lines `NAME FIRST
SEEDS`: a mistake of one of the modules below, and the seeds that are tried. It answers each with the output of the
search, and then a line `exit CODE`."""

from __future__ import annotations

import logging
import os
import sys
import traceback

from jesenska.testing.simulation.schedule import simulation
from tests.processes.testing import (
    planted_access_bugs,
    planted_bugs,
    planted_cluster_bugs,
    planted_micro_batch_bugs,
    planted_move_bugs,
    planted_transaction_bugs,
)
from tests.processes.testing.planted_search import failure_of

KNOWN = (
    planted_bugs,
    planted_cluster_bugs,
    planted_transaction_bugs,
    planted_micro_batch_bugs,
    planted_access_bugs,
    planted_move_bugs,
)


def main() -> int:
    logging.disable(logging.CRITICAL)
    # Without a mistake nothing is found.
    assert failure_of(simulation(1)) is None, "the broker has a mistake already"
    for line in sys.stdin:
        name, first, seeds = line.split()
        search = next(known.search for known in KNOWN if name in known.BUGS)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = search(name, int(first), int(seeds))
            except BaseException:
                print(traceback.format_exc())
            finally:
                sys.stdout.flush()
                os._exit(code)
        print(f"exit {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
