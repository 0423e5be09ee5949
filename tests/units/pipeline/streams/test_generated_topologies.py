"""The generator of topologies, and the comparison of outcomes: the tests that need neither Java nor the DSL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.units.pipeline.streams.comparison import beside, differences, written
from tests.units.pipeline.streams.coverage import WANTED, covered
from tests.units.pipeline.streams.generated_topologies import named, topologies
from tests.units.pipeline.streams.named_functions import FUNCTIONS, PREDICATES
from tests.units.pipeline.streams.topology_spec import Json, inputs_of, made

THREE_HUNDRED = topologies(300)


def test_three_hundred_topologies_have_every_call_and_every_case() -> None:
    found = set().union(*map(covered, THREE_HUNDRED))
    assert not sorted(WANTED - found)


def test_some_are_compositions_of_several_stages() -> None:
    lengths = [len(description["steps"]) for description in topologies(500) if description["name"].startswith("random")]
    assert len(lengths) > 200
    assert max(lengths) > 10


def test_the_same_seed_gives_the_same_topologies() -> None:
    assert topologies(300) == THREE_HUNDRED


def test_another_seed_gives_others() -> None:
    assert sum(one != other for one, other in zip(topologies(300, 1), THREE_HUNDRED, strict=True)) > 250


def test_names_are_unique_and_find_their_topology() -> None:
    assert len({description["name"] for description in THREE_HUNDRED}) == len(THREE_HUNDRED)
    for description in THREE_HUNDRED[::20]:
        assert named(description["name"]) == description


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError):
        named("nobody has written this down")


def test_a_description_is_json() -> None:
    assert json.loads(json.dumps(THREE_HUNDRED)) == THREE_HUNDRED


def test_steps_name_nodes_that_are_there_and_functions_that_exist() -> None:
    for description in THREE_HUNDRED:
        there: set[str] = set()
        for step in description["steps"]:
            assert there.issuperset(inputs_of(step)), description["name"]
            there.update(made(step))
            for argument in ("function", "adder", "subtractor", "merger", "joiner", "foreign_key"):
                assert step.get(argument) is None or step[argument] in FUNCTIONS
            assert step.get("predicate") is None or step["predicate"] in PREDICATES


def outcome(**parts: Any) -> Json:
    return {
        "describe": "",
        "output": {"out": [["a", "1", 1], ["b", "2", 2], ["a", "3", 3]]},
        "seen": {},
        "stores": {},
        "dropped": 0,
    } | parts


def test_equal_outcomes_do_not_differ() -> None:
    assert not list(differences(outcome(), outcome()))


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("describe", "Topologies:"),
        ("output", {"out": [["a", "3", 3], ["b", "2", 2], ["a", "1", 1]]}),
        ("output", {"out": [["a", "1", 1], ["b", "2", 2]]}),
        ("output", {"out": [["a", "1", 1], ["b", "2", 2], ["a", "3", 4]]}),
        ("output", {}),
        ("seen", {"witness": []}),
        ("internal", {"judge-kept-changelog": [["61", "31", 1]]}),
        ("stores", {"kept": [["a", 1, 2]]}),
        ("dropped", 1),
        ("error", {"when": "build", "at": -1, "kind": "TopologyException", "text": ""}),
    ],
)
def test_each_part_can_differ(part: str, other: Any) -> None:
    found = list(differences(outcome(), outcome(**{part: other})))
    assert len(found) == 1


def test_records_of_several_keys_may_be_in_another_order_across_keys() -> None:
    other = outcome(output={"out": [["b", "2", 2], ["a", "1", 1], ["a", "3", 3]]})
    assert not list(differences(outcome(), other))
    assert list(differences(outcome(), other, in_one_order=True))


def test_the_same_failure_may_have_another_text() -> None:
    one, other = ({"when": "input", "at": 3, "kind": kind, "text": kind} for kind in ("StreamsException", "ValueError"))
    assert not list(differences(outcome(error=one), outcome(error=other)))
    assert list(differences(outcome(error=one), outcome(error=other | {"at": 4})))


def test_only_the_parts_that_are_named_are_compared() -> None:
    assert not list(differences(outcome(), outcome(dropped=3), parts=frozenset(("output", "stores"))))


def test_a_description_is_written_for_people() -> None:
    text = written(named("stream-table left join, null left key"))
    assert "n3 = join n1, n2 {'how': 'left', 'joiner': 'pair'}" in text
    assert 'left       null     "pn"' in text


def test_a_difference_marks_the_lines_that_differ() -> None:
    text = beside("output out", [["a", 1], ["b", 2]], [["a", 1], ["b", 3]])
    assert [line[0] for line in text.splitlines()[1:]] == [" ", "!"]
