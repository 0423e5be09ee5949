"""The differential tester: the same raw request to jesenska and to Apache Kafka, and the answers compared.

    python -m tests.conformance.differential --cases 2000 [--api 3] [--seed 1]

For every announced API and version it makes valid requests from the declared messages, with values at their edges:
null and empty, unknown and doubled names, negative and huge numbers, wrong epochs, topics and groups in several
states. Apache Kafka 4.3.1 is the judge, 3.9.1 in ZooKeeper mode for versions that 4.x dropped. A difference is mended,
or it stands in `known.py` with its reason. `test_differential.py` runs a sample.

    world.py        topics and groups in several states, made alike on both sides
    requests.py     a request from a seed; both sides draw the same values, each with its own ids
    sides.py        the two brokers: a connection each, answers, time-outs, what Kafka does a moment later
    answers.py      an answer as plain values without what may differ (ids, addresses, times, words of messages,
                    order), and where two differ
    known.py        the one list of differences that are there, each with its reason
    trial.py        cases of one API, worlds renewed, differences counted

Everything follows from the seed; what Kafka orders by chance is sorted.
"""
