"""The drawing in docs/architecture.md is the one that the imports give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.rooms import BEGIN, END, drawing, floors, imports_of_rooms, page

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_drawing_of_the_present_imports() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert text == page(text, imports_of_rooms()), "run script/rooms-doc"


def test_each_room_is_above_the_rooms_that_it_imports() -> None:
    assert floors({"top": {"middle", "base"}, "middle": {"base"}, "base": set()}) == [["base"], ["middle"], ["top"]]
    with pytest.raises(ValueError, match="import each other"):
        floors({"base": set(), "one": {"two"}, "two": {"one"}})


def test_imports_within_functions_count_and_the_package_itself_does_not(tmp_path: Path) -> None:
    for room, source in (
        ("base", "from package import __version__\n"),
        ("top", "def f():\n    from package.base.clock import Clock\n"),
    ):
        (tmp_path / "package" / room).mkdir(parents=True)
        (tmp_path / "package" / room / "__init__.py").write_text(source)
    assert imports_of_rooms(tmp_path / "package") == {"base": set(), "top": {"base"}}


def test_a_row_of_the_table_marks_what_the_room_imports() -> None:
    rows = drawing({"top": {"base"}, "middle": {"base"}, "base": set()}).splitlines()[-4:]
    assert [row.split() for row in rows] == [
        ["a", "middle", "#", ".", "x"],
        ["b", "top", ".", "#", "x"],
        ["c", "base", ".", ".", "#"],
        ["a", "b", "c"],
    ]


def test_an_old_drawing_is_replaced_and_the_rest_stays() -> None:
    text = f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nThe rest.\n"
    written = page(text, {"base": set()})
    assert written.startswith(f"# Title\n\n{BEGIN}\n\n```text\n") and written.endswith(f"{END}\n\nThe rest.\n")
    assert "old" not in written and page(written, {"base": set()}) == written
    with pytest.raises(ValueError, match="no markers"):
        page("# Title\n", {"base": set()})
