"""zookeeper-server-start with cProfile at hand, as `profiled` has it."""

from __future__ import annotations

import signal
import sys

from bench.profiled import turn
from jesenska.cli.zookeeper.zookeeper_server_start import main

if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, turn)
    sys.exit(main())
