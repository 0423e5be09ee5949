"""A broker and its clients in one process, on a clock that does not wait, with faults that a seed chooses.

    python -m jesenska.testing.simulation --seed 1 --schedules 200      many seeds; one line for each that fails, exit
                                                                        code 1
    python -m jesenska.testing.simulation --trace 17                    the events of one seed, step by step

`world` is time and order; `network` and `disk` simulate a machine's; `process` is one program with its own event loop;
`clients` write, read and commit; `history` holds the answers to them and finds violations."""
