"""A background that works on the test's request, so that a test decides the order of events while a disk is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ManualBackground:
    """Does its work on the test's request."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append((work, done))

    def run_one(self) -> None:
        work, done = self.jobs.pop(0)
        try:
            outcome = work()
        except Exception as error:
            outcome = error
        done(outcome)

    def run_all(self) -> None:
        while self.jobs:
            self.run_one()

    def run_work_first(self) -> None:
        """Runs all the work of a thread before any of its results arrive."""
        outcomes = []
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            try:
                outcomes.append((done, work()))
            except OSError as error:
                outcomes.append((done, error))
        for done, outcome in outcomes:
            done(outcome)
