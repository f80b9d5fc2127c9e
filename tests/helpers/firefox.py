"""Firefox, spoken to by WebDriver BiDi on a port of this machine: the pages of tests/helpers/browser.py in another browser than Chromium."""

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import browser

NAMES = ("firefox-esr", "firefox")
MISSING = "no Firefox here: install one (on Debian: apt install firefox-esr), or name it in FIREFOX"
KEYS = {
    "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Enter": "\ue006", "\r": "\ue006", "Escape": "\ue00c",
    "Tab": "\ue004", "Backspace": "\ue003", "Delete": "\ue017", "Home": "\ue011", "End": "\ue010", "PageUp": "\ue00e", "PageDown": "\ue00f",
}  # fmt: skip
# What a reader has set, which only the browser's own script may change, in all pages.
PAGES = 'for (const window of Services.wm.getEnumerator("navigator:browser")) for (const { browsingContext: page } of window.gBrowser.browsers)'
SCRIPTS = f"{PAGES} page.allowJavascript = ALLOWED"
MEDIA = f"""{PAGES} [page.prefersColorSchemeOverride, page.mediumOverride] = [SCHEME, MEDIUM];
Services.prefs.setIntPref("ui.prefersReducedMotion", REDUCED)"""


def find():
    """Where Firefox is, or None."""
    return os.environ.get("FIREFOX") or next(filter(None, map(shutil.which, NAMES)), None)


def plain(value):
    """A value of BiDi as Python has it; NaN and infinities are None, as in JSON."""
    match value:
        case {"type": "array", "value": items}:
            return [plain(item) for item in items]
        case {"type": "object", "value": pairs}:
            return {name: plain(item) for name, item in pairs}
        case {"type": "number", "value": str(name)}:
            return 0 if name == "-0" else None
        case _:
            return value.get("value")


