"""How many of the names that a user can import have a type: `pyright --verifytypes overt`, as a user of a wheel sees it.

    python tests/house/completeness.py [--list]

Fails under the share that was reached last, LEAST. pyright takes the package from site-packages and the interpreter from the path, so a copy of the
sources stands in an environment of its own, beside this one's packages.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "overt"
LEAST = 0.99


def report() -> dict:
    """What pyright says of the package's types."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder, "venv"))
        [packages] = Path(folder, "venv").rglob("site-packages")
        shutil.copytree(SOURCE, packages / "overt", ignore=shutil.ignore_patterns("__pycache__"))
        (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
        path = os.pathsep.join([str(Path(folder, "venv", "bin")), os.environ["PATH"]])
        pyright = Path(sys.executable).with_name("pyright")
        command = [pyright, "--verifytypes", "overt", "--ignoreexternal", "--outputjson"]
        result = subprocess.run(
            command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
    return json.loads(result.stdout)["typeCompleteness"]


def main() -> int:
    """Print the share, and the names without a type where they are asked for; 1 where the share fell."""
    actual = report()
    if "--list" in sys.argv:
        for symbol in actual["symbols"]:
            if symbol["isExported"] and not symbol["isTypeKnown"]:
                print(symbol["name"], *(problem["message"].splitlines()[0] for problem in symbol["diagnostics"]), sep="\n    ")
    print(
        f"{actual['completenessScore']:.1%} of {sum(actual['exportedSymbolCounts'].values())} public symbols have a known type"
    )
    return int(actual["completenessScore"] < LEAST)


if __name__ == "__main__":
    sys.exit(main())
