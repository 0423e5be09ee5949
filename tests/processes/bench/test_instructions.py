"""Numbers of instructions are compared with a table. The counted work also runs without valgrind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import instructions
from bench.counted_requests import CASES
from bench.instructions import (
    MODULES,
    START,
    compared,
    main,
    no_row,
    per_request,
    read_table,
    tell,
    total_of,
    write_table,
)

from jesenska.base.source_only import source_is_asked_for

_ROOT = Path(__file__).parents[3]
_PYTHON = "3.11.2, GCC 12.2.0"


def test_a_case_above_the_bar_is_told_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"heartbeat": 100_000, "transaction": 1_000_000}
    assert tell(_PYTHON, known, {"heartbeat": 103_100, "transaction": 1_030_000}, write=False) == 1
    printed, said = capsys.readouterr()
    assert "| heartbeat | 100,000 | 103,100 | 1.0310 |" in printed
    assert said.splitlines() == [
        "instructions: heartbeat takes 3.1 % more than in the table: find out why, or --write."
    ]


def test_within_the_bar_or_below_the_table_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        tell(
            _PYTHON,
            {"heartbeat": 100_000, "transaction": 1_000_000},
            {"heartbeat": 102_900, "transaction": 700_000},
            write=False,
        )
        == 0
    )
    assert capsys.readouterr().err == ""


def test_a_case_that_the_table_does_not_have_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(_PYTHON, {"heartbeat": 100_000}, {"heartbeat": 100_000, "transaction": 5}, write=False) == 0
    printed, said = capsys.readouterr()
    assert "| transaction | - | 5 | - |" in printed
    assert "not in the table yet: transaction" in said


def test_writing_renews_what_was_counted_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table.json"
    monkeypatch.setattr(instructions, "TABLE", table)
    write_table(table, "3.13.0, GCC 12.2.0", {"heartbeat": 7})
    write_table(table, _PYTHON, {"transaction": 9, "heartbeat": 8, "a case of before": 1})
    assert tell(_PYTHON, {"heartbeat": 8}, {"heartbeat": 80, START: 5}, write=True) == 0
    assert read_table(table) == {
        _PYTHON: {START: 5, "heartbeat": 80, "transaction": 9},
        "3.13.0, GCC 12.2.0": {"heartbeat": 7},
    }
    # In the order of the cases, whatever was written first: a renewed count is one changed line.
    assert list(read_table(table)[_PYTHON]) == [START, "heartbeat", "transaction"]


def test_the_table_has_every_case_of_each_python() -> None:
    table = read_table(instructions.TABLE)
    assert table
    for python, counts in table.items():
        assert list(counts) == [START, MODULES, *CASES], python
        assert all(isinstance(value, int) and value > 0 for value in counts.values()), python


def test_a_python_that_the_table_does_not_know_is_refused_before_anything_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instructions, "interpreter", lambda: "3.99.0, a compiler")
    monkeypatch.setattr(instructions, "require", lambda program, needs: None)
    monkeypatch.setattr(instructions, "not_to_be_counted", lambda: None)
    monkeypatch.setattr(instructions, "count_requests", pytest.fail)
    monkeypatch.setattr(instructions, "end_in_order", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main(["--case", "heartbeat"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"instructions: {no_row('3.99.0, a compiler')}\n"


def test_without_valgrind_it_ends_at_once_and_says_how_it_comes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.instructions"],
        cwd=_ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "instructions: valgrind is not on the PATH: install it (apt-get install valgrind).\n"


def test_a_span_is_what_was_counted_between_its_two_marks() -> None:
    assert per_request([9_000, 100, 50, 130, 60, 120], 10) == 12


def test_a_total_is_read_from_what_callgrind_writes() -> None:
    assert total_of("events: Ir\nfn=(1) f\n0 4\n\ntotals: 1234\n") == 1234


def test_a_ratio_is_of_this_over_the_table() -> None:
    lines, above = compared({"heartbeat": 200}, {"heartbeat": 100})
    assert lines[-1] == "| heartbeat | 200 | 100 | 0.5000 |"
    assert above == []


def test_every_case_runs_with_answers_that_have_no_error_in_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.counted_requests", str(tmp_path), "0.02"],
        cwd=_ROOT,
        input="".join(f"{name}\n" for name in CASES),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [json.loads(line)["case"] for line in done.stdout.splitlines()] == list(CASES)


@pytest.mark.hour("bench/instructions.py")
@pytest.mark.timeout(900)
@pytest.mark.skipif(source_is_asked_for(), reason="JESENSKA_PURE asks for source")
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not there")
def test_one_commit_counted_twice_has_nearly_the_same_counts(tmp_path: Path) -> None:
    first, second = (dict(instructions.count_requests(["heartbeat"], str(tmp_path))) for _ in range(2))
    assert first["heartbeat"] == pytest.approx(second["heartbeat"], rel=0.01)
    assert first["heartbeat"] > 10_000
