"""kcat (librdkafka) against the broker: every codec, offsets by time, metadata, and our records read by it."""

from __future__ import annotations

import json
import subprocess

import pytest

from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import WRITTEN, need
from tests.conformance.disk import codecs

pytestmark = pytest.mark.conformance

_LINES = [f"key {number}:line {number} {'again ' * 20}" for number in range(200)]
#: The lines leave in one batch: librdkafka does not compress one that would grow by it, as that of a single short
#: record does.
_TOGETHER = ["-X", "linger.ms=20000", "-X", f"batch.num.messages={len(_LINES)}"]


def kcat(broker: BrokerProcess, *arguments: str, given: str = "") -> str:
    need("kcat")
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_records_written_in_each_codec_stand_so_on_disk_and_are_read_back(
    broker: BrokerProcess, codec: Codec, idempotent: str
) -> None:
    topic = f"kcat-{codec.name.lower()}-{idempotent}"
    given = "\n".join(_LINES)
    settings = ["-X", f"enable.idempotence={idempotent}", "-X", "topic.message.timeout.ms=30000", *_TOGETHER]
    kcat(
        broker,
        "-P",
        "-t",
        topic,
        "-K",
        ":",
        "-p",
        "0",
        "-z",
        codec.name.lower(),
        *settings,
        "-H",
        "from=kcat",
        given=given,
    )
    assert codecs(broker.data, topic) == {codec}
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-K", ":").splitlines() == _LINES
    envelope = json.loads(kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "7", "-c", "1", "-q", "-J"))
    assert (envelope["offset"], envelope["key"], envelope["headers"]) == (7, "key 7", ["from", "kcat"])


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_our_client_writes_is_read(broker: BrokerProcess, written_by_us: dict[Codec, str], codec: Codec) -> None:
    said = kcat(
        broker,
        "-C",
        "-t",
        written_by_us[codec],
        "-p",
        "0",
        "-o",
        "beginning",
        "-e",
        "-q",
        "-K",
        ":",
        "-X",
        "check.crcs=true",
    )
    assert said.splitlines() == [f"{key.decode()}:{value.decode()}" for key, value in WRITTEN]


def test_offsets_are_found_by_time(broker: BrokerProcess) -> None:
    kcat(broker, "-P", "-t", "kcat-times", "-p", "0", given="one\ntwo\nthree")
    stamps = [
        int(line)
        for line in kcat(
            broker, "-C", "-t", "kcat-times", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%T\n"
        ).splitlines()
    ]
    for stamp in (*stamps, 0):
        offset = next(index for index, other in enumerate(stamps) if other >= stamp)
        assert kcat(broker, "-Q", "-t", f"kcat-times:0:{stamp}").split() == ["kcat-times", "[0]", "offset", str(offset)]
    assert kcat(broker, "-Q", "-t", f"kcat-times:0:{stamps[-1] + 1}").split()[-1] == "-1"
    assert kcat(broker, "-Q", "-t", "kcat-times:0:-1").split()[-1] == "3"
    assert kcat(broker, "-Q", "-t", "kcat-times:0:-2").split()[-1] == "0"
    begun_at = kcat(
        broker, "-C", "-t", "kcat-times", "-p", "0", "-o", f"s@{stamps[0]}", "-o", f"e@{stamps[-1] + 1}", "-e", "-q"
    )
    assert begun_at.split() == ["one", "two", "three"]


def test_metadata_names_broker_controller_and_partitions(broker: BrokerProcess) -> None:
    kcat(broker, "-P", "-t", "kcat-metadata", "-p", "0", given="one")
    described = json.loads(kcat(broker, "-L", "-J", "-t", "kcat-metadata"))
    assert [item["name"] for item in described["brokers"]] == [broker.bootstrap]
    (topic,) = described["topics"]
    assert [(item["partition"], item["leader"], item["isrs"]) for item in topic["partitions"]] == [(0, 1, [{"id": 1}])]


def test_a_client_without_version_negotiation_writes_and_reads(broker: BrokerProcess) -> None:
    """It goes by its own idea of what a release serves: no ApiVersions request is sent."""
    old = ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.11.0"]
    given = "\n".join(_LINES)
    kcat(broker, "-P", "-t", "kcat-fallback", "-p", "0", "-z", "gzip", *old, *_TOGETHER, given=given)
    assert codecs(broker.data, "kcat-fallback") == {Codec.GZIP}
    assert (
        kcat(broker, "-C", "-t", "kcat-fallback", "-p", "0", "-o", "beginning", "-e", "-q", *old).splitlines()
        == given.splitlines()
    )
