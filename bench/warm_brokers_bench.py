"""How long a test waits for a broker: started as a process of its own, and forked from a warm template (the first, and
those after it).

python -m bench.warm_brokers_bench [--rounds 20]"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from jesenska.testing import BrokerProcess


def ready_ms(data: Path, *, warm: bool) -> float:
    began = time.perf_counter()
    broker = BrokerProcess(data, warm=warm).start()
    took = (time.perf_counter() - began) * 1000
    broker.stop()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.warm_brokers_bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="Brokers of each kind (default: 20).")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        cold = [ready_ms(root / f"cold-{number}", warm=False) for number in range(options.rounds)]
        first = ready_ms(root / "first", warm=True)
        warm = [ready_ms(root / f"warm-{number}", warm=True) for number in range(options.rounds)]
    print(f"a process of its own       p50 {statistics.median(cold):6.0f} ms, max {max(cold):6.0f} ms")
    print(f"the first warm one             {first:6.0f} ms")
    print(f"every later one            p50 {statistics.median(warm):6.0f} ms, max {max(warm):6.0f} ms")


if __name__ == "__main__":
    main()
