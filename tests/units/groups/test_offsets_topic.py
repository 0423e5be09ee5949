from __future__ import annotations

import pytest

from jesenska.groups.offsets.offsets_topic import partition_for


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("hello", 99_162_322),
        # Java computes -1006804125 and -1233264812; Kafka takes the absolute value, not the lower bits.
        ("others", 1_006_804_125),
        ("gr\N{LATIN SMALL LETTER U WITH DIAERESIS}ppe", 1_233_264_812),
        # The hash is Java's smallest integer, which has no absolute value.
        ("polygenelubricants", 0),
        # One character of Python, two of Java.
        ("\N{GRINNING FACE}", 1_772_899),
    ],
)
def test_a_group_is_kept_where_javas_hash_of_its_name_says(group_id: str, java_hash: int) -> None:
    for count in (1, 7, 50):
        assert partition_for(group_id, count) == java_hash % count
