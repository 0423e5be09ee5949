"""Holds back what threads bring, and lets processes stand still for moments, by a plan with a seed.

A test is flaky where it takes a signal for a fact ("the broker has answered, so its log line is here") or some time
for an event ("after 50 ms the file is deleted"). On a quiet machine both hold nearly always. Here the moments between
are made longer, each as a busy machine may have it any day:

    start      work in an executor begins late
    result     its result comes late
    call       a thread's `call_soon_threadsafe` comes late
    thread     a thread begins late
    event      a thread sets a `threading.Event` late
    loop       an event loop stands still before its next turn, and with it all that its process does there
    line       a line that a server of the tests has written is read late

A pause is a sleep in the thread that would bring something. So everything keeps the order that it has without pauses,
and whatever fails could fail without them. Each kind draws from a random source of its own, which begins anew with
each test. One or two kinds are held back much more often than the others; which ones is drawn, too.

`tests/repeat/hook/sitecustomize.py` installs this in every Python process of the tests, brokers among them, where the
environment variable JESENSKA_HOLD_BACK has a seed. A process that is forked from a warm template goes on with a plan
of its own.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from random import Random
from types import ModuleType
from typing import Any

#: The seed; how long a pause is at most, in seconds; a file in which each process that was held back is named.
SEED, LONGEST, NOTES = "JESENSKA_HOLD_BACK", "JESENSKA_HOLD_BACK_LONGEST", "JESENSKA_HOLD_BACK_NOTES"
LONGEST_S = 0.3
KINDS = ("start", "result", "call", "thread", "event", "loop", "line")
#: How likely a pause is, of a kind that is held back as others are and of one that is held back often.
_USUAL, _OFTEN = 0.15, 0.6
#: A loop has thousands of turns for each result of a thread.
_LOOP_SHARE = 0.05
#: A kind that has been held back for this share of the time goes on without.
_SHARE_MAX = 0.2
_SHORTEST_S = 0.001

# Tests have clocks of their own in their place.
_sleep, _monotonic = time.sleep, time.monotonic


class Plan:
    """Says when a pause is made and how long it is. Threads share it."""

    def __init__(self, seed: str, longest_s: float = LONGEST_S, notes: str | None = None) -> None:
        self._seed = seed
        self._longest_s = longest_s
        self._notes = notes
        self._scope = ""
        self._forks = 0
        self._is_noted = False
        self.begin(" ".join(sys.argv[1:]))

    def begin(self, scope: str) -> None:
        """Draws anew from here on: for the same seed and scope the same."""
        self._scope = scope
        chance = Random(f"{self._seed} {scope}")
        self._often = set(chance.sample(KINDS, chance.choice((1, 1, 2))))
        self._chances = {kind: Random(f"{self._seed} {scope} {kind}") for kind in KINDS}
        self._held_s = dict.fromkeys(KINDS, 0.0)
        self._begun_s = _monotonic()

    def forked(self) -> None:
        """In a new process: goes on otherwise than the one it was forked from."""
        self._is_noted = False
        self.begin(f"{self._scope} fork {self._forks}")

    def forks(self) -> None:
        """Just before a fork."""
        self._forks += 1

    def drawn_s(self, kind: str) -> float:
        """How long the next pause of this kind is; 0 for none."""
        chance = self._chances[kind]
        # Always two, so that what follows does not depend on what came of these.
        first, second = chance.random(), chance.random()
        likely = (_OFTEN if kind in self._often else _USUAL) * (_LOOP_SHARE if kind == "loop" else 1.0)
        # Short ones are more frequent.
        return max(_SHORTEST_S, self._longest_s * second**3) if first < likely else 0.0

    def pause(self, kind: str) -> None:
        """Sleeps, if that is drawn."""
        seconds = self.drawn_s(kind)
        if not seconds or self._held_s[kind] > 2 * self._longest_s + _SHARE_MAX * (_monotonic() - self._begun_s):
            return
        self._held_s[kind] += seconds
        self._note()
        _sleep(seconds)

    def _note(self) -> None:
        if self._is_noted or self._notes is None:
            return
        self._is_noted = True
        line = json.dumps({"process": os.getpid(), "arguments": sys.argv[1:]}) + "\n"
        descriptor = os.open(self._notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


#: This process's, where it is held back.
plan: Plan | None = None


def install() -> None:
    """Holds this process back, if the environment says so."""
    global plan
    seed = os.environ.get(SEED)
    if not seed or plan is not None:
        return
    mine = plan = Plan(seed, float(os.environ.get(LONGEST) or LONGEST_S), os.environ.get(NOTES) or None)
    os.register_at_fork(before=mine.forks, after_in_child=mine.forked)
    _change_threads(threading, mine)
    changes: dict[str, Callable[[Any, Plan], None]] = {
        "concurrent.futures.thread": _change_executors,
        "asyncio.base_events": _change_loops,
        "jesenska.testing.process": _change_servers,
    }
    for name in [name for name in changes if name in sys.modules]:
        changes.pop(name)(sys.modules[name], mine)
    sys.meta_path.insert(0, _ChangedWhenRead(changes, mine))


class _ChangedWhenRead(MetaPathFinder):
    """Changes modules when somebody imports them, so that a process that needs none of them reads none."""

    def __init__(self, changes: dict[str, Callable[[Any, Plan], None]], plan: Plan) -> None:
        self._changes = changes
        self._plan = plan

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = self._changes.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if change is not None else None
        if change is None or spec is None or spec.loader is None:
            return None
        read = spec.loader.exec_module

        def read_and_change(module: ModuleType) -> None:
            read(module)
            change(module, self._plan)

        spec.loader.exec_module = read_and_change  # type: ignore[method-assign]
        return spec


def _change_threads(module: Any, plan: Plan) -> None:
    begin, put = module.Thread.start, module.Event.set

    def start(thread: Any) -> None:
        run = thread.run

        def late() -> None:
            plan.pause("thread")
            run()

        thread.run = late
        begin(thread)

    def set_late(event: Any) -> None:
        thread = module._active.get(threading.get_ident())
        # A thread that begins says so by an event before it is among the active ones, and is waited for: that is none.
        if thread is not None and thread is not threading.main_thread() and event is not thread._started:
            plan.pause("event")
        put(event)

    module.Thread.start = start
    module.Event.set = set_late


def _change_executors(module: Any, plan: Plan) -> None:
    submit = module.ThreadPoolExecutor.submit

    def submit_held_back(executor: Any, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        def late(*arguments: Any, **named: Any) -> Any:
            plan.pause("start")
            try:
                return work(*arguments, **named)
            finally:
                plan.pause("result")

        return submit(executor, late, *arguments, **named)

    module.ThreadPoolExecutor.submit = submit_held_back


def _change_loops(module: Any, plan: Plan) -> None:
    loop_class = module.BaseEventLoop
    call, turn = loop_class.call_soon_threadsafe, loop_class._run_once

    def call_late(loop: Any, callback: Callable[..., object], *arguments: Any, context: Any = None) -> Any:
        if loop._thread_id not in (None, threading.get_ident()):
            plan.pause("call")
        return call(loop, callback, *arguments, context=context)

    def turn_late(loop: Any) -> None:
        plan.pause("loop")
        turn(loop)

    loop_class.call_soon_threadsafe = call_late
    loop_class._run_once = turn_late


def _change_servers(module: Any, plan: Plan) -> None:
    read = module.ServerProcess._read

    class Late:
        """The output of a process, line by line, late."""

        def __init__(self, output: Any) -> None:
            self._output = output

        def __enter__(self) -> Late:
            return self

        def __exit__(self, *_: object) -> None:
            self._output.close()

        def __iter__(self) -> Iterator[bytes]:
            for line in self._output:
                plan.pause("line")
                yield line

    def read_late(server: Any, process: Any, ready: Any) -> None:
        if process.stdout is not None:
            process.stdout = Late(process.stdout)
        read(server, process, ready)

    module.ServerProcess._read = read_late
