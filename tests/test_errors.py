"""Errors have one form: the rule, what came, the cure."""

import pytest

from overt.errors import InputError, KindError, MissingExtra, OvertError


def test_the_parts_of_an_error_are_one_message_and_can_be_read_apart():
    error = InputError("a rule holds", got="something else", cure="keep the rule")
    assert str(error) == "a rule holds; got something else. To mend it, keep the rule."
    assert (error.rule, error.got, error.cure) == ("a rule holds", "something else", "keep the rule")


def test_what_is_not_known_is_left_out():
    assert str(InputError("a rule holds")) == "a rule holds."
    assert str(InputError("a rule holds", cure="keep it")) == "a rule holds. To mend it, keep it."


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(InputError("x"), ValueError), (KindError("x"), TypeError), (MissingExtra("x", "torch", "torch"), ImportError)],
)
def test_errors_are_those_that_python_would_raise_and_overts_own(error, builtin):
    assert isinstance(error, builtin)
    assert isinstance(error, OvertError)
