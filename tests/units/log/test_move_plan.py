"""The next data to copy: for any change of a log while it is copied, the copy becomes the same."""

from __future__ import annotations

from random import Random

import pytest

from jesenska.log.copies.move_steps import (
    CopiedSegment,
    CopyPiece,
    Remove,
    Seal,
    SegmentNow,
    copied_end_offset,
    next_step,
    only_end_is_missing,
)


def test_the_oldest_segment_comes_first_and_is_sealed_before_the_next_one() -> None:
    old, active = SegmentNow(0, "old", 100, True, 10), SegmentNow(10, "active", 30, False, 13)
    assert next_step([old, active], {}, 60) == CopyPiece(0, 0, 60)
    copied = {0: CopiedSegment("old", 60)}
    assert next_step([old, active], copied, 60) == CopyPiece(0, 60, 40)
    copied[0] = CopiedSegment("old", 100)
    assert next_step([old, active], copied, 60) == Seal(0)
    copied[0] = CopiedSegment("old", 100, True)
    assert next_step([old, active], copied, 60) == CopyPiece(10, 0, 30)
    copied[10] = CopiedSegment("active", 30)
    assert next_step([old, active], copied, 60) is None


def test_a_segment_that_the_log_has_no_more_is_removed_first() -> None:
    assert next_step(
        [SegmentNow(10, "x", 1, False, 11)], {0: CopiedSegment("gone", 5, True), 10: CopiedSegment("x", 0)}, 9
    ) == Remove((0,))


def test_another_segment_of_the_same_name_is_copied_from_its_beginning() -> None:
    assert next_step([SegmentNow(0, "cut", 40, False, 4)], {0: CopiedSegment("before", 100, True)}, 99) == CopyPiece(
        0, 0, 40
    )


def test_only_some_bytes_of_the_last_segment_may_be_missing_for_the_end() -> None:
    sealed, active = SegmentNow(0, "s", 100, True, 10), SegmentNow(10, "a", 50, False, 20)
    copied = {0: CopiedSegment("s", 100, True), 10: CopiedSegment("a", 20)}
    assert only_end_is_missing([sealed, active], copied, 30)
    assert not only_end_is_missing([sealed, active], copied, 29)
    assert not only_end_is_missing([sealed, active], {**copied, 0: CopiedSegment("s", 100)}, 30)
    assert not only_end_is_missing([sealed, active], {**copied, 5: CopiedSegment("gone", 1, True)}, 30)
    assert not only_end_is_missing([sealed, active], {10: CopiedSegment("a", 20)}, 30)


def test_how_far_the_copy_is_goes_from_the_start_to_the_end() -> None:
    segments = [SegmentNow(0, "s", 100, True, 10), SegmentNow(10, "a", 50, False, 20)]
    assert copied_end_offset(segments, {}) == 0
    assert copied_end_offset(segments, {0: CopiedSegment("s", 50)}) == 5
    assert copied_end_offset(segments, {0: CopiedSegment("s", 100, True), 10: CopiedSegment("a", 25)}) == 15
    assert copied_end_offset(segments, {0: CopiedSegment("s", 100, True), 10: CopiedSegment("a", 50)}) == 20


@pytest.mark.parametrize("seed", range(300))
def test_the_copy_becomes_what_the_log_is_whatever_it_does_meanwhile(seed: int) -> None:
    """Files are strings here. Meanwhile the log grows, rolls, loses its oldest segments, is truncated, and has
    segments replaced."""
    chance = Random(seed)
    log: list[tuple[int, list[object], str]] = [(0, [object()], "")]
    copy: dict[int, str] = {}
    copied: dict[int, CopiedSegment] = {}

    def segments() -> list[SegmentNow]:
        ends = [base for base, _, _ in log[1:]] + [log[-1][0] + len(log[-1][2])]
        return [
            SegmentNow(base, identity[0], len(text), number < len(log) - 1, end)
            for number, ((base, identity, text), end) in enumerate(zip(log, ends, strict=True))
        ]

    changes = 60
    for _ in range(2000):
        if changes and chance.random() < 0.4:
            changes -= 1
            what, (base, identity, text) = chance.randrange(5), log[-1]
            if what <= 1:
                log[-1] = (base, identity, text + "".join(chance.choice("abc") for _ in range(chance.randrange(1, 8))))
            elif what == 2 and text:
                log.append((base + len(text), [object()], ""))
            elif what == 3 and len(log) > 1:
                del log[0]
            elif what == 4:
                del log[chance.randrange(len(log)) + 1 :]
                base, _, text = log[-1]
                log[-1] = (base, [object()], text[: chance.randrange(len(text) + 1)])
            continue
        step = next_step(segments(), copied, chance.randrange(1, 6))
        if step is None and not changes:
            break
        if isinstance(step, Remove):
            for base in step.base_offsets:
                del copied[base], copy[base]
        elif isinstance(step, CopyPiece):
            identity, text = next((identity, text) for base, identity, text in log if base == step.base_offset)
            end = step.position + step.size_bytes
            copy[step.base_offset] = (
                copy.get(step.base_offset, "")[: step.position]
                + text[step.position : end]
                + copy.get(step.base_offset, "")[end:]
            )
            copied[step.base_offset] = CopiedSegment(identity[0], end)
        elif isinstance(step, Seal):
            identity, text = next((identity, text) for base, identity, text in log if base == step.base_offset)
            copy[step.base_offset] = copy.get(step.base_offset, "")[: len(text)]
            copied[step.base_offset] = CopiedSegment(identity[0], len(text), True)
    assert next_step(segments(), copied, 9) is None
    assert only_end_is_missing(segments(), copied, 0)
    assert {base: text[: len(copy.get(base, ""))] for base, _, text in log} == {
        base: copy.get(base, "")[: len(text)] for base, _, text in log
    }
    assert set(copy) <= {base for base, _, _ in log}
