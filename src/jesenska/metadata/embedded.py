"""The metadata tree in the broker's own process. Requests are decided on the event loop, a thread writes them to the
journal, and answers and watch events are sent after the commit.

    request -> head.decide -> queue -> journal.commit (thread, everything that has queued, one fsync)
                                          |
            answers, watches <- committed.apply

`head` is the tree with all decided changes, so that a request need not wait for the commit of the request before it.
Readers see `committed`, the tree with all committed changes. A refusal also waits for the commit of earlier requests,
because their changes may be its cause.

If a commit fails, none of its changes is made: `head` is replaced by a copy of `committed`, and all waiting requests
are refused. After a full disk the tree remains usable, because a later change may find room. After any other failure
the content of the disk is unknown. The tree then accepts no more requests, its sessions are LOST, and the broker must
be restarted.

After a restart, the sessions of the earlier process are closed, since they cannot be resumed. If the tree is opened
with `served`, the sessions of clients over a socket are kept (`zookeeper.server`, ids from CLIENT_SESSION_ID_BASE),
because these clients can connect again. `EmbeddedTree.simulated` has no file; it is for tests and the simulator."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from jesenska.base.clock import Clock
from jesenska.base.limits import TREE_PENDING_MAX
from jesenska.metadata.journal import Journal, JournalFullError, SqliteJournal
from jesenska.metadata.store import SessionState, StateCallback, WatchCallback
from jesenska.metadata.tree import CloseSession, Multi, OpenSession, Request, Tree, check_path
from jesenska.metadata.tree_operations import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    Operation,
    Result,
    SessionClosed,
    SessionExpiredError,
    SetData,
    Stat,
    Transaction,
    TreeError,
)
from jesenska.metadata.watches import Watches, WatchEvent

T = TypeVar("T")

DEFAULT_SESSION_TIMEOUT_MS = 18_000
_SESSION_ID_BASE = 1 << 56  # as ZooKeeper's: the server's number in the highest byte
CLIENT_SESSION_ID_BASE = 2 << 56

logger = logging.getLogger(__name__)

#: Callback of a request: called once, with the results or an error, when the answer may be sent. It runs on the event
#: loop and must not raise.
Done = Callable[[tuple[Result, ...], Exception | None], None]


class _Pending:
    """A decided request whose answer is not sent yet: a transaction with its results, or a refusal that waits until
    earlier requests are committed."""

    __slots__ = ("done", "error", "results", "transaction")

    def __init__(
        self,
        transaction: Transaction | None,
        results: tuple[Result, ...],
        error: TreeError | MultiError | None,
        done: Done,
    ) -> None:
        self.transaction, self.results, self.error, self.done = transaction, results, error, done


class StoreFullError(ConnectionLossError):
    """Raised when the disk is full. The change was not made, and may be tried again when there is room."""


class EmbeddedTree:
    """The owner of the metadata tree in this process. `session` opens stores (sessions) on the tree."""

    def __init__(
        self, tree: Tree, clock: Clock, journal: Journal | None, executor: Executor | None, secret: bytes = bytes(32)
    ) -> None:
        #: The secret from which the passwords of sessions are computed. It is the same after a restart.
        self.secret = secret
        self._committed = tree
        self._head = tree.copy()
        self._clock = clock
        self._journal = journal
        self._executor = executor
        self._queue: deque[_Pending] = deque()
        self._committing = self._commit_is_due = False
        self._failure: str | None = None
        #: True if a full disk must be logged here, because the clients whose changes are refused do not learn the
        #: reason.
        self._tells_refusals = False
        self._sessions: dict[int, EmbeddedStore] = {}
        self._watches: Watches[_Watcher] = Watches()
        self._listeners: list[Callable[[Transaction], None]] = []
        self._after: list[Callable[[], None]] = []

    @staticmethod
    async def open(path: Path, clock: Clock, *, served: bool = False, executor: Executor | None = None) -> EmbeddedTree:
        """Opens the tree whose journal is in the file `path`, and creates the file if it is missing. Raises
        JournalError, with a message of one sentence, if that fails.

        `served`: the tree has clients over a socket, so their sessions are kept, and the journal is prepared for many
        writes. `executor` must have a single thread; the tree shuts it down at the end."""
        executor = executor or ThreadPoolExecutor(max_workers=1, thread_name_prefix="jesenska-metadata")
        try:
            journal, tree = await asyncio.get_running_loop().run_in_executor(
                executor, partial(SqliteJournal.open, path, many_writes=served)
            )
        except BaseException:
            executor.shutdown(wait=False)
            raise
        embedded = EmbeddedTree(tree, clock, journal, executor, journal.secret)
        embedded._tells_refusals = served
        try:
            for session_id in sorted(tree.sessions):
                if served and session_id >= CLIENT_SESSION_ID_BASE:
                    continue
                await embedded._submit(CloseSession(session_id))
        except BaseException:
            await embedded.close()
            raise
        return embedded

    @staticmethod
    def simulated(clock: Clock, tree: Tree | None = None) -> EmbeddedTree:
        """Returns a tree without a file: a change is committed in the next iteration of the event loop."""
        return EmbeddedTree(tree if tree is not None else Tree(), clock, None, None)

    @property
    def tree(self) -> Tree:
        """Returns the committed tree. Callers must not change it."""
        return self._committed

    @property
    def failure(self) -> str | None:
        """Returns the reason why the tree accepts no requests, or None if it accepts requests."""
        return self._failure

    def on_commit(self, listener: Callable[[Transaction], None], after: Callable[[], None] | None = None) -> None:
        """Registers `listener`, which is called with every committed transaction, after `tree` contains it and before
        its answer is sent. `after` is called when all requests of the same commit have been answered. Both run on the
        event loop and must not raise."""
        self._listeners.append(listener)
        if after is not None:
            self._after.append(after)

    def submit(self, request: Request, done: Done) -> None:
        """Decides a request at once, and calls `done` when the answer may be sent. Answers are in the order of the
        requests. When `done` is called for a request, `tree` contains the changes of this request and all earlier
        requests, and of no later request. `done` may be called before this method returns."""
        if self._failure is not None:
            done((), ConnectionLossError("/", self._failure))
            return
        if len(self._queue) >= TREE_PENDING_MAX:
            done((), ConnectionLossError("/", f"{TREE_PENDING_MAX} changes wait for the disk already"))
            return
        try:
            decision = self._head.decide(request, self._clock.now_ms())
        except (TreeError, MultiError) as error:
            item = _Pending(None, (), error, done)
        else:
            item = _Pending(decision.transaction, decision.results, None, done)
        if item.transaction is None and not self._queue and not self._committing:
            done(item.results, item.error)
            return
        self._queue.append(item)
        self._commit_soon()

    def open_client_session(self, timeout_ms: int, done: Callable[[int, Exception | None], None]) -> None:
        """Opens a session for a client over a socket, with an id that was never used before. The caller decides when
        the session expires. `done` gets the id or an error."""
        session_id = CLIENT_SESSION_ID_BASE | (self._head.last_zxid + 1)
        self.submit(OpenSession(session_id, timeout_ms), lambda _, error: done(session_id, error))

    def wait(self, done: Done) -> None:
        """Calls `done` when all requests submitted before this call are committed or refused."""
        if self._committing or self._queue:
            self._queue.append(_Pending(None, (), None, done))
            self._commit_soon()
        else:
            done((), None)

    async def session(self, timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> EmbeddedStore:
        """Opens a new session for code in this process. The session has no connection that could end, so it lasts
        until it is closed or the process ends."""
        session_id = _SESSION_ID_BASE | (self._head.last_zxid + 1)
        store = EmbeddedStore(self, session_id)
        self._sessions[session_id] = store
        try:
            await self._submit(OpenSession(session_id, timeout_ms))
        except BaseException:
            self._sessions.pop(session_id, None)
            raise
        return store

    async def expire(self, session_id: int) -> None:
        """Ends a session as if its timeout had passed: its ephemeral nodes are deleted, and its store is EXPIRED."""
        await self._submit(CloseSession(session_id))

    async def close(self) -> None:
        """Waits until all decided changes are committed, then closes the journal's file. Sessions that are open remain
        in the file, and are closed at the next start."""
        self._failure = self._failure or "the store is closed"
        try:
            await self._barrier()
        except ConnectionLossError:
            pass  # the callers have got the error
        for store in list(self._sessions.values()):
            store._enter(SessionState.CLOSED)
        self._sessions.clear()
        if self._executor is not None and self._journal is not None:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._journal.close)
            self._executor.shutdown(wait=True)
            self._journal = self._executor = None

    # Deciding and committing

    def _submit(self, request: Request) -> asyncio.Future[tuple[Result, ...]]:
        """Decides a request at once. The returned future gets the results when the answer may be sent."""
        future: asyncio.Future[tuple[Result, ...]] = asyncio.get_running_loop().create_future()
        self.submit(request, partial(_settle, future))
        return future

    def _commit_soon(self) -> None:
        """Schedules a commit for the end of this iteration of the event loop. All requests that have arrived by then
        share one fsync."""
        if self._committing or self._commit_is_due:
            return
        if self._journal is None:
            self._commit_next()
            return
        self._commit_is_due = True
        asyncio.get_running_loop().call_soon(self._commit_due)

    def _commit_due(self) -> None:
        self._commit_is_due = False
        self._commit_next()

    def _commit_next(self) -> None:
        if self._committing or not self._queue:
            return
        self._committing = True
        batch = list(self._queue)
        self._queue.clear()
        loop = asyncio.get_running_loop()
        transactions = [item.transaction for item in batch if item.transaction is not None]
        if self._journal is None or self._executor is None or not transactions:
            loop.call_soon(self._committed_batch, batch, None)
            return
        self._executor.submit(self._write, self._journal, transactions, batch, loop)

    def _write(
        self, journal: Journal, transactions: list[Transaction], batch: list[_Pending], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Writes transactions to the journal. Runs on the executor's thread."""
        failure: BaseException | None = None
        try:
            journal.commit(transactions)
        except BaseException as error:
            failure = error
        loop.call_soon_threadsafe(self._committed_batch, batch, failure)

    def _committed_batch(self, batch: list[_Pending], failure: BaseException | None) -> None:
        if failure is not None:
            self._fail(batch, failure)
        else:
            for item in batch:
                if item.transaction is not None:
                    self._publish(item.transaction)
                item.done(item.results, item.error)
        self._committing = False
        self._commit_next()
        for after in self._after:
            after()

    def _publish(self, transaction: Transaction) -> None:
        """Applies a committed transaction to the tree that readers see. Calls the watches that it fires, and marks the
        stores of the sessions that it closes as EXPIRED."""
        changes = self._committed.apply(transaction)
        for watcher, event in self._watches.fired(changes):
            watcher.call(event)
        for listener in self._listeners:
            listener(transaction)
        for change in changes:
            if isinstance(change, SessionClosed):
                store = self._sessions.pop(change.session_id, None)
                if store is not None:
                    self._forget_watches(store)
                    store._enter(SessionState.EXPIRED)

    def _fail(self, batch: list[_Pending], failure: BaseException) -> None:
        waiting = [*batch, *self._queue]
        self._queue.clear()
        self._head = self._committed.copy()
        is_full = isinstance(failure, JournalFullError)
        if not is_full:
            self._failure = str(failure)
        elif self._tells_refusals:
            logger.error("%s", failure, extra={"once_a_minute": ("", "tree full")})
        for item in waiting:
            if is_full and item.transaction is None and item.error is None and not item.results:
                item.done((), None)  # it only waited, and the wait is over
            else:
                item.done((), (StoreFullError if is_full else ConnectionLossError)("/", str(failure)))
        if not is_full:
            for store in list(self._sessions.values()):
                store._enter(SessionState.LOST)

    async def _barrier(self) -> None:
        """Waits until all requests submitted before this call are committed or refused."""
        future: asyncio.Future[tuple[Result, ...]] = asyncio.get_running_loop().create_future()
        self.wait(partial(_settle, future))
        await future

    def _forget_watches(self, store: EmbeddedStore) -> None:
        for watcher in [watcher for watcher in self._watches.watchers() if watcher.session_id == store.session_id]:
            self._watches.forget(watcher)


