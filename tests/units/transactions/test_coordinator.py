from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.broker.coordinators.transactions import transaction_settings_of
from jesenska.config.layers import BrokerConfig
from jesenska.transactions.events import NO_PRODUCER, Producer, ProducerAnswer
from jesenska.transactions.records import read_record
from jesenska.transactions.settings import TransactionSettings
from jesenska.transactions.states import TransactionState
from tests.units.transactions.driver import P0, P1, P2, WRITE_TIMEOUT_MS, Driver

_LAST_GIVEN = 32766


def _at_epoch(driver: Driver, epoch: int) -> Producer:
    """A producer of that epoch, as if transactions had raised it."""
    first = driver.begin()
    driver.coordinator._known["a"].value = driver.value()._replace(producer_epoch=epoch)
    return first._replace(epoch=epoch)


def test_a_producer_that_begins_again_has_a_raised_epoch_and_fences_the_one_of_before() -> None:
    driver = Driver()
    first = driver.begin()
    second = driver.begin()
    assert second == first._replace(epoch=first.epoch + 1)
    assert driver.add(first, P0) is ErrorCode.PRODUCER_FENCED
    assert driver.add(second, P0) is ErrorCode.NONE


def test_an_end_is_answered_when_the_decision_is_in_the_log_and_before_the_markers() -> None:
    driver = Driver(at_once=False)
    token = driver.ask_init()
    driver.commit()
    answer = driver.answer(token)
    assert answer is not None
    producer = answer.producer
    driver.ask_add(producer, P0, P1)
    driver.commit()
    token = driver.ask_end(producer, commits=True)
    assert driver.answer(token) is None
    assert not driver.orders
    driver.commit()
    assert driver.answer(token) == ProducerAnswer(ErrorCode.NONE, producer)
    assert driver.state() is TransactionState.PREPARE_COMMIT
    (order,) = driver.orders
    assert (order.producer, order.commits, order.partitions) == (producer, True, frozenset((P0, P1)))
    driver.mark(P0)
    assert not driver.pending
    driver.mark(P1)
    driver.commit()
    assert driver.state() is TransactionState.COMPLETE_COMMIT


def test_whoever_asks_while_a_record_or_markers_are_on_their_way_is_told_to_come_back() -> None:
    driver = Driver(at_once=False)
    driver.ask_init()
    early = driver.ask_init()
    driver.commit()
    producer = Producer(driver.value().producer_id, 0)
    driver.ask_add(producer, P0)
    meanwhile = [driver.ask_add(producer, P1), driver.ask_end(producer, commits=True), driver.ask_init()]
    driver.commit()
    driver.ask_end(producer, commits=False)
    driver.commit()
    marking = [
        driver.ask_add(producer, P1),
        driver.ask_end(producer, commits=False),
        driver.ask_init(),
        driver.ask_end(producer, commits=True, version=2),
    ]
    told = [driver.answer(token) for token in (early, *meanwhile, *marking)]
    assert told == [ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)] * len(told)


def test_while_markers_are_on_their_way_an_end_without_raised_epochs_is_fenced_first_and_one_with_them_is_not() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0)
    driver.at_once = False
    driver.ask_end(producer, commits=True)
    driver.commit()
    for wrong, error in (
        (producer._replace(epoch=7), ErrorCode.PRODUCER_FENCED),
        (producer._replace(producer_id=7), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (producer, ErrorCode.CONCURRENT_TRANSACTIONS),
    ):
        assert driver.end(wrong).error is error
        assert driver.end(wrong, version=2).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_with_version_2_each_end_raises_the_epoch_and_may_be_asked_for_again() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0, version=2)
    following = producer._replace(epoch=producer.epoch + 1)
    assert driver.end(producer, version=2) == ProducerAnswer(ErrorCode.NONE, following)
    assert driver.end(producer, version=2) == ProducerAnswer(ErrorCode.NONE, following)
    assert driver.end(producer, commits=False, version=2).error is ErrorCode.INVALID_TXN_STATE
    assert driver.add(producer, P0, version=2) is ErrorCode.PRODUCER_FENCED
    assert driver.add(following, P0, version=2) is ErrorCode.NONE


