"""The site of each version beside the others."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def publish(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "making")
    return importlib.import_module("publish").publish


def site(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(text)
    return folder


def test_versions_are_kept_and_the_newest_release_is_the_front(publish, tmp_path):
    pages = tmp_path / "pages"
    for version in ("main", "0.9.0", "0.10.0", "0.2.0"):
        publish(site(tmp_path / "site", version), pages, version)
    assert [(pages / version / "index.html").read_text() for version in ("0.9.0", "main")] == ["0.9.0", "main"]
    assert 'url=0.10.0/"' in (pages / "index.html").read_text()
    listed = (pages / "versions.html").read_text()
    assert [listed.index(f'"{version}/"') for version in ("0.10.0", "0.9.0", "0.2.0", "main")] == sorted(
        listed.index(f'"{version}/"') for version in ("0.10.0", "0.9.0", "0.2.0", "main")
    )


def test_a_version_is_replaced_whole_and_before_a_release_main_is_the_front(publish, tmp_path):
    old = site(tmp_path / "old", "old")
    (old / "gone.html").touch()
    publish(old, tmp_path / "pages", "main")
    publish(site(tmp_path / "new", "new"), tmp_path / "pages", "main")
    assert sorted(path.name for path in (tmp_path / "pages" / "main").iterdir()) == ["index.html"]
    assert 'url=main/"' in (tmp_path / "pages" / "index.html").read_text()


@pytest.mark.parametrize("version", ["", "..", "a/b", "<b>"])
def test_what_is_no_version_or_no_site_is_refused(publish, tmp_path, version):
    with pytest.raises(SystemExit, match="Expected a version"):
        publish(site(tmp_path / "site", ""), tmp_path / "pages", version)
    with pytest.raises(SystemExit, match="Expected a built site"):
        publish(tmp_path, tmp_path / "pages", "main")
