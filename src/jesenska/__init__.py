"""jesenska: Apache Kafka's system in Python, with its data pipeline on Spark."""

import os
import sys

__version__ = "0.1.0"

if sys.platform == "win32":
    raise SystemExit("jesenska runs on Linux and macOS; on Windows use it inside WSL, where it works as on Linux.")

if os.environ.get("JESENSKA_PURE", "") not in ("", "0"):
    from jesenska.base.source_only import use_source_only

    use_source_only()
