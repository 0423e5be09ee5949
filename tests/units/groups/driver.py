"""A coordinator without network or log: appends are kept until the test commits or fails them, answers are collected
by token. Its two clocks go together unless a test sets the wall clock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

from jesenska.base.errors import ErrorCode
from jesenska.coordination.operations import Append, Appended, AppendFailed, Operations
from jesenska.coordination.shard import Answer, KeyValue, Now, Order, Say, Tick
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.groups.events import Event, Join, JoinAnswer, Response, Sync, SyncAnswer
from jesenska.groups.records import encode_record, read_record
from jesenska.groups.settings import GroupSettings

R = TypeVar("R")


class Driver:
    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        commit_at_once: bool = True,
        log: Sequence[KeyValue] = (),
        now_ms: int = 1_000_000,
        wall_ahead_ms: int = 1_600_000_000_000,
    ) -> None:
        self._ids = itertools.count(1)
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.coordinator = GroupCoordinator(self.settings, lambda: f"id{next(self._ids)}")
        self.operations = Operations(self.coordinator, self.settings.offsets_commit_timeout_ms)
        self.now_ms = now_ms
        #: How far the wall clock is ahead of the monotonic one.
        self.wall_ahead_ms = wall_ahead_ms
        self.commit_at_once = commit_at_once
        self.answers: dict[object, list[Response]] = {}
        #: Lines for the broker's log.
        self.lines: list[str] = []
        self.pending: list[Append] = []
        self.log: list[KeyValue] = list(log)
        self._tokens = itertools.count(1)
        if log:
            for record in log:
                found = read_record(record.key, record.value)
                assert found is not None
                self.coordinator.replay(found, self.now)
        self.coordinator.finish_replay(self.now)

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms)

    def token(self) -> int:
        return next(self._tokens)

    def give(self, event: Event | Appended | AppendFailed) -> None:
        self._take(self.operations.handle(event, self.now))

    def _take(self, effects: list[Answer | Append | Order | Say]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self.answers.setdefault(effect.token, []).append(effect.response)
            elif isinstance(effect, Say):
                self.lines.append(effect.line)
            else:
                assert isinstance(effect, Append), "groups give no orders"
                self.pending.append(effect)
        while self.commit_at_once and self.pending:
            self.commit()

    def commit(self) -> None:
        """Commits the oldest append."""
        append = self.pending.pop(0)
        self.log += [encode_record(record) for record in append.records]
        self.give(Appended(append.number))

    def fail(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        append = self.pending.pop(0)
        self.give(AppendFailed(append.number, error))

    def advance(self, milliseconds: int) -> None:
        """Advances the time, with a tick whenever one is due."""
        end = self.now_ms + milliseconds
        while (due := self.operations.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.give(Tick())
        self.now_ms = end

    def restarted(self) -> Driver:
        """A new coordinator from the log alone."""
        other = Driver(
            self.settings,
            commit_at_once=self.commit_at_once,
            log=self.log,
            now_ms=self.now_ms,
            wall_ahead_ms=self.wall_ahead_ms,
        )
        other._tokens, other._ids = self._tokens, self._ids
        return other

    def answer(self, token: object, kind: type[R]) -> R:
        """The only answer to this token."""
        (found,) = self.answers[token]
        assert isinstance(found, kind)
        return found

    def is_answered(self, token: object) -> bool:
        return token in self.answers

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        instance: str | None = None,
        client: str = "c",
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        known: bool = False,
        skip: bool = False,
    ) -> int:
        token = self.token()
        self.give(
            Join(
                token,
                group,
                member,
                instance,
                client,
                "/127.0.0.1",
                session_ms,
                rebalance_ms,
                "consumer",
                protocols,
                known,
                skip,
            )
        )
        return token

    def sync(
        self,
        answer: JoinAnswer,
        assignments: dict[str, bytes] | None = None,
        group: str = "g",
        instance: str | None = None,
    ) -> int:
        token = self.token()
        self.give(
            Sync(
                token,
                group,
                answer.generation_id,
                answer.member_id,
                instance,
                None,
                None,
                tuple((assignments or {}).items()),
            )
        )
        return token

    def stable_group(self, count: int, group: str = "g") -> list[JoinAnswer]:
        """A group of this number of members with assignments a0, a1, …"""
        answers = self.joined_group(count, group)
        leader = next(item for item in answers if item.leader == item.member_id)
        for item in answers:
            if item is not leader:
                self.sync(item, group=group)
        self.sync(leader, {item.member_id: b"a%d" % index for index, item in enumerate(answers)}, group)
        return answers

    def joined_group(self, count: int, group: str = "g") -> list[JoinAnswer]:
        """This number of members that have joined one generation and not synced."""
        ids: list[str] = []
        tokens: list[int] = []
        for _ in range(count):
            first = self.join(group, known=True)
            ids.append(self.answer(first, JoinAnswer).member_id)
        tokens = [self.join(group, member) for member in ids]
        return [self.answer(token, JoinAnswer) for token in tokens]

    def assignment(self, token: object) -> bytes:
        answer = self.answer(token, SyncAnswer)
        assert answer.error is ErrorCode.NONE
        return answer.assignment
