"""Firefox, spoken to by WebDriver BiDi on a port of this machine: what the page does in another browser than Chromium."""

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("firefox-esr", "firefox")
MISSING = "no Firefox here: install one (on Debian: apt install firefox-esr), or name it in FIREFOX"


def find():
    """Where Firefox is, or None."""
    return os.environ.get("FIREFOX") or next(filter(None, map(shutil.which, NAMES)), None)


class Firefox:
    """A headless Firefox with one page and a profile of its own, which is thrown away."""

    def __init__(self):
        import websocket

        self.profile = tempfile.mkdtemp(prefix="overt-firefox-")
        command = [find(), "--headless", "--no-remote", "--profile", self.profile, "--remote-debugging-port", "0"]
        self.process = subprocess.Popen(
            command, env={**os.environ, "HOME": self.profile}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        address = next(
            result[1] for line in self.process.stderr if (result := re.search(r"BiDi listening on (ws://\S+)", line))
        )
        self.socket = websocket.create_connection(f"{address}/session", timeout=60, suppress_origin=True)
        self.numbers, self.complaints, self.requests = itertools.count(1), [], []
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self.context = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != number:
            self._hear(answer)
        assert answer["type"] == "success", answer
        return answer["result"]

    def _hear(self, event):
        if event.get("method") == "log.entryAdded" and event["params"]["level"] in {"warn", "error"}:
            self.complaints.append(event["params"]["text"])
        elif event.get("method") == "network.beforeRequestSent":
            self.requests.append(event["params"]["request"]["url"])

    def open(self, path, width=1280, height=800):
        self.call("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})
        self.call("browsingContext.navigate", context=self.context, url=Path(path).absolute().as_uri(), wait="complete")
        return self

    def ask(self, expression):
        """The value of an expression on the page, by way of JSON."""
        answer = self.call(
            "script.evaluate", expression=f"JSON.stringify({expression})", target={"context": self.context}, awaitPromise=False
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"].get("value", "null"))

    def until(self, expression, seconds=20):
        """Wait for an expression to become true."""
        end = time.monotonic() + seconds
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{expression} did not become true in {seconds} s"
            time.sleep(0.05)

    def click(self, selector):
        """A real click into the middle of an element, once it is there: a page draws anew when its width changes."""
        self.until(f"document.querySelector({selector!r})")
        box = self.ask(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        move = {"type": "pointerMove", "x": round(box[0]), "y": round(box[1])}
        actions = [move, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self.call(
            "input.performActions", context=self.context, actions=[{"type": "pointer", "id": "mouse", "actions": actions}]
        )

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        shutil.rmtree(self.profile, ignore_errors=True)