def test_an_end_is_not_repeated_by_who_was_replaced_by_a_producer_that_raises_no_epochs() -> None:
    """The completed end belongs to the other producer, whose epoch would be given to two."""
    for commits in (False, True):
        driver = Driver()
        first = driver.begin()
        second = driver.begin()
        driver.add(second, P0)
        assert driver.end(second, commits=commits).error is ErrorCode.NONE
        assert driver.end(first, commits=commits, version=2) == ProducerAnswer(ErrorCode.PRODUCER_FENCED)


def test_with_version_2_an_abort_without_a_transaction_raises_the_epoch_too() -> None:
    driver = Driver()
    producer = driver.begin()
    following = producer._replace(epoch=1)
    assert driver.end(producer, commits=True, version=2).error is ErrorCode.INVALID_TXN_STATE
    assert driver.end(producer, commits=False, version=2) == ProducerAnswer(ErrorCode.NONE, following)
    assert driver.state() is TransactionState.COMPLETE_ABORT
    assert driver.end(following, commits=False, version=2).producer == producer._replace(epoch=2)


def test_an_open_transaction_is_aborted_before_another_producer_begins() -> None:
    driver = Driver(at_once=False)
    driver.ask_init()
    driver.commit()
    first = Producer(driver.value().producer_id, 0)
    driver.ask_add(first, P0)
    driver.commit()
    token = driver.ask_init()
    driver.commit()
    assert driver.answer(token) == ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
    (order,) = driver.orders
    assert (order.commits, order.producer) == (False, first._replace(epoch=1))
    driver.at_once = True
    driver.mark()
    assert driver.begin() == first._replace(epoch=2)


def test_epochs_that_are_used_up_give_another_producer_id() -> None:
    driver = Driver()
    producer = _at_epoch(driver, _LAST_GIVEN)
    second = driver.begin()
    assert second.epoch == 0
    assert second.producer_id != producer.producer_id
    assert driver.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # It has not seen the answer, and repeats its request unchanged.
    assert driver.init(expected=producer).error is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_epochs_are_used_up_and_that_goes_on_may_ask_again() -> None:
    driver = Driver()
    producer = _at_epoch(driver, _LAST_GIVEN)
    second = driver.init(expected=producer).producer
    assert second.epoch == 0
    assert driver.init(expected=producer) == ProducerAnswer(ErrorCode.NONE, second)


def test_an_end_that_uses_up_the_epochs_gives_another_producer_id() -> None:
    driver = Driver(at_once=False)
    driver.at_once = True
    producer = _at_epoch(driver, _LAST_GIVEN)
    driver.add(producer, P0, version=2)
    driver.at_once = False
    token = driver.ask_end(producer, commits=True, version=2)
    driver.commit()
    answer = driver.answer(token)
    assert answer is not None
    assert answer.producer.epoch == 0
    assert driver.orders[0].producer == producer._replace(epoch=_LAST_GIVEN + 1)
    driver.crash()
    driver.mark()
    driver.commit()
    assert Producer(driver.value().producer_id, driver.value().producer_epoch) == answer.producer
    assert driver.value().previous_producer_id == producer.producer_id
    driver.at_once = True
    assert driver.end(producer, version=2) == ProducerAnswer(ErrorCode.NONE, answer.producer)


def test_the_last_epoch_is_for_fencing_and_nobody_is_given_it() -> None:
    driver = Driver(TransactionSettings(abort_interval_ms=1000))
    producer = _at_epoch(driver, _LAST_GIVEN)
    driver.add(producer, P0, version=2)
    driver.tick(70_000)
    last = producer._replace(epoch=_LAST_GIVEN + 1)
    assert Producer(driver.value().producer_id, driver.value().producer_epoch) == last
    assert driver.add(last, P0, version=2) is ErrorCode.PRODUCER_FENCED
    assert driver.end(last, commits=False, version=2).error is ErrorCode.PRODUCER_FENCED
    assert driver.init(expected=last).error is ErrorCode.PRODUCER_FENCED
    given = driver.init(expected=producer).producer
    assert given.epoch == 0
    assert given.producer_id != producer.producer_id


