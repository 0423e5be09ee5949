"""Formats errors as Apache Kafka's tools print them: with the name of the Java class and the message. Programs that
read a tool's output search for these names."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError

#: Names of Java classes that differ from the names of jesenska's error classes.
_OTHER_NAMES = {
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.STALE_CONTROLLER_EPOCH: "ControllerMovedException",
}


def java_name(error: KafkaError) -> str:
    """Returns the full name of the error's class in Kafka's Java clients."""
    ours = type(error).__name__
    name = (
        _OTHER_NAMES.get(error.code)
        or ours.removesuffix("Exception").removesuffix("Error").removesuffix("Failed") + "Exception"
    )
    return f"org.apache.kafka.common.errors.{name}"


def java_text(error: KafkaError) -> str:
    """Returns the error as Java prints it: `org.apache.kafka.common.errors.NotControllerException: ...`."""
    return f"{java_name(error)}: {error.message}" if error.message else java_name(error)
