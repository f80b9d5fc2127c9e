"""Errors have one form: what was expected, what came, the fix."""

import json
import pickle
from importlib.metadata import PackageNotFoundError

import pytest

from overt.errors import InputError, KindError, MissingExtra, OvertError, compile_command, install_command


@pytest.mark.parametrize("kind", [InputError, KindError])
def test_the_parts_of_an_error_are_one_message_and_can_be_read_apart(kind):
    error = kind("a whole number", got="1.5", fix="round it")
    assert str(error) == "Expected a whole number, got 1.5. Fix: round it."
    assert (error.expected, error.got, error.fix) == ("a whole number", "1.5", "round it")


def test_what_is_not_known_is_left_out():
    assert str(InputError("a whole number")) == "Expected a whole number."
    assert str(InputError("a whole number", got="''")) == "Expected a whole number, got ''."
    assert str(InputError("a whole number", fix="round it")) == "Expected a whole number. Fix: round it."


def test_a_missing_extra_names_the_package_and_the_command():
    error = MissingExtra("overt.attend", needs="torch", extra="torch")
    assert str(error) == f"overt.attend needs torch, which is not installed. Fix: run: {install_command('torch')}"
    assert (error.what, error.needs, error.extra) == ("overt.attend", "torch", "torch")


def test_a_version_that_is_too_old_is_named():
    error = MissingExtra("attention", needs="torch 2.7 or later", extra="torch", installed="2.6.0")
    assert str(error).startswith("attention needs torch 2.7 or later, but 2.6.0 is installed. Fix: run: pip install ")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(InputError("x"), ValueError), (KindError("x"), TypeError), (MissingExtra("x", "torch", "torch"), ImportError)],
)
def test_errors_are_those_that_python_would_raise_and_overts_own(error, builtin):
    assert isinstance(error, builtin)
    assert isinstance(error, OvertError)


@pytest.mark.parametrize("error", [InputError("r", "g", "c"), KindError("r", "g"), MissingExtra("w", "n", "e", "1")])
def test_an_error_survives_the_way_back_from_another_process(error):
    returned = pickle.loads(pickle.dumps(error))
    assert str(returned) == str(error)
    assert vars(returned) == vars(error)


class Distribution:
    """overt, as it was installed from somewhere."""

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        return json.dumps(self.origin) if name == "direct_url.json" and self.origin else None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "overt[text]"'),
        ({"url": "file:///home/me/overt", "dir_info": {"editable": True}}, 'pip install --editable "/home/me/overt[text]"'),
        ({"url": "file:///home/me/overt", "dir_info": {}}, 'pip install "overt[text] @ file:///home/me/overt"'),
        ({"url": "file:///tmp/overt-1.whl", "archive_info": {}}, 'pip install "overt[text] @ file:///tmp/overt-1.whl"'),
        (
            {"url": "https://host/overt.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            'pip install "overt[text] @ git+https://host/overt.git@abc"',
        ),
    ],
)
def test_an_extra_is_installed_from_where_overt_came(monkeypatch, origin, command):
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Distribution(origin))
    assert install_command("text") == command


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install --force-reinstall --no-deps --no-cache-dir --no-binary overt overt"),
        ({"url": "file:///home/me/overt", "dir_info": {"editable": True}}, 'pip install --no-deps --editable "/home/me/overt"'),
        (
            {"url": "file:///home/me/overt", "dir_info": {}},
            'pip install --force-reinstall --no-deps --no-cache-dir "overt @ file:///home/me/overt"',
        ),
        ({"url": "file:///tmp/overt-1.whl", "archive_info": {}}, None),
    ],
)
def test_the_native_core_is_compiled_from_where_overt_came_unless_that_holds_no_sources(monkeypatch, origin, command):
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Distribution(origin))
    assert compile_command() == command


def test_what_is_not_installed_at_all_names_the_index(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert install_command("plot") == 'pip install "overt[plot]"'
