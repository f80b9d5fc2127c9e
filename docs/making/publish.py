"""Put a built site beside those of other versions, as a static host serves them.

    python docs/making/publish.py build/site PAGES VERSION

PAGES/VERSION gets the site whole, in the place of one of the same name. PAGES/index.html leads to the newest release, or to `main` before
there is one, and PAGES/versions.html lists what is there.
"""

import html
import re
import shutil
import sys
from pathlib import Path

RELEASE = re.compile(r"\d+(\.\d+)*")


def publish(site: Path, pages: Path, version: str) -> None:
    """Copy the site into its folder, and write the two pages above all versions."""
    if not re.fullmatch(r"[\w.+-]+", version) or set(version) == {"."}:
        raise SystemExit(f"Expected a version such as 0.2.0 or main, got {version!r}.")
    if not (site / "index.html").is_file():
        raise SystemExit(f"Expected a built site, got {site} without index.html. Fix: run make docs.")
    pages.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(pages / version, ignore_errors=True)
    shutil.copytree(site, pages / version)
    (pages / ".nojekyll").touch()
    names = versions(pages)
    target = html.escape(names[0])
    (pages / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>overt</title><meta http-equiv="refresh" content="0; url={target}/">'
        f'<a href="{target}/">overt {target}</a>, <a href="versions.html">all versions</a>\n',
        encoding="utf-8",
    )
    entries = "".join(f'<li><a href="{html.escape(name)}/">{html.escape(name)}</a>' for name in names)
    (pages / "versions.html").write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>overt: all versions</title><h1>overt</h1><ul>{entries}</ul></html>\n',
        encoding="utf-8",
    )


def versions(pages: Path) -> list[str]:
    """Releases, the newest first, then what is no release."""
    names = [path.parent.name for path in pages.glob("*/index.html")]
    releases = sorted((name for name in names if RELEASE.fullmatch(name)), key=lambda name: [*map(int, name.split("."))])
    return releases[::-1] + sorted(name for name in names if not RELEASE.fullmatch(name))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
