"""zookeeper-server-start with cProfile at hand, as `profiled` has it."""

from __future__ import annotations

import signal
import sys

from jesenska.cli.zookeeper_server_start import main

from bench.profiled import turn

if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, turn)
    sys.exit(main())
