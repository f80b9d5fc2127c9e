"""A recording's page in JupyterLab itself: a server on this machine, and a real browser that runs a notebook's cell in it."""

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CELL = """\
import torch, overt
layer = overt.layers.MultiHeadAttention(8, heads=2)
with overt.lens.record(layer) as recording:
    layer(torch.randn(1, 4, 8))
recording.tokens = ["The", "animal", "was", "tired"]
recording.widget(height=600)"""
KERNEL = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"


def notebook(code):
    cell = {"cell_type": "code", "id": "one", "execution_count": None, "metadata": {}, "outputs": [], "source": code}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def lab(tmp_path):
    """The address of a running JupyterLab whose one notebook is one.ipynb, with its token; it listens on this machine alone."""
    pytest.importorskip("jupyterlab", reason='needs JupyterLab: pip install "overt[notebook]"')
    notebooks, settings, token = tmp_path / "notebooks", tmp_path / "settings", secrets.token_hex(16)
    notebooks.mkdir()
    (notebooks / "one.ipynb").write_text(notebook(CELL), encoding="utf-8")
    folders = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src"), "IPYTHONDIR": str(settings / "ipython")}
    environment |= {f"JUPYTER_{name}": str(settings / name) for name in folders}
    environment |= {f"JUPYTERLAB_{name}_DIR": str(settings / name) for name in ("SETTINGS", "WORKSPACES")}
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={notebooks}", "--LabApp.expose_app_in_browser=True"),
        *("--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"),
    ]
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end, running = time.monotonic() + 120, []
        while not running:
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.2)
            running = [*(settings / "RUNTIME_DIR").glob("jpserver-*.json")]
        yield f"{json.loads(running[0].read_text())['url']}lab/tree/one.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_a_cell_shows_the_page_and_a_click_in_it_chooses_the_word(lab, chromium):
    page = chromium.page().open(lab, width=1400, height=1000)
    page.until(f"{KERNEL}?.connectionStatus === 'connected' && {KERNEL}.status === 'idle'", seconds=120)
    page.ask("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.until("document.querySelector('.jp-OutputArea iframe')?.srcdoc.length > 1000", seconds=120)
    frame = chromium.frame("about:srcdoc")
    frame.until("document.querySelectorAll('[data-token]').length >= 4", seconds=60)
    assert "The animal was tired" in frame.ask("document.body.innerText.replaceAll('\\n', ' ')")
    frame.ask("document.querySelector('[data-token=\"1\"]').click()")
    frame.until("document.body.innerText.includes('Six steps for “animal”')")
    hosts = {request.split("/")[2] for request in page.requests if request.startswith("http")}
    assert {each.split(":")[0] for each in hosts} == {"127.0.0.1"}
