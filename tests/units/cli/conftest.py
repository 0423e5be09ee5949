"""Tools that run in this process and need no broker."""

from tests.processes.cli.conftest import tool

__all__ = ["tool"]
