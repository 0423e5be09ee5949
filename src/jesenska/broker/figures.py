"""Collects a broker's figures for operators and benchmarks, as one line of JSON. After `kill -USR1 <pid>` the broker
writes this line to stderr, as `figures {...}`.

  uptime_s                 seconds since clients could connect
  loop_lag_ms              delay of the event loop (broker.loop_lag): samples, p50, p99, max over `seconds`, since the
                           last request for figures
  loop_lag_ms_since_start  delay of the event loop with the same fields, since the start
  connections, waiting_requests, fetch_sessions, fetch_session_partitions, partitions
  offline_directories      log directories that have failed, with the reason
  offline_partitions       number of partitions whose log directory has failed
  moves                    replicas that are being moved to another log directory: from, to, state (log.moving),
                           bytes copied, size in bytes, number of records not copied yet
  uncleanable_partitions   partitions that are not compacted, with the reason
  requests                 by API: number of requests, mean microseconds in each stage (broker.gate: queue, local,
                           remote, send), bytes answered
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jesenska.wire.registry import APIS

if TYPE_CHECKING:
    from jesenska.broker.fetching.fetch_sessions import FetchSessions
    from jesenska.broker.loop_lag import LagFigures, LoopLag
    from jesenska.broker.requests.dispatch import Dispatcher
    from jesenska.broker.waiting import WaitingRoom
    from jesenska.log.log_directories import LogDirectories


def figures_of(
    dispatcher: Dispatcher,
    directories: LogDirectories,
    sessions: FetchSessions,
    waiting: WaitingRoom,
    loop_lag: LoopLag,
) -> dict[str, Any]:
    """Returns the current figures. The call resets the figures of `loop_lag_ms`."""
    requests: dict[str, Any] = {}
    for key, stages in dispatcher.gate.stages.items():
        if stages.count:
            times = {"queue": stages.queue, "local": stages.local, "remote": stages.remote, "send": stages.send}
            means = {f"{name}_us": round(seconds / stages.count * 1e6, 1) for name, seconds in times.items()}
            requests[APIS[key].name] = {"count": stages.count, **means, "response_bytes": stages.response_bytes}
    since_start = loop_lag.since_start()
    return {
        "uptime_s": round(since_start.seconds, 1),
        "loop_lag_ms": _lag(loop_lag.since_asked()),
        "loop_lag_ms_since_start": _lag(since_start),
        "connections": len(dispatcher.connections),
        "waiting_requests": len(waiting),
        "fetch_sessions": len(sessions),
        "fetch_session_partitions": sessions.partitions,
        "partitions": len(directories.logs),
        "offline_partitions": len(directories.offline),
        "offline_directories": {str(item.path): item.failure for item in directories.directories if item.is_offline},
        "moves": _moves(directories),
        "uncleanable_partitions": _uncleanable(directories),
        "requests": requests,
    }


def _uncleanable(directories: LogDirectories) -> dict[str, str]:
    cleaner = directories.cleaner
    return (
        {}
        if cleaner is None
        else {str(topic_partition): reason for topic_partition, reason in cleaner.uncleanable.items()}
    )


def _moves(directories: LogDirectories) -> dict[str, dict[str, Any]]:
    moves = directories.moves
    return {
        str(move.topic_partition): {
            "from": str(move.source),
            "to": str(move.target.path),
            "state": move.state,
            "copied_bytes": move.copied_bytes,
            "size_bytes": move.size_bytes,
            "offset_lag": move.offset_lag,
        }
        for move in (moves.figures() if moves is not None else ())
    }


def line_of(figures: dict[str, Any]) -> str:
    """Returns the figures as the line for stderr."""
    return "figures " + json.dumps(figures, separators=(",", ":"))


def _lag(lag: LagFigures) -> dict[str, float]:
    return {
        "seconds": round(lag.seconds, 1),
        "samples": lag.samples,
        "p50": round(lag.p50_ms, 2),
        "p99": round(lag.p99_ms, 2),
        "max": round(lag.max_ms, 2),
    }
