"""The benchmarks: jesenska beside its rivals, in one run on one machine. Each module says how it is run; the results
are in RESULTS.md."""

import os

# Started processes find their modules compiled to bytecode, as pip leaves installed ones.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
