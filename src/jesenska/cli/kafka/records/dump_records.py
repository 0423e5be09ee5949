"""The records of `__share_group_state` and of `__transaction_state` as Apache Kafka 4.3.1 writes them, for
kafka-dump-log. A key begins with its kind, an INT16, and a value with its version. The class of a value has the same
kind number as the class of its key."""

from __future__ import annotations

import uuid

from jesenska.transactions.records import TransactionLogKey, TransactionLogValue
from jesenska.wire.language import INT8, INT16, INT32, INT64, STRING, UUID, Array, Message, Struct, field


class ShareSnapshotKey(Message, key=0):
    group_id: str = field(STRING)
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)


class ShareUpdateKey(Message, key=1):
    group_id: str = field(STRING)
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)


class ShareStateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class ShareSnapshotValue(Message, key=0, flexible=0):
    snapshot_epoch: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, tag=0, default=-1)
    create_timestamp: int = field(INT64)
    write_timestamp: int = field(INT64)
    state_batches: list[ShareStateBatch] = field(Array(ShareStateBatch))


class ShareUpdateValue(Message, key=1, flexible=0):
    snapshot_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, tag=0, default=-1)
    state_batches: list[ShareStateBatch] = field(Array(ShareStateBatch))


Kinds = dict[int, tuple[type[Message], type[Message]]]
TRANSACTIONS: Kinds = {0: (TransactionLogKey, TransactionLogValue)}
SHARE_GROUPS: Kinds = {0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)}
