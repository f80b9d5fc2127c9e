"""What a command wrote with `--json`, after it was compared with the command's schema."""

import json
from pathlib import Path

import pytest

import overt.cli.shared

SCHEMAS = Path(overt.cli.shared.__file__).with_name("schemas")


def schema(command):
    """The JSON Schema (draft 2020-12) of what a command writes."""
    return json.loads((SCHEMAS / f"{command.replace(' ', '_')}.json").read_text(encoding="utf-8"))


def jsonschema():
    """The package, which takes seconds to import: not while tests are collected."""
    return pytest.importorskip("jsonschema")


def validated(path, command):
    content = json.loads(path.read_text(encoding="utf-8"))
    jsonschema().Draft202012Validator(schema(command)).validate(content)
    return content
