"""Python imports this at the start of each process on whose PYTHONPATH this directory is: `tests.repeat` puts it there
for all processes of tests that are held back."""

from tests.repeat.hold_back import install

install()
