"""A few cases of each attack in `audit.py`; `make audit` runs them for ten minutes."""

import pytest

import audit

CASES = {
    "networks": 8,
    "models": 2,
    "certificates": 5,
    "files": 5,
    "data": 3,
    "names": 1,
    "signals": 1,
}


@pytest.mark.parametrize("name", audit.LOOPS)
def test_attack(name):
    for case in range(CASES[name]):
        assert audit.attempt(name, 1, case) > 0
