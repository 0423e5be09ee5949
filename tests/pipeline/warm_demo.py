"""The demo, in which another Python than its own starts Spark's workers.

`python -m tests.pipeline.warm_demo PYTHON`, and the demo's arguments."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from jesenska.pipeline import spark
from jesenska.pipeline.demo.__main__ import main

if __name__ == "__main__":
    vars(spark)["sys"] = SimpleNamespace(executable=sys.argv[1])
    sys.exit(main(sys.argv[2:]))
