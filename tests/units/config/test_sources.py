from __future__ import annotations

import pytest

from jesenska.config.sources import Origin, OverrideError, gather, setting_of_variable


def test_flags_beat_the_environment_which_beats_the_file() -> None:
    gathered = gather(
        "log.dirs=file\nnum.partitions=1\nlog.retention.ms=5\n",
        {"KAFKA_LOG_DIRS": "env", "KAFKA_NUM_PARTITIONS": "2", "PATH": "/bin"},
        ["num.partitions=3"],
    )
    assert gathered.settings == {"log.dirs": "env", "num.partitions": "3", "log.retention.ms": "5"}
    assert gathered.origins == {
        "log.dirs": Origin.ENVIRONMENT,
        "num.partitions": Origin.OVERRIDE,
        "log.retention.ms": Origin.FILE,
    }
    assert gathered.unknown == ()


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "listener.security.protocol.map"),
        ("KAFKA_CFG_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_SOME__NAME___HERE", "some_name-here"),
        ("KAFKA_PORT", "port"),
    ],
)
def test_variables_name_settings_as_the_docker_images_do(variable: str, setting: str) -> None:
    assert setting_of_variable(variable, "1") == setting


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_HOME", "/opt/kafka"),
        ("KAFKA_VERSION", "3.9.1"),
        ("KAFKA_HEAP_OPTS", "-Xmx1g"),
        ("KAFKA_JVM_PERFORMANCE_OPTS", "-server"),
        ("KAFKA_OPTS", "-D"),
        ("KAFKA_JMX_PORT", "9999"),
        ("KAFKA_JMX_OPTS", ""),
        ("KAFKA_LOG4J_LOGGERS", "a"),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", "INFO"),
        ("KAFKA_PORT", "tcp://10.0.0.1:9092"),
        ("KAFKA_PORT_9092_TCP", "tcp://10.0.0.1:9092"),
        ("KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("KAFKA_PORT_9092_TCP_PROTO", "tcp"),
        ("KAFKA_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_SERVICE_PORT", "9092"),
        ("KAFKA_SERVICE_PORT_CLIENT", "9092"),
        ("KAFKA_HEADLESS_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_HEADLESS_PORT", "tcp://10.0.0.1:9092"),
        ("KAFKA_", "x"),
        ("PATH", "/bin"),
        ("kafka_log_dirs", "x"),
    ],
)
def test_variables_of_launchers_and_of_kubernetes_are_left_alone(variable: str, value: str) -> None:
    assert setting_of_variable(variable, value) is None
    assert gather(None, {variable: value}).settings == {}


def test_an_unknown_key_of_the_file_is_kept_and_named_with_the_nearest_one() -> None:
    gathered = gather("log.retention.hour=5\n")
    assert gathered.settings == {"log.retention.hour": "5"}
    assert [(item.name, item.nearest) for item in gathered.unknown] == [("log.retention.hour", "log.retention.hours")]


def test_an_unknown_variable_is_named_but_sets_nothing() -> None:
    gathered = gather(None, {"KAFKA_LOG_RETENTION_HOUR": "5"})
    assert gathered.settings == {}
    assert [(item.name, item.nearest) for item in gathered.unknown] == [
        ("KAFKA_LOG_RETENTION_HOUR", "KAFKA_LOG_RETENTION_HOURS")
    ]


def test_a_listeners_own_setting_is_no_unknown_one() -> None:
    assert gather("listener.name.internal.max.connections=5\n").unknown == ()


@pytest.mark.parametrize("flag", ["log.dirs", "=x", "  =x", ""])
def test_a_flag_without_a_name_or_a_value_is_refused(flag: str) -> None:
    with pytest.raises(OverrideError, match="--override takes name=value"):
        gather(None, {}, [flag])


def test_a_value_may_hold_an_equals_sign_and_may_be_empty() -> None:
    assert gather(None, {}, ["a.b=c=d", "log.dirs="]).settings == {"a.b": "c=d", "log.dirs": ""}
