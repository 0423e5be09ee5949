"""Simulates brokers and their clients in one process. The clock is simulated, so nothing waits, and a seed chooses
faults.

    python -m jesenska.testing.simulation --seed 1 --schedules 200      runs many seeds; prints a line for each seed
                                                                        that fails, and then has exit code 1
    python -m jesenska.testing.simulation --trace 17                    prints the events of one seed, step by step

`world` has the simulated time and the order of events. `network` and `disk` simulate the network and the disks of the
machines. `process` is one program with its own event loop. `clients` contains producers and consumers. `history`
records the responses that the clients get, and finds violations of Kafka's guarantees."""
