"""A broker and its clients in one process, on a clock that does not wait, with faults that a seed chooses.

    python -m jesenska.testing.simulation --seed 1 --schedules 200      many seeds; one line for each that fails, exit
                                                                        code 1
    python -m jesenska.testing.simulation --trace 17                    what happened under one seed, step by step

`world` is time and order; `network` and `disk` stand for what a machine has; `process` is one program with an event
loop of its own; `clients` write, read and commit; `history` holds what they were told and says what must not be."""
