"""What `--json` writes has the form of the command's schema."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import overt
from json_schemas import SCHEMAS, jsonschema, schema, validated
from overt.cli.main import COMMANDS, app
from overt.cli.shared.json_output import write_json

NAMES = sorted(path.stem for path in SCHEMAS.glob("*.json"))


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_each_command_that_writes_json_has_a_schema():
    assert sorted(name for name in COMMANDS if "--json" in run(*name.split(), "--help").output) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_a_schema_and_refuses_another_format(name):
    jsonschema().Draft202012Validator.check_schema(schema(name))
    with pytest.raises(jsonschema().ValidationError):
        jsonschema().validate({"format": "overt 0"}, schema(name))


def test_doctor_writes_what_it_found(tmp_path):
    run("doctor", "--json", tmp_path / "doctor.json")
    findings = {finding["name"]: finding for finding in validated(tmp_path / "doctor.json", "doctor")["findings"]}
    assert findings["numpy"]["available"] is True
    assert findings["python"]["available"] is None


def test_smooth_writes_curve_band_and_report(tmp_path):
    values = [index % 7 + math.sin(index / 9) for index in range(80)]
    rows = [f"{index},{'' if index == 5 else value}" for index, value in enumerate(values)]
    (tmp_path / "a.csv").write_text("\n".join(["t,C", *rows]))
    run("smooth", tmp_path / "a.csv", "--column", "C", "--json", tmp_path / "a.json")
    [series] = validated(tmp_path / "a.json", "smooth")["series"]
    assert series["sentence"] == " ".join(filter(None, series["report"].values()))
    assert "degrees of freedom" in series["explanation"]
    assert (series["name"], len(series["smooth"]), series["rows"][:2]) == ("C", 80, [0, 1])
    assert series["data"][5] is None
    assert series["smooth"][5] is not None


def test_translate_writes_each_line_with_its_score_and_warnings(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "a.txt").write_text("I am happy.\n\n日本\n", encoding="utf-8")
    run("translate", tmp_path / "a.txt", "--nbest", 2, "--json", tmp_path / "a.json")
    first, empty, unread = validated(tmp_path / "a.json", "translate")["lines"]
    assert len(first["translations"]) == 2
    assert first["translations"][0]["score"] >= first["translations"][1]["score"]
    assert (first["warnings"], empty["translations"]) == ([], [])
    assert unread["warnings"]


def test_numbers_that_json_lacks_are_null(tmp_path):
    write_json(tmp_path / "a.json", "doctor", {"findings": [math.inf, (1.5, math.nan)]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"format": "overt doctor 1", "findings": [None, [1.5, None]]}


def test_the_report_moves_to_standard_error_if_json_takes_standard_output():
    command = [sys.executable, "-m", "overt", "doctor", "--json", "-"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["format"] == "overt doctor 1"
    assert "numpy" in result.stderr


def test_evaluate_writes_its_scores(tmp_path):
    pytest.importorskip("sacrebleu")
    (tmp_path / "en.txt").write_text("I am happy.\n")
    (tmp_path / "fr.txt").write_text("Je suis heureux.\n")
    files = ("--source", tmp_path / "en.txt", "--reference", tmp_path / "fr.txt")
    run("evaluate", "--model", Path(overt.__file__).parent / "learn" / "bundled", *files, "--json", tmp_path / "a.json")
    assert validated(tmp_path / "a.json", "evaluate")["scores"]["rows"] == 1
