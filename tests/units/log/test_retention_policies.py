"""The policies that decide about old segments: those of this package, those of others, and the rules that hold for any
policy."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidConfigError
from jesenska.base.plugins import RETENTION_POLICIES, PluginError, plugin, plugin_names
from jesenska.broker.settings.derived_settings import log_config_of
from jesenska.config.layers import BrokerConfig, TopicConfig, check_topic_values
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.log_start import delete_old_segments, delete_records, segments_of_unknown_time
from jesenska.log.retention import SegmentFacts, WholeHours, count_deletable
from jesenska.log.retention_policies import policy_named
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch

HOUR_MS = 3_600_000
#: A package from another author.
_SOURCE = """
class AllButOne:
    def count_old(self, segments, config, now_ms):
        return len(segments) - 1, "all but one"

class Broken:
    def count_old(self, segments, config, now_ms):
        raise RuntimeError("no idea")

class Unmakeable:
    def __init__(self):
        raise RuntimeError("no licence")
"""
_ENTRY_POINTS = """[jesenska.retention_policies]
all-but-one = other_policies:AllButOne
broken = other_policies:Broken
unmakeable = other_policies:Unmakeable
missing = other_policies:Missing
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    home = tmp_path / "site"
    described = home / "other_policies-1.0.dist-info"
    described.mkdir(parents=True)
    (home / "other_policies.py").write_text(_SOURCE)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: other-policies\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(_ENTRY_POINTS)
    monkeypatch.syspath_prepend(home)
    plugin.cache_clear()
    yield
    plugin.cache_clear()
    sys.modules.pop("other_policies", None)


def _segments(*times_ms: int) -> list[SegmentFacts]:
    last = len(times_ms) - 1
    return [SegmentFacts(index, index + 1, 100, time_ms, index == last) for index, time_ms in enumerate(times_ms)]


def _filled(harness: LogHarness, count: int = 6) -> None:
    for _ in range(count):
        harness.append(make_batch())


def test_both_policies_of_this_package_are_installed() -> None:
    assert {"time-and-size", "whole-hours"} <= set(plugin_names(RETENTION_POLICIES))
    assert isinstance(policy_named("whole-hours"), WholeHours)


