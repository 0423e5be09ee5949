"""What is measured: jesenska beside its rivals, in one run on one machine. Each module says how it is run; what came
out stands in RESULTS.md."""

import os

# The processes that are started find their modules compiled to bytecode, as pip leaves those that it installs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
