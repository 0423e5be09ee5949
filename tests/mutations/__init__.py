"""Mutations: one place of a module that decides is changed, and the room's tests are to notice.

    python -m tests.mutations controller                   30 mutations, the same each time
    python -m tests.mutations log groups --seed 7 --number 100
    python -m tests.mutations --at controller/changes/leadership.py:63
    python -m tests.mutations transactions --list          shows them and runs nothing

`mutation.py` says what is changed, `rooms.py` which modules and which tests belong together, `trial.py` runs the tests
on a copy of the project in which a mutation stands. A mutation that changes nothing that anybody could see is named in
`equivalent.toml` with the reason (`equivalents.py`).
"""