def test_without_an_id_at_hand_an_end_that_uses_up_the_epochs_decides_nothing_and_may_be_asked_for_again() -> None:
    driver = Driver()
    producer = _at_epoch(driver, _LAST_GIVEN)
    driver.add(producer, P0, version=2)
    take, driver.coordinator._take_producer_id = driver.coordinator._take_producer_id, lambda: None
    assert driver.end(producer, version=2).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.state() is TransactionState.ONGOING
    driver.coordinator._take_producer_id = take
    assert driver.end(producer, version=2).error is ErrorCode.NONE
    assert driver.state() is TransactionState.COMPLETE_COMMIT


def test_without_an_id_at_hand_a_producer_is_told_to_come_back() -> None:
    driver = Driver()
    driver.coordinator._take_producer_id = lambda: None
    assert driver.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.coordinator.get("a") is None


def test_a_write_that_fails_leaves_everything_as_it_was() -> None:
    driver = Driver(at_once=False)
    token = driver.ask_init()
    driver.fail()
    assert driver.answer(token) == ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driver.coordinator.get("a") is None
    driver.at_once = True
    producer = driver.begin()
    driver.add(producer, P0)
    driver.at_once = False
    token = driver.ask_end(producer, commits=True)
    driver.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert driver.answer(token) == ProducerAnswer(ErrorCode.NOT_COORDINATOR)
    assert driver.state() is TransactionState.ONGOING
    driver.at_once = True
    assert driver.end(producer, commits=False).error is ErrorCode.NONE


def test_who_waits_too_long_is_told_so_and_the_write_counts_all_the_same() -> None:
    driver = Driver(at_once=False)
    driver.ask_init()
    driver.commit()
    producer = Producer(driver.value().producer_id, 0)
    token = driver.ask_add(producer, P0)
    driver.tick(WRITE_TIMEOUT_MS)
    assert driver.answer(token) == ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driver.state() is TransactionState.EMPTY
    driver.commit()
    assert driver.value().partitions == {P0}


def test_a_decision_that_is_found_in_the_log_is_carried_out() -> None:
    for commits in (True, False):
        driver = Driver()
        producer = driver.begin()
        driver.add(producer, P0, P2)
        driver.at_once = False
        driver.ask_end(producer, commits=commits)
        driver.commit()
        driver.mark(P0)
        driver.crash()
        (order,) = driver.orders
        assert (order.commits, order.partitions, order.producer) == (commits, frozenset((P0, P2)), producer)
        driver.at_once = True
        driver.mark()
        assert driver.state() is (TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT)


def test_an_end_that_cannot_be_written_as_complete_is_carried_out_again() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0)
    driver.at_once = False
    driver.ask_end(producer, commits=True)
    driver.commit()
    driver.mark()
    driver.fail()
    assert not driver.orders
    driver.at_once = True
    driver.tick(1000)
    assert driver.state() is TransactionState.COMPLETE_COMMIT


def test_ends_that_cannot_be_written_as_complete_are_carried_out_again_each_after_the_same_pause() -> None:
    driver = Driver()
    producers = {name: driver.begin(name) for name in "ab"}
    for name, producer in producers.items():
        driver.add(producer, P0, name=name)
    driver.at_once = False
    for name, producer in producers.items():
        driver.ask_end(producer, commits=True, name=name)
    for _ in producers:
        driver.commit()
        driver.mark()
    driver.fail()
    first_due_ms = driver.operations.next_deadline_ms()
    driver.tick(50)
    driver.fail()
    assert driver.operations.next_deadline_ms() == first_due_ms
    driver.at_once = True
    driver.tick(1000)
    assert [driver.state(name) for name in "ab"] == [TransactionState.COMPLETE_COMMIT] * 2


