"""`python -m jesenska.testing.faults check`: findings, exit codes, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from jesenska.testing.faults.__main__ import main
from jesenska.testing.faults.history import Operation, to_line
from tests.processes.testing.made_history import PLANTS, CorrectHistory


def _correct(seed: int = 1) -> list[Operation]:
    return CorrectHistory(Random(seed)).operations


def _lossy() -> list[Operation]:
    planted = PLANTS["lost"](_correct(), Random(1))
    assert planted is not None
    return planted


def _file(path: Path, operations: list[Operation]) -> str:
    path.write_bytes(b"".join(map(to_line, operations)))
    return str(path)


def test_a_clean_history_ends_with_0_and_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operations = _correct()
    assert main(["check", _file(tmp_path / "h", operations)]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{len(operations)} operations, 0 findings\n")


def test_findings_are_one_a_line_and_end_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", _file(tmp_path / "h", _lossy())]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("lost: ") and line.endswith(" is not in the last full read.")


def test_json_has_every_finding_with_its_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operations = _lossy()
    assert main(["check", "--output", "json", _file(tmp_path / "h", operations)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["operations"] == len(operations)
    (finding,) = found["findings"]
    assert finding.keys() == {"kind", "topic", "partition", "offsets", "values", "sentence"}
    assert (finding["kind"], finding["topic"], len(finding["offsets"]), len(finding["values"])) == ("lost", "t", 1, 1)
    assert main(["check", "--output", "json", _file(tmp_path / "h", _correct())]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_several_files_are_one_history(tmp_path: Path) -> None:
    operations = _correct()
    readers = [operation for operation in operations if operation.client == "last-reader"]
    others = [operation for operation in operations if operation.client != "last-reader"]
    files = [_file(tmp_path / "others", others), _file(tmp_path / "readers", readers)]
    assert main(["check", *files]) == 0
    assert main(["check", files[0]]) == 1  # no consumer has read everything


def test_only_what_is_asked_for_is_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path / "h", _lossy())
    assert main(["check", path, "--kind", "reordered", "--kind", "poll skip"]) == 0
    assert main(["check", path, "--kind", "lost"]) == 1
    with pytest.raises(SystemExit) as ended:
        main(["check", path, "--kind", "sadness"])
    assert ended.value.code == 2
    assert "poll skip" in capsys.readouterr().err


def test_a_history_that_cannot_be_read_ends_with_2_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").write_text("nonsense\nmore\n")
    for path, reason in (
        (tmp_path / "bad", "line 1: This is not an operation: it is not JSON."),
        (tmp_path / "none", "cannot be read"),
    ):
        assert main(["check", _file(tmp_path / "h", _correct()), str(path)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        assert line.startswith(f"python -m jesenska.testing.faults: {path}") and reason in line


def test_the_command_runs_as_it_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jesenska.testing.faults", "check", _file(tmp_path / "h", _lossy())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1), done.stderr
