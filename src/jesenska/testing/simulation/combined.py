"""Combined faults of several brokers. Each combination is aimed at a broker, or at a moment, for which a programming
error is most likely. The "heir" of a partition is the broker that becomes its leader next.

twice               two faults within half a second
place taken         a broker is killed; then an operator deletes the controller's node in ZooKeeper, and the controller
                    is paused for a moment
stale orders        the controller cannot reach a broker, has a request to send to it, and is replaced
registered again    as in "stale orders", and the broker's ZooKeeper session ends, so that it registers again
heir goes           a follower has fewer records when the leader ends, half of the time by a few milliseconds; the next
                    leader may also end at once
ahead of the heir   a leader is killed while another follower has more records than the heir, and does not have the
                    newest high watermark
leader alone        a leader cannot reach its followers, but clients reach it, and repeat requests without a response;
                    then it may be killed
power and more      a broker loses its power and starts again soon; another broker may be killed in between
last one's power    a leader is cut off from its followers, or they are paused. When it is the only in-sync replica, it
                    loses its power. This is done only if min.insync.replicas is 2, so that no record may be lost
just started        a broker is killed or stopped, and is hit again within 0.1 s after its start
hit while behind    a follower is cut off from a leader until it is out of sync, and then hit by a fault
slow heir           a group coordinator ends; the next coordinator begins with a slow disk, and may also be replaced
far behind          a follower that has missed many records comes back with a slow disk"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.world import World
from jesenska.testing.simulation.watches.cluster_watch import ClusterWatch

#: The seconds for which a fault waits until a leader is the only in-sync replica, and the seconds between two checks.
_PATIENCE_SECONDS, _LOOK_SECONDS = 9.0, 0.005
#: The seconds for which a fault waits until a follower has more records than the heir, and the seconds between two
#: checks.
_AHEAD_SECONDS, _CLOSE_LOOK_SECONDS = 0.02, 0.0002


class Hitting(Protocol):
    """The simulation as combined faults use it: its brokers, and the methods that apply faults. Methods that return a
    bool return True if the fault was applied."""

    world: World
    watch: ClusterWatch

    @property
    def hosts(self) -> Sequence[BrokerHost]: ...

    @property
    def topic_partitions(self) -> Sequence[TopicPartition]: ...

    @property
    def controller(self) -> BrokerHost | None: ...

    def later(self, seconds: float, what: Callable[[], object]) -> None: ...

    def simple_fault(self) -> None: ...

    def kill(self, host: BrokerHost) -> bool: ...

    def stop(self, host: BrokerHost) -> bool: ...

    def pause(self, host: BrokerHost, seconds: float) -> bool: ...

    def lose_power(self, host: BrokerHost, back_after: float | None = None) -> bool: ...

    def is_left_alone(self, host: BrokerHost) -> bool: ...

    def lose_power_alone(self, host: BrokerHost, back_after: float) -> bool: ...

    def hit(self, host: BrokerHost) -> None: ...

    def slow_down(self, host: BrokerHost, times: float, seconds: float) -> bool: ...

    def cut_between(self, host: BrokerHost, other: BrokerHost, seconds: float) -> bool: ...

    def hold_back(self, host: BrokerHost, other: BrokerHost, seconds: float) -> bool: ...

    def cut_from_tree(self, host: BrokerHost, seconds: float) -> bool: ...

    def reset_clients(self, host: BrokerHost) -> None: ...

    def take_controllers_place(self, gone: BrokerHost, pause_seconds: float) -> None: ...


class CombinedFaults:
    """The combined faults of a simulation with several brokers."""

    def __init__(self, simulation: Hitting) -> None:
        self._simulation = simulation
        self._random = simulation.world.random
        self._kinds: tuple[Callable[[], None], ...] = (
            self._twice,
            self._place_taken,
            self._stale_orders,
            self._registered_again,
            self._heir_goes,
            self._ahead_of_heir,
            self._leader_alone,
            self._power_and_more,
            self.last_ones_power,
            self._just_started,
            self._hit_while_out_of_sync,
            self._slow_heir,
            self._late_follower,
        )

    def strike(self) -> None:
        self._random.choice(self._kinds)()

    # --- targets -----------------------------------------------------------------------------------------------------

    def _others(self, host: BrokerHost) -> list[BrokerHost]:
        """Returns the other brokers in random order."""
        others = [one for one in self._simulation.hosts if one is not host]
        self._random.shuffle(others)
        return others

    def _led(self) -> tuple[TopicPartition, BrokerHost] | None:
        """Returns a random partition of the topic, and its leader. Returns None if the leader is not up."""
        topic_partition = self._random.choice(self._simulation.topic_partitions)
        leader = self._simulation.watch.leader_of(topic_partition)
        if leader < 0 or not self._simulation.hosts[leader].is_up:
            return None
        return topic_partition, self._simulation.hosts[leader]

    # --- faults ------------------------------------------------------------------------------------------------------

    def _twice(self) -> None:
        for _ in range(2):
            self._simulation.later(self._random.uniform(0.0, 0.4), self._simulation.simple_fault)

    def _place_taken(self) -> None:
        simulation, controller = self._simulation, self._simulation.controller
        if controller is None:
            return
        gone, seconds = self._others(controller)[0], self._random.uniform(0.003, 0.05)
        if simulation.kill(gone):
            simulation.watch.when_gone(
                gone.number, lambda: simulation.later(0.0, lambda: simulation.pause(controller, seconds))
            )
            simulation.take_controllers_place(gone, self._random.uniform(0.0, 0.005))

    def _stale_orders(self) -> None:
        simulation, controller = self._simulation, self._simulation.controller
        if controller is None:
            return
        first, second = self._others(controller)[:2]
        if simulation.kill(second):
            simulation.cut_between(controller, first, self._random.uniform(5.0, 9.0))
            simulation.take_controllers_place(second, self._random.uniform(0.05, 0.5))

    def _registered_again(self) -> None:
        simulation, controller, uniform = self._simulation, self._simulation.controller, self._random.uniform
        if controller is None:
            return
        first, second = self._others(controller)[:2]
        simulation.cut_between(controller, first, uniform(8.0, 11.0))
        seconds = uniform(4.2, 5.5)
        simulation.later(uniform(0.05, 0.3), lambda: simulation.stop(second))
        simulation.later(uniform(0.4, 1.0), lambda: simulation.cut_from_tree(first, seconds))

    def _heir_goes(self) -> None:
        simulation, uniform, found = self._simulation, self._random.uniform, self._led()
        if found is None:
            return
        topic_partition, leader = found
        simulation.cut_between(leader, self._others(leader)[0], uniform(1.0, 6.0))

        def heir(number: int) -> None:
            simulation.later(uniform(0.0, 0.03), lambda: simulation.kill(simulation.hosts[number]))

        def go() -> None:
            if self._random.random() < 0.6:
                simulation.watch.when_led(topic_partition, heir)
            if self._random.random() < 0.6:
                simulation.kill(leader)
            else:
                simulation.pause(leader, uniform(4.0, 8.0))

        simulation.later(uniform(0.0, 0.02) if self._random.random() < 0.5 else uniform(0.05, 1.0), go)

    def _ahead_of_heir(self) -> None:
        """Kills the leader while another follower has more records than the heir. The heir's next fetch request is
        delayed until the other followers have more records. The late request then advances the high watermark. Its
        response does not reach the heir, and the other followers get the high watermark only with the next record."""
        simulation, uniform, found = self._simulation, self._random.uniform, self._led()
        number = -1 if found is None else simulation.watch.heir_of(found[0])
        if found is None or number < 0:
            return
        (topic_partition, leader), heir = found, simulation.hosts[number]
        began, seconds = simulation.world.now, uniform(0.3, 0.6)
        if not simulation.hold_back(heir, leader, seconds):
            return
        simulation.later(seconds - 0.05, lambda: simulation.hold_back(leader, heir, uniform(5.0, 8.0)))

        def look() -> None:
            if (
                simulation.watch.is_ahead_of_heir(topic_partition)
                or simulation.world.now >= began + seconds + _AHEAD_SECONDS
            ):
                simulation.kill(leader)
            else:
                simulation.later(_CLOSE_LOOK_SECONDS, look)

        simulation.later(seconds - 0.01, look)

    def _leader_alone(self) -> None:
        simulation, uniform, found = self._simulation, self._random.uniform, self._led()
        if found is None:
            return
        leader, seconds = found[1], uniform(3.0, 12.0)
        for other in self._others(leader):
            simulation.cut_between(leader, other, seconds)
        simulation.later(uniform(0.2, 1.5), lambda: simulation.reset_clients(leader))
        if self._random.random() < 0.5:
            simulation.later(uniform(0.8, 4.0), lambda: simulation.kill(leader))

    def _power_and_more(self) -> None:
        simulation, found = self._simulation, self._led()
        host = self._random.choice(simulation.hosts) if found is None else found[1]
        if simulation.lose_power(host, self._random.uniform(0.1, 2.0)) and self._random.random() < 0.5:
            other = self._others(host)[0]
            simulation.later(self._random.uniform(0.05, 4.0), lambda: simulation.kill(other))

    def last_ones_power(self, is_cut: bool | None = None) -> None:
        """Makes a leader the only in-sync replica, then takes its power. If `is_cut`, the leader is cut off from its
        followers, and removes them from the ISR itself. Otherwise the followers are paused, and a controller removes
        them from the ISR."""
        simulation, uniform, found = self._simulation, self._random.uniform, self._led()
        if found is None:
            return
        leader, is_cut = found[1], self._random.random() < 0.6 if is_cut is None else is_cut
        for other in self._others(leader):
            if is_cut:
                simulation.cut_between(leader, other, uniform(9.0, 13.0))
            else:
                simulation.pause(other, uniform(5.0, 9.0))
        program, until = leader.program, simulation.world.now + _PATIENCE_SECONDS

        def look() -> None:
            if leader.program is not program or not leader.is_up:
                return
            if simulation.is_left_alone(leader):
                simulation.lose_power_alone(leader, uniform(0.1, 2.0))
            elif simulation.world.now < until:
                simulation.later(_LOOK_SECONDS, look)
            else:
                simulation.kill(leader)

        look()

    def _just_started(self) -> None:
        simulation, uniform = self._simulation, self._random.uniform
        host = self._random.choice(simulation.hosts)
        host.when_started(lambda: simulation.later(uniform(0.0, 0.1), lambda: simulation.hit(host)))
        if self._random.random() < 0.5:
            simulation.kill(host)
        else:
            simulation.stop(host)

    def _hit_while_out_of_sync(self) -> None:
        simulation, uniform, found = self._simulation, self._random.uniform, self._led()
        if found is None:
            return
        follower, seconds = self._others(found[1])[0], uniform(7.0, 10.0)
        simulation.cut_between(found[1], follower, seconds)
        simulation.later(uniform(6.0, seconds + 0.05), lambda: simulation.hit(follower))

    def _slow_heir(self) -> None:
        simulation, uniform, watch = self._simulation, self._random.uniform, self._simulation.watch
        offsets = watch.offsets_partition
        leader = watch.leader_of(offsets)
        if offsets is None or leader < 0:
            return

        def heir(number: int) -> None:
            host = simulation.hosts[number]
            # This time is long enough for the new coordinator to get the controller's request and to begin, but too
            # short for much other work.
            simulation.slow_down(host, 4000.0, 0.1)
            if self._random.random() < 0.6:
                seconds = uniform(3.8, 5.0)
                simulation.later(uniform(0.3, 1.0), lambda: simulation.cut_from_tree(host, seconds))

        watch.when_led(offsets, heir)
        host = simulation.hosts[leader]
        kind = self._random.randrange(3)
        if kind == 0:
            simulation.stop(host)
        elif kind == 1:
            simulation.kill(host)
        else:
            simulation.pause(host, uniform(4.0, 7.0))

    def _late_follower(self) -> None:
        simulation, uniform, found = self._simulation, self._random.uniform, self._led()
        if found is None:
            return
        leader, seconds, times = found[1], uniform(6.5, 10.0), self._random.choice((100.0, 1000.0))
        follower = self._others(leader)[0]
        simulation.cut_between(leader, follower, seconds)
        simulation.later(seconds - 0.05, lambda: simulation.slow_down(follower, times, uniform(0.5, 2.0)))
