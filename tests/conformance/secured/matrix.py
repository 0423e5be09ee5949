"""Runs cells at brokers and compares the outcomes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.conformance.secured.cells import CLIENTS, Cell
from tests.conformance.secured.known import reason_for
from tests.conformance.secured.place import KAFKA, Files, Place, running
from tests.conformance.secured.programs import Outcome, run
from tests.processes.broker.kdc import Kdc

SIDES: Final = ("ours", KAFKA)
#: So many clients at a time.
_SIDE_BY_SIDE: Final = 2
Outcomes = Mapping[Cell, Outcome]


class Difference(NamedTuple):
    """A cell of which the two brokers differ."""

    cell: Cell
    ours: Outcome
    theirs: Outcome


@contextmanager
def files_for(cells: Iterable[Cell], directory: Path) -> Iterator[Files]:
    """The files of a set of cells, with a Kerberos server if one of them needs it."""
    with ExitStack() as stack:
        kdc = None
        if any(cell.login == "GSSAPI" for cell in cells):
            made = directory / "kdc"
            made.mkdir()
            kdc = stack.enter_context(Kdc(made))
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in kdc.environment.items():
                patch.setenv(name, value)
        yield Files(directory, kdc)


def outcomes(release: str, cells: Sequence[Cell], files: Files) -> Outcomes:
    """The outcome of each cell at a broker: "ours", or a release of Apache Kafka."""
    found: dict[Cell, Outcome] = {}
    with running(release, files) as place, ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        place.prepare(cells)
        by_client = [[cell for cell in cells if cell.client == client] for client in CLIENTS]
        runs = [threads.submit(_run, own, place) for own in by_client if own]
        for one in runs:
            found |= one.result()
    return found


def _run(cells: Sequence[Cell], place: Place) -> dict[Cell, Outcome]:
    """The outcomes of one client's cells."""
    return dict(run(cells[0].client, cells, place))


def compare(ours: Outcomes, theirs: Outcomes) -> list[Difference]:
    """The cells whose outcomes differ in a way that `known.py` does not explain."""
    return [
        Difference(cell, found, theirs[cell])
        for cell, found in ours.items()
        if found.steps != theirs[cell].steps and reason_for(cell, found.steps, theirs[cell].steps) is None
    ]


def both(cells: Sequence[Cell]) -> tuple[Outcomes, Outcomes]:
    """The outcomes at this broker and at Apache Kafka, which run side by side."""
    with (
        tempfile.TemporaryDirectory(prefix="secured-") as name,
        files_for(cells, Path(name)) as files,
        ThreadPoolExecutor(len(SIDES)) as threads,
    ):
        ours, theirs = threads.map(lambda side: outcomes(side, cells, files), SIDES)
        return ours, theirs
