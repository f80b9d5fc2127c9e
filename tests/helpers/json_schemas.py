"""What a command wrote with `--json`, after it was compared with the command's schema."""

import json

import pytest

from overt.cli.shared.json_output import schema


def jsonschema():
    """The package, which takes seconds to import: not while tests are collected."""
    return pytest.importorskip("jsonschema")


def validated(path, command):
    content = json.loads(path.read_text(encoding="utf-8"))
    jsonschema().Draft202012Validator(schema(command)).validate(content)
    return content