class FirefoxPage(browser.Page):
    """One page of Firefox; what Chromium's protocol calls a command is one or more of BiDi's."""

    def __init__(self, running, context):
        self.browser, self.context = running, context
        self.requests, self.complaints, self.touching = [], [], set()

    def call(self, method, **parameters):
        return getattr(self, re.sub(r"(?=[A-Z])", "_", method.split(".")[1]).lower())(**parameters)

    def ask(self, expression):
        """The value of an expression on the page."""
        return plain(self.evaluate(expression)["result"])

    def evaluate(self, expression, **_):
        target = {"context": self.context}
        answer = self.browser.call("script.evaluate", expression=expression, target=target, awaitPromise=False)
        if answer["type"] != "success":
            raise AssertionError(answer["exceptionDetails"]["text"])
        return answer

    def click(self, selector):
        """A real click into the middle of an element, once it is there: a page draws anew when its width changes."""
        self.until(f"document.querySelector({json.dumps(selector)}) !== null", 20)
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.ask(f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            self.dispatch_mouse_event(kind, x, y)

    def navigate(self, url):
        if url.startswith("file:"):
            self.requests.append(url)  # which Firefox does not report
        self.browser.call("browsingContext.navigate", context=self.context, url=url, wait="complete")

    def close(self):
        self.browser.call("browsingContext.close", context=self.context)

    def capture_screenshot(self, **_):
        return self.browser.call("browsingContext.captureScreenshot", context=self.context)

    def set_script_execution_disabled(self, value):
        self.browser.chrome(SCRIPTS.replace("ALLOWED", json.dumps(not value)))

    def set_device_metrics_override(self, width, height, **_):
        self.browser.call("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})

    def set_cache_disabled(self, **_):
        self.browser.call("network.setCacheBehavior", cacheBehavior="bypass")

    def set_emulated_media(self, features=(), media=""):
        values = {feature["name"]: feature["value"] for feature in features}
        scheme = values.get("prefers-color-scheme", "none")
        self.browser.chrome(
            MEDIA.replace("SCHEME", json.dumps(scheme))
            .replace("MEDIUM", json.dumps(media))
            .replace("REDUCED", str(int(values.get("prefers-reduced-motion") == "reduce")))
        )

    def dispatch_key_event(self, type, key, **_):
        self._act("key", "keyboard", {"type": type, "value": KEYS.get(key, key)})

    def insert_text(self, text):
        self._act("key", "keyboard", *({"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")))

    def dispatch_mouse_event(self, type, x, y, deltaX=0, deltaY=0, **_):
        x, y = round(x), round(y)
        if type == "mouseWheel":
            return self._act("wheel", "wheel", {"type": "scroll", "x": x, "y": y, "deltaX": deltaX, "deltaY": deltaY})
        press = {"mousePressed": [{"type": "pointerDown", "button": 0}], "mouseReleased": [{"type": "pointerUp", "button": 0}]}
        return self._act("pointer", "mouse", {"type": "pointerMove", "x": x, "y": y}, *press.get(type, []))

    def dispatch_touch_event(self, type, touchPoints):
        for point in touchPoints:
            move = {"type": "pointerMove", "x": round(point["x"]), "y": round(point["y"])}
            down = [{"type": "pointerDown", "button": 0}] if type == "touchStart" else []
            self.touching.add(point["id"])
            self._act("pointer", f"finger {point['id']}", move, *down, parameters={"pointerType": "touch"})
        for finger in sorted(self.touching) if type == "touchEnd" else []:
            self._act("pointer", f"finger {finger}", {"type": "pointerUp", "button": 0}, parameters={"pointerType": "touch"})

    def _act(self, kind, name, *actions, **more):
        sources = [{"type": kind, "id": name, "actions": list(actions), **more}]
        self.browser.call("input.performActions", context=self.context, actions=sources)


class Firefox:
    """A headless Firefox with a profile of its own, which is thrown away."""

    def __init__(self):
        import websocket

        self.profile = tempfile.mkdtemp(prefix="overt-firefox-")
        # Files may not read each other, as in a reader's Firefox and not in one that is driven.
        Path(self.profile, "user.js").write_text('user_pref("security.fileuri.strict_origin_policy", true);\n')
        command = [find(), "--headless", "--no-remote", "--remote-allow-system-access", "--profile", self.profile]
        self.process = subprocess.Popen(
            [*command, "--remote-debugging-port", "0"], env={**os.environ, "HOME": self.profile}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        address = next(
            result[1] for line in self.process.stderr if (result := re.search(r"BiDi listening on (ws://\S+)", line))
        )
        self.socket = websocket.create_connection(f"{address}/session", timeout=180, suppress_origin=True)
        self.numbers, self.pages = itertools.count(1), {}
        self.call("session.new", capabilities={"alwaysMatch": {"unhandledPromptBehavior": {"default": "accept"}}})
        self.call(
            "session.subscribe", events=["log.entryAdded", "network.beforeRequestSent", "browsingContext.userPromptOpened"]
        )

    def page(self):
        return self._attached(self.call("browsingContext.create", type="tab")["context"])

    def frame(self, url, seconds=30):
        """The frame of this address in any page, once it is there."""
        end, frames = time.monotonic() + seconds, []
        while not frames:
            assert time.monotonic() < end, f"no frame of {url} in {seconds} s"
            time.sleep(0.05)
            waiting = self.call("browsingContext.getTree")["contexts"]
            for context in waiting:
                waiting.extend(context["children"] or [])
            frames = [context["context"] for context in waiting if context["url"] == url]
        return self._attached(frames[0])

    def _attached(self, context):
        self.pages[context] = page = FirefoxPage(self, context)
        return page

    def chrome(self, script):
        """Run a script as the browser's own."""
        [window, *_] = self.call("browsingContext.getTree", **{"moz:scope": "chrome"})["contexts"]
        target = {"context": window["context"]}
        answer = self.call("script.evaluate", expression=script, target=target, awaitPromise=False)
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]

    def call(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != number:
            if "method" in answer:  # else a late answer to a call that was given up
                self._hear(answer["method"], answer["params"])
        assert answer["type"] == "success", answer
        return answer["result"]

    def _hear(self, event, parameters):
        context = parameters.get("context") or parameters.get("source", {}).get("context")
        page = self.pages.get(context)
        if page is None:
            return
        if event == "log.entryAdded" and parameters["level"] in {"warn", "error"}:
            page.complaints.append(parameters["text"])
        elif event == "network.beforeRequestSent":
            page.requests.append(parameters["request"]["url"])
        elif event == "browsingContext.userPromptOpened":
            page.complaints.append(f"a dialog opened: {parameters['message']}")

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        shutil.rmtree(self.profile, ignore_errors=True)