def _settle(future: asyncio.Future[tuple[Result, ...]], results: tuple[Result, ...], error: Exception | None) -> None:
    """Sets the result or the error of a future. Does nothing if the future was cancelled."""
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(results)


class _Watcher(NamedTuple):
    """A watcher of the tree: a session, and the callback that one of its watches calls. If two requests set the same
    watch with the same callback, the callback is called once."""

    session_id: int
    callback: WatchCallback

    def call(self, event: WatchEvent) -> None:
        try:
            self.callback(event)
        except Exception as error:
            # A faulty callback must not stop other watches or answers.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a watch's callback raised", "exception": error}
            )


class EmbeddedStore:
    """A session on the tree in this process. It implements `Store`."""

    def __init__(self, owner: EmbeddedTree, session_id: int) -> None:
        self._owner = owner
        self._session_id = session_id
        self._state = SessionState.CONNECTED
        self._state_callbacks: list[StateCallback] = []
        self._last: asyncio.Future[tuple[Result, ...]] | None = None

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def on_state(self, callback: StateCallback) -> None:
        self._state_callbacks.append(callback)

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        def read() -> tuple[bytes, Stat]:
            data, stat = self._owner._committed.get(path)
            if watch is not None:
                self._owner._watches.watch_data(path, self._watcher(watch))
            return data or b"", stat

        return await self._read(read)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        def read() -> Stat | None:
            stat = self._owner._committed.exists(path)
            if watch is not None:
                self._owner._watches.watch_data(path, self._watcher(watch))
            return stat

        return await self._read(read)

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        def read() -> tuple[list[str], Stat]:
            found = self._owner._committed.children(path)
            if watch is not None:
                self._owner._watches.watch_children(path, self._watcher(watch))
            return found

        return await self._read(read)

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> Result:
        return (await self._change((Create(path, data, ephemeral, sequential, acl),)))[0]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = (await self._change((SetData(path, data, version),)))[0].stat
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._change((Delete(path, version),))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if not operations:
            return ()
        try:
            return await self._change(tuple(operations))
        except TreeError as error:
            if len(operations) == 1 and not isinstance(error, ConnectionLossError | SessionExpiredError):
                raise MultiError(0, 1, error) from error
            raise

    async def sync(self, path: str = "/") -> None:
        check_path(path)
        self._require_alive()
        await self._owner._barrier()

    async def close(self) -> None:
        if self._state in (SessionState.CLOSED, SessionState.EXPIRED):
            return
        self._owner._sessions.pop(self._session_id, None)
        self._owner._forget_watches(self)
        self._enter(SessionState.CLOSED)
        try:
            await self._owner._submit(CloseSession(self._session_id))
        except ConnectionLossError:
            pass  # the session is closed at the next start

    def _change(self, operations: tuple[Operation, ...]) -> asyncio.Future[tuple[Result, ...]]:
        self._require_alive()
        self._last = self._owner._submit(Multi(self._session_id, operations))
        return self._last

    async def _read(self, read: Callable[[], T]) -> T:
        """Runs a read after the writes that this session requested earlier, and before the writes that it requests
        later."""
        self._require_alive()
        if self._last is None or self._last.done():
            return read()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def in_its_place(_: tuple[Result, ...], error: Exception | None) -> None:
            if future.cancelled():
                return
            try:
                if error is not None:
                    raise error
                self._require_alive()
                future.set_result(read())
            except TreeError as refusal:
                future.set_exception(refusal)

        self._owner.wait(in_its_place)
        return await future

    def _require_alive(self) -> None:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpiredError("/", f"the session is {self._state.value}")
        if self._owner._failure is not None:
            raise ConnectionLossError("/", self._owner._failure)

    def _watcher(self, callback: WatchCallback) -> _Watcher:
        return _Watcher(self._session_id, callback)

    def _enter(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for callback in self._state_callbacks:
            callback(state)
