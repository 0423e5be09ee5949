"""Describes and changes the levels of this process's loggers, as settings of the resource BROKER_LOGGER (type 8,
KIP-412). The resource's name is the broker id.

    name     a logger of Python's logging: `jesenska`, `jesenska.broker.coordinators.groups`, …; `root` is above
             all others
    value    TRACE, DEBUG, INFO, WARN, ERROR or FATAL: the effective level: the logger's own level, or the level of the
             nearest parent that has a level

A change is valid until the process ends. DELETE removes a logger's own level, so that it inherits the level of its
parent. For `root`, which has no parent, DELETE is refused. APPEND and SUBTRACT are refused, and AlterConfigs (key 33)
does not support this type. All changes of a request are checked before a level is changed."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import Final

from jesenska.base.errors import InvalidConfigError, InvalidRequestError, UnknownServerError
from jesenska.config.layers import Described, Source
from jesenska.controller.plans.config_changes import ConfigOp, OpType

BROKER_LOGGER_RESOURCE: Final = 8
_ROOT: Final = "root"
_PACKAGE: Final = "jesenska"
#: An integer as Java parses it; the limited length keeps the conversion cheap.
_INTEGER = re.compile(r"[+-]?\d{1,20}")
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def _loggers() -> dict[str, logging.Logger]:
    logging.getLogger(_PACKAGE)  # so that all of jesenska can be set at once
    known = {name: item for name, item in logging.root.manager.loggerDict.items() if isinstance(item, logging.Logger)}
    return {_ROOT: logging.root, **dict(sorted(known.items()))}


def _name_of(level: int) -> str:
    """Returns Kafka's name for a level of Python's logging: the highest Kafka level that is not above this level."""
    return next((name for name, least in reversed(_LEVELS.items()) if level >= least), "TRACE")


def describe_loggers(resource: str, names: Collection[str] | None, broker_id: int) -> list[Described]:
    """Returns the loggers with these names and their levels, for DescribeConfigs; all loggers if `names` is None or
    empty. Raises InvalidRequestError if `resource` is not this broker's id."""
    if not resource:
        raise InvalidRequestError("Broker id must not be empty")
    named = _number(resource, "Broker id")
    if named != broker_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {broker_id} but received {resource}")
    return [
        Described(
            name,
            _name_of(logger.getEffectiveLevel()),
            Source.DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            kind=0,
            doc="",
            synonyms=(),
        )
        for name, logger in _loggers().items()
        if not names or name in names
    ]


def alter_loggers(resource: str, operations: Sequence[ConfigOp], broker_id: int, *, validate_only: bool) -> None:
    """Changes levels as IncrementalAlterConfigs asks. Raises InvalidRequestError or InvalidConfigError if the request
    is refused; no level is changed then."""
    _refuse_malformed(operations)
    named = _number(resource, "Node id")
    if named != broker_id:
        raise InvalidRequestError(f"Unexpected node id. Expected {broker_id}, but received {resource}")
    loggers = _loggers()
    changes: list[tuple[logging.Logger, int]] = []
    for operation in operations:
        logger = loggers.get(operation.name)
        if operation.op not in list(OpType):
            raise UnknownServerError
        if operation.op in (OpType.APPEND, OpType.SUBTRACT):
            raise InvalidRequestError(
                f"{OpType(operation.op).name} operation is not allowed for the BROKER_LOGGER resource"
            )
        if logger is None:
            raise InvalidConfigError(f"Logger {operation.name} does not exist!")
        if operation.op == OpType.DELETE:
            if operation.name == _ROOT:
                raise InvalidRequestError("Removing the log level of the root logger is not allowed")
            changes.append((logger, logging.NOTSET))
        else:
            level = _LEVELS.get(operation.value or "")
            if level is None:
                valid = ", ".join(sorted(_LEVELS))
                raise InvalidConfigError(
                    f"Cannot set the log level of {operation.name} to {operation.value} as it is not a supported log "
                    f"level. Valid log levels are {valid}"
                )
            changes.append((logger, level))
    if not validate_only:
        for logger, level in changes:
            logger.setLevel(level)


def _refuse_malformed(operations: Sequence[ConfigOp]) -> None:
    names = [operation.name for operation in operations]
    if len(set(names)) != len(names):
        raise InvalidRequestError("Error due to duplicate config keys")
    empty = [operation.name for operation in operations if operation.op != OpType.DELETE and operation.value is None]
    if empty:
        raise InvalidRequestError(f"Null value not supported for : {','.join(empty)}")


def _number(resource: str, what: str) -> int:
    if _INTEGER.fullmatch(resource) and -(2**31) <= (number := int(resource)) < 2**31:
        return number
    raise InvalidRequestError(f"{what} must be an integer, but it is: {resource}")
