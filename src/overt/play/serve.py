"""A live page whose model runs in Python: a server for this machine only, with a token in its address."""

import re
import secrets
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from overt.drawing.html import PAGE_LIMIT, script_json
from overt.errors import InputError, OvertError
from overt.explain import html
from overt.explain.explanation import Explanation
from overt.explain.recipes.qkv import read
from overt.lens.viewer.packing import pack_heads
from overt.lens.viewer.select_heads import chosen
from overt.lens.viewer.story import Live, one_line
from overt.play import lessons
from overt.reading import check_text, parse_json, reason

HOST = "127.0.0.1"
LONGEST = 10_000  # letters of a text
TOKENS = 2048  # of a text, for models without a limit: a longer text's page would exceed the page limit, and take a minute
PATIENCE = 10.0  # seconds that a request waits for an earlier text
_BODY = 12 * LONGEST + 1000  # bytes: JSON may write a letter as two escapes of six bytes
_DRAINED = 16 * 10**6  # bytes of a longer body that are read and discarded, so that the connection stays open
_PATIENCE = 0.5  # seconds without a request until Ctrl+C is checked, if the system does not interrupt the wait
_WEB = "play/web"
_BUSY = "Expected one text at a time, got this one while the model reads another. Fix: wait, and change the text again."
_NOTE = "Weights show what this head attended to, not why, and not what the model concluded."


class PageServer(ThreadingHTTPServer):
    """Serves the page of an explanation, and lets its model read the typed text.

    Answers only requests that name this machine as host, come from the page itself, and have the token in their path.
    """

    daemon_threads = False  # a thread that is stopped inside C++ at Python's exit aborts the process

    def __init__(self, model: Any, explanation: Explanation):
        super().__init__((HOST, 0), _Handler)
        self.connections: set[socket.socket] = set()
        self.token: str = secrets.token_urlsafe(16)
        self.model = model
        self.lock: threading.Lock = threading.Lock()
        self.page: bytes = html.write([explanation], live=_live(explanation))[0].encode()

    @property
    def address(self) -> str:
        """The address that the browser opens."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    @property
    def hosts(self) -> set[str]:
        """The host names under which a browser on this machine may reach the server."""
        return {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    def serve_until_interrupted(self) -> None:
        """Answer until Ctrl+C, then close.

        The signal handler only sets a flag: an exception raised while a connection is handed to its thread would lose that thread,
        and the shutdown waits for it.
        """
        interrupts: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
        self.timeout = _PATIENCE
        try:
            while not interrupts:
                self.handle_request()
        finally:
            signal.signal(signal.SIGINT, before)
            self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread."""
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show an error, except if a browser closed the connection before its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Close the server: browsers' open connections are closed, but a text being read is finished."""
        for connection in self.connections.copy():
            with suppress(OSError):  # the browser may have closed it first
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def answer(self, text: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """The page's data for a text; a sentence if the model cannot read it, or is still reading another text."""
        start = time.perf_counter()
        if not self.lock.acquire(timeout=PATIENCE):  # one text at a time, since a model must not run twice at once
            return HTTPStatus.SERVICE_UNAVAILABLE, {"sentence": _BUSY}
        try:
            _check_tokens(len(self.model.encode(text, truncate=True).ids))
            result = read(self.model, text, truncate=True)
            heads = chosen(result.recording, None, True, PAGE_LIMIT)
            packed = pack_heads([(result.recording, heads)], title=one_line(text))
        except OvertError as error:
            return HTTPStatus.OK, {"sentence": str(error)}
        finally:
            self.lock.release()
        blocks = packed.blocks.texts()
        count, seconds = len(result.encoded.ids), time.perf_counter() - start
        return HTTPStatus.OK, {
            "header": packed.header,
            "blocks": blocks,
            "count": count,
            "all": not result.notes,
            "seconds": seconds,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if self._refused():
            return
        if self._is(""):
            self._send(self.pages.page, "text/html; charset=utf-8")
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self._refused():
            return
        if not self._is("read"):
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not re.fullmatch("[0-9]{1,12}", length) or int(length) > _DRAINED:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif int(length) > _BODY:
            self._drain(int(length))
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"sentence": str(_too_long(f"{int(length):,} bytes"))})
        else:
            self._read(self.rfile.read(int(length)))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the address contains the token."""

    @property
    def pages(self) -> PageServer:
        """The server of this request."""
        assert isinstance(self.server, PageServer)
        return self.server

    def _read(self, body: bytes) -> None:
        try:
            text = _request_text(body)
        except InputError as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"sentence": str(error)})
            return
        if len(text) > LONGEST:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"sentence": str(_too_long(f"{len(text):,}"))})
            return
        try:
            status, content = self.pages.answer(text)
        except Exception as error:  # raised by the model's own code: the page shows it, the terminal its traceback
            self.pages.handle_error(self.request, self.client_address)
            status, content = HTTPStatus.INTERNAL_SERVER_ERROR, {"sentence": f"The model failed: {reason(error)}."}
        self._answer(status, content)

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        self._send(script_json(content).encode(), "application/json", status)

    def _drain(self, length: int) -> None:
        """Discard a body, a part at a time."""
        while length > 0 and (part := self.rfile.read(min(length, 2**16))):
            length -= len(part)

    def _is(self, path: str) -> bool:
        """Whether the request has the token and this path; compared in constant time, so a guess learns nothing."""
        return secrets.compare_digest(self.path.encode(), f"/{self.pages.token}/{path}".encode())

    def _refused(self) -> bool:
        """Refuse a request with another host name, or from another page: a foreign page cannot reach the model."""
        hosts, origin = self.pages.hosts, self.headers.get("Origin")
        foreign = self.headers.get("Host") not in hosts or (origin is not None and origin.removeprefix("http://") not in hosts)
        if foreign:
            self._refuse(HTTPStatus.FORBIDDEN)
        return foreign

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._send(status.phrase.encode(), "text/plain; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        headers |= {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _request_text(body: bytes) -> str:
    """The text of a request."""
    form, fix = 'a request of the form {"text": "…"}', "send that, in UTF-8"
    try:
        content = parse_json(body, strict=False)
    except ValueError as error:
        raise InputError(form, got=reason(error), fix=fix) from error
    text = content.get("text") if isinstance(content, dict) else None
    if not isinstance(text, str):
        raise InputError(form, got="other JSON", fix=fix)
    return check_text(text, "the text")


def _check_tokens(count: int) -> None:
    if count > TOKENS:
        raise InputError(f"a text of at most {TOKENS:,} tokens", got=f"{count:,}", fix="shorten the text")


def _too_long(got: str) -> InputError:
    return InputError(
        f"a text of at most {LONGEST:,} letters", got=got, fix="shorten the text, or call overt explain on its file"
    )


def _live(explanation: Explanation) -> Live:
    label = "Change the sentence: the model reads it in Python, on this machine"
    description = {"text": explanation.text, "label": label, "notes": [_NOTE]}
    element = f'<script type="application/json" id="live">{script_json(description)}</script>'
    behind = f"{element}\n{lessons.layers_element()}"
    return Live(boot=f"{_WEB}/served_boot.js", styles=lessons.STYLES, behind=behind, connections=("'self'",))
