"""A real browser for the tests, spoken to over a pipe in its own protocol: no driver, no port, no network."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--metrics-recording-only",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
MISSING = "no chromium here: install one (on Debian: apt install chromium), or name it in CHROMIUM"


def find():
    """Where chromium is, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of the browser, and everything that it asked for and complained of."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.requests, self.complaints = [], []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **text):
        return self.browser.call(method, session=self, **text)

    def hear(self, message):
        """Take note of what the browser says of itself."""
        text = message["params"]
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(text["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(text["exceptionDetails"].get("exception", {}).get("description") or str(text))
            case "Log.entryAdded" if text["entry"]["level"] == "error":
                self.complaints.append(text["entry"]["text"])
            case "Runtime.consoleAPICalled" if text["type"] in {"error", "warning"}:
                self.complaints.append(str(text["args"]))
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"a dialog opened: {text['message']}")
                self.call("Page.handleJavaScriptDialog", accept=True)

    def open(self, path, width=1280, height=800, dark=False, calm=False, script=True):
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ])  # fmt: skip
        address = str(path) if "://" in str(path) else Path(path).absolute().as_uri()
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")
        return self

    def ask(self, expression):
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, expression, seconds=10):
        """Wait for an expression to become true."""
        end = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < end, f"{expression} did not become true in {seconds} s"
            time.sleep(0.02)

    def press(self, *keys):
        for key in keys:
            text = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": CODES.get(key, 0)}
            self.call("Input.dispatchKeyEvent", type="keyDown", **text, **({"text": key} if key in {" ", "\r"} else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **text)

    def broken_rules(self):
        """What axe-core finds on the page as it is now: each rule that it breaks, and the first element that does."""
        # By the browser's protocol, which the page's policy does not hold back.
        self.call(
            "Runtime.evaluate", expression=resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        )
        self.ask(
            "window.broken = null, void axe.run({ resultTypes: ['violations'] }).then((all) => (window.broken = all.violations))"
        )
        self.until("window.broken !== null", seconds=60)
        return json.loads(self.ask("JSON.stringify(window.broken.map((each) => [each.id, each.nodes[0].html]))"))

    def picture(self, path):
        """Save what is in sight as a PNG."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


CODES = {" ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Enter": 13}


# The protocol's pipes are file descriptors 3 and 4 of the browser.
ON_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Chromium, headless, with a profile of its own that is thrown away."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="overt-browser-")
        ours, theirs = os.pipe(), os.pipe()
        command = [find(), *QUIET, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_PIPES, str(ours[0]), str(theirs[1]), *command],
            pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self.write, self.read = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0], "rb", buffering=0)
        self.count, self.rest, self.pages = 0, b"", {}

    def page(self):
        return self._attached(self.call("Target.createTarget", url="about:blank")["targetId"])

    def frame(self, url, seconds=30):
        """The frame of this address in any page, once it is there; the browser keeps frames without an origin apart from their page."""
        end, frames = time.monotonic() + seconds, []
        while not frames:
            assert time.monotonic() < end, f"no frame of {url} in {seconds} s"
            time.sleep(0.05)
            targets = self.call("Target.getTargets")["targetInfos"]
            frames = [each["targetId"] for each in targets if each["type"] == "iframe" and each["url"] == url]
        return self._attached(frames[0])

    def _attached(self, target):
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.pages[session] = page = Page.__new__(Page)
        page.__init__(self, session)
        return page

    def call(self, method, session=None, **text):
        self.count += 1
        number = self.count
        message = {"id": number, "method": method, "params": text} | ({"sessionId": session.session} if session else {})
        self.write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            page = self.pages.get(answer.get("sessionId"))
            if page is not None and "method" in answer:
                page.hear(answer)

    def next(self):
        while b"\0" not in self.rest:
            more = self.read.read(1 << 16)
            assert more, "the browser closed its pipe"
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        self.write.close()
        self.read.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
