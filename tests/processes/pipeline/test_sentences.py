"""The text that a user reads when a query fails: the sentence first, with a remedy that Spark's users can apply."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jesenska.pipeline.connector.user_errors import in_sparks_words
from tests.processes.pipeline.conftest import Reading, Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

#: The text that Spark itself puts in front: its error class and its current action.
_SPARKS = r"(\[STREAM_FAILED\] Query \[.*\] terminated with exception: )?(\[PYTHON_[A-Z_]+\] [A-Za-z ]+: )?"


def _said(error: pytest.ExceptionInfo[Any], sentence: str) -> None:
    text = str(error.value)
    assert re.match(_SPARKS + r"jesenska\.base\.errors\.[A-Za-z]+: " + sentence, text), text
    assert "Traceback" not in text
    assert " --" not in text


def test_a_batch_query_over_a_topic_that_does_not_exist_names_the_option(reading: Reading) -> None:
    with pytest.raises(Exception, match="no-such") as error:
        reading.batch(subscribe="no-such.topic").count()
    _said(error, r"Topic no-such\.topic does not exist: create it, or name another one in the option subscribe\.\n")


def test_a_stream_over_a_topic_that_does_not_exist_names_the_option(reading: Reading, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no-such") as error:
        reading.run(reading.stream(subscribe="no-such.topic"), tmp_path)
    _said(error, r"Topic no-such\.topic does not exist: create it, or name another one in the option subscribe\.\n")


def test_an_option_that_is_not_known_is_said_first(reading: Reading) -> None:
    with pytest.raises(Exception, match="startingofsets") as error:
        reading.batch(subscribe="a", startingOfsets="latest")
    _said(error, "The option startingofsets is not known; did you mean startingOffsets")


def test_an_option_that_a_stream_cannot_have_is_said_first(reading: Reading, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="endingOffsets") as error:
        reading.run(reading.stream(subscribe="a", endingOffsets="latest"), tmp_path)
    _said(error, "The option endingOffsets does not go with a stream")


def test_an_error_of_the_users_own_keeps_its_traceback(reading: Reading, topics: Topics) -> None:
    def fails(rows: Any) -> Any:
        raise ValueError("of the user's own")

    with pytest.raises(Exception, match="of the user's own") as error:
        reading.spark.sparkContext.parallelize([1]).mapPartitions(fails).collect()
    assert "in fails" in str(error.value)


@pytest.mark.parametrize(
    ("sentence", "in_spark"),
    [
        (
            "Topic a.b does not exist: create it with kafka-topics --create --topic a.b.",
            "Topic a.b does not exist: create it, or name another one in the option topic.",
        ),
        (
            "No broker answers at h:1 (refused): start one there, or name another with --bootstrap-server.",
            "No broker answers at h:1 (refused): start one there, or name another in the option "
            "kafka.bootstrap.servers.",
        ),
        (
            "No broker is named: give --bootstrap-server host:port.",
            "No broker is named: set the option kafka.bootstrap.servers to host:port.",
        ),
        ("a-0: the broker answers CORRUPT_MESSAGE.", "a-0: the broker answers CORRUPT_MESSAGE."),
    ],
)
def test_options_stand_in_place_of_flags(sentence: str, in_spark: str) -> None:
    assert in_sparks_words(sentence, "topic") == in_spark
