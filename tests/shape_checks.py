"""The type checker of `GREATCIRCLE_CHECK_SHAPES`: beartype, for the functions that it supports."""

from beartype import BeartypeConf, beartype
from beartype.roar import (
    BeartypeDecorHintPep673Exception,
    BeartypeDecorHintPep3119Exception,
)

CONF = BeartypeConf(is_pep484_tower=True)  # an int is a float


def checked(function):
    """Check types and array shapes at every call.

    Skip functions whose annotations beartype cannot check: `Self`, and protocols that are not
    checkable at runtime.
    """
    try:
        return beartype(function, conf=CONF)
    except (BeartypeDecorHintPep673Exception, BeartypeDecorHintPep3119Exception):
        return function