@pytest.mark.parametrize("commits", [True, False])
def test_below_version_2_an_end_is_answered_again_and_the_other_end_is_refused(commits: bool) -> None:
    driver = Driver(transaction_version=0)
    producer = driver.begin()
    assert driver.end(producer, commits=commits).error is ErrorCode.INVALID_TXN_STATE
    driver.add(producer, P0)
    assert driver.end(producer, commits=commits) == ProducerAnswer(ErrorCode.NONE, producer)
    assert driver.state() is (TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT)
    assert driver.end(producer, commits=commits) == ProducerAnswer(ErrorCode.NONE, producer)
    assert driver.end(producer, commits=not commits).error is ErrorCode.INVALID_TXN_STATE


def test_without_a_setting_a_coordinator_goes_by_the_brokers_defaults() -> None:
    assert TransactionSettings() == transaction_settings_of(BrokerConfig({}))


def test_markers_of_an_end_of_before_say_nothing_about_this_one() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0, version=2)
    driver.at_once = False
    driver.ask_end(producer, commits=True, version=2)
    driver.commit()
    (order,) = driver.orders
    driver.at_once = True
    driver.mark()
    following = producer._replace(epoch=1)
    driver.add(following, P0, P1, version=2)
    driver.at_once = False
    driver.ask_end(following, commits=True, version=2)
    driver.commit()
    driver.orders.insert(0, order)
    driver.mark()
    assert driver.coordinator._known["a"].awaited == {P0, P1}


def test_a_transaction_whose_time_is_over_is_aborted_and_its_producer_fenced() -> None:
    driver = Driver(TransactionSettings(abort_interval_ms=1000))
    producer = driver.begin(timeout_ms=5000)
    driver.add(producer, P0)
    driver.tick(4000)
    assert driver.state() is TransactionState.ONGOING
    driver.tick(3000)
    assert driver.state() is TransactionState.COMPLETE_ABORT
    assert driver.end(producer).error is ErrorCode.PRODUCER_FENCED
    # If transactions raise the epoch, it may continue with the next one.
    assert driver.init(expected=producer).producer == producer._replace(epoch=1)


def test_below_version_2_a_producer_that_was_fenced_by_time_may_not_go_on() -> None:
    driver = Driver(TransactionSettings(abort_interval_ms=1000), transaction_version=0)
    producer = driver.begin(timeout_ms=5000)
    driver.add(producer, P0)
    driver.tick(7000)
    assert driver.init(expected=producer).error is ErrorCode.PRODUCER_FENCED
    assert driver.value().client_version == 0


def test_ids_that_nobody_uses_are_forgotten_and_open_ones_are_not() -> None:
    driver = Driver(TransactionSettings(id_expiration_ms=10_000, remove_interval_ms=1000))
    driver.begin("idle")
    driver.add(driver.begin("open", timeout_ms=900_000), P0, name="open")
    driver.tick(12_000)
    assert driver.coordinator.get("idle") is None
    assert driver.state("open") is TransactionState.ONGOING
    tombstone = read_record(*driver.log[-1])
    assert tombstone is not None
    assert (tombstone.transactional_id, tombstone.value) == ("idle", None)
    driver.crash()
    assert [name for name, _ in driver.coordinator.all()] == ["open"]


def test_verification_says_what_is_in_the_transaction() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0)
    verify = driver.coordinator.verify
    assert verify("a", producer, (P0, P1)) == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    assert verify("a", producer._replace(epoch=1), (P0,)) == {P0: ErrorCode.PRODUCER_FENCED}
    assert verify("a", producer._replace(producer_id=1), (P0,)) == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert verify("b", producer, (P0,)) == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    driver.at_once = False
    driver.ask_end(producer, commits=True)
    driver.commit()
    assert verify("a", producer, (P0,)) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_the_first_producer_of_an_id_gets_one_whatever_it_says_that_it_was() -> None:
    driver = Driver()
    found = driver.init(expected=Producer(7, 7))
    assert found.error is ErrorCode.NONE
    assert found.producer != NO_PRODUCER
    assert found.producer.epoch == 0