@given(
    start_ms=st.integers(0, 10**13),
    steps=st.lists(st.integers(0, 2 * HOUR_MS), min_size=1, max_size=20),
    retention_ms=st.integers(0, 12 * HOUR_MS),
)
def test_whole_hours_keeps_every_hour_of_which_a_moment_is_within_the_limit(
    start_ms: int, steps: list[int], retention_ms: int
) -> None:
    times = [start_ms + sum(steps[: index + 1]) for index in range(len(steps))]
    now_ms = times[-1] + HOUR_MS // 3
    config = LogConfig(retention_ms=retention_ms, retention_bytes=0)
    count, _ = count_deletable(
        _segments(*times), config, now_ms=now_ms, high_watermark=len(times), log_start_offset=0, policy=WholeHours()
    )
    for index, time_ms in enumerate(times):
        end_of_hour_ms = (time_ms // HOUR_MS + 1) * HOUR_MS
        assert (index < count) == (end_of_hour_ms <= now_ms - retention_ms)


def test_unlimited_whole_hours_keep_everything() -> None:
    assert WholeHours().count_old(_segments(1, 2), LogConfig(retention_ms=-1), NOW_MS)[0] == 0


def test_where_no_segments_are_no_policy_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    class Refuses:
        def count_old(self, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> tuple[int, str]:
            raise AssertionError("there is nothing to count")

    assert (
        count_deletable([], LogConfig(), now_ms=NOW_MS, high_watermark=0, log_start_offset=0, policy=Refuses())[0] == 0
    )
    assert not caplog.records


def test_without_a_setting_a_log_goes_by_the_brokers_defaults() -> None:
    assert LogConfig() == log_config_of(TopicConfig({}, BrokerConfig({})))


def test_a_topic_names_a_policy_of_another_package(tmp_path: Path, other_package: None) -> None:
    batch_bytes = len(make_batch())
    config = LogConfig(segment_bytes=batch_bytes, retention_ms=-1, retention_policy="all-but-one")
    with LogHarness(tmp_path / "t-0", config) as harness:
        _filled(harness)
        assert delete_old_segments(harness.log, NOW_MS) != []
        assert harness.offsets() == [5]


def test_no_policy_takes_what_is_not_committed_or_of_a_topic_that_deletes_nothing(
    tmp_path: Path, other_package: None
) -> None:
    config = LogConfig(segment_bytes=len(make_batch()), retention_policy="all-but-one")
    with LogHarness(tmp_path / "t-0", config) as harness:
        _filled(harness)
        harness.log.move_high_watermark(3)
        delete_old_segments(harness.log, NOW_MS)
        assert harness.log.log_start_offset == 3
    compacted = LogConfig(segment_bytes=len(make_batch()), retention_policy="all-but-one", delete=False, compact=True)
    with LogHarness(tmp_path / "c-0", compacted) as harness:
        _filled(harness)
        assert delete_old_segments(harness.log, NOW_MS) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "policy Broken failed, nothing is deleted by it: RuntimeError: no idea"),
        ("unmakeable", "RuntimeError: no licence; mend its package"),
        ("missing", "'Missing'; mend its package"),
        ("uninstalled", "No installed package has 'uninstalled'"),
    ],
)
def test_a_policy_that_fails_keeps_everything_but_deleted_records(
    tmp_path: Path, other_package: None, caplog: pytest.LogCaptureFixture, name: str, said: str
) -> None:
    """This holds even if Kafka's own policy would have deleted all of it."""
    with LogHarness(
        tmp_path / "t-0", LogConfig(segment_bytes=len(make_batch()), retention_ms=0, retention_policy=name)
    ) as harness:
        _filled(harness)
        with caplog.at_level(logging.ERROR):
            assert delete_old_segments(harness.log, NOW_MS + HOUR_MS) == []
        assert said in caplog.text
        delete_records(harness.log, 2)
        assert delete_old_segments(harness.log, NOW_MS + HOUR_MS) != []
        assert harness.offsets() == [2, 3, 4, 5]


@pytest.mark.parametrize("answer", [(7, "too many"), (-1, "too few"), ("1", "a text"), (1, None), 3, None])
def test_an_answer_that_makes_no_sense_deletes_nothing(answer: object) -> None:
    class Odd:
        def count_old(self, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> tuple[int, str]:
            return answer  # type: ignore[return-value]

    assert (
        count_deletable(
            _segments(1, 2, 3), LogConfig(), now_ms=NOW_MS, high_watermark=3, log_start_offset=0, policy=Odd()
        )[0]
        == 0
    )


def test_times_are_read_for_every_policy_but_kafkas_without_a_limit(tmp_path: Path, other_package: None) -> None:
    config = LogConfig(segment_bytes=len(make_batch()), retention_ms=-1)
    with LogHarness(tmp_path / "t-0", config) as harness:
        _filled(harness, 3)
        harness.reopen()
        assert segments_of_unknown_time(harness.log) == []
        harness.log.config = LogConfig(segment_bytes=len(make_batch()), retention_ms=-1, retention_policy="all-but-one")
        assert len(segments_of_unknown_time(harness.log)) == 2


def test_only_a_policy_that_is_installed_can_be_chosen(other_package: None) -> None:
    check_topic_values(TopicConfig({"jesenska.retention.policy": "whole-hours"}, BrokerConfig()))
    for name, reason in (
        ("hours", "installed names: all-but-one, broken, missing, time-and-size, unmakeable, whole-hours"),
        ("unmakeable", "no licence"),
    ):
        with pytest.raises(InvalidConfigError, match=reason):
            check_topic_values(TopicConfig({"jesenska.retention.policy": name}, BrokerConfig()))
    with pytest.raises(PluginError, match="installed names: none"):
        plugin("jesenska.nothing_of_this_kind", "x")
