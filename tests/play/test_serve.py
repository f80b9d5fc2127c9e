"""The page whose model runs in Python: for this machine, for its own page, and for who has the token."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from live_page import TIRED, Typed


@pytest.fixture(scope="module")
def server(minilm):
    from overt.explain.recipes.qkv import qkv
    from overt.play.serve import PageServer

    with PageServer(minilm, qkv(minilm, TIRED, "it")) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def until(true, seconds=30):
    end = time.perf_counter() + seconds
    while not true():
        assert time.perf_counter() < end, f"not within {seconds} s"
        time.sleep(0.01)


def status(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.few_cases(1)
def test_what_is_typed_is_read_in_python(server, chromium, minilm):
    page = chromium.page()
    page.call("Page.navigate", url=server.address)
    page.until("document.querySelector('.typing') !== null", 30)
    live = Typed(page).ready()
    live.type("The cat didn't come because it was too wide.")
    assert page.ask("viewer.recording.title") == "The cat didn't come because it was too wide."
    encoded = minilm.encode("The cat didn't come because it was too wide.")
    assert page.ask("viewer.recording.heads[0].queries") == list(map(str, encoded.tokens))
    assert page.ask("viewer.recording.heads[viewer.store.get().head].queries[viewer.store.get().token]") == "it"
    assert "read in Python in" in page.ask("viewer.recording.reading[0]")
    live.put("   ")
    live.until_said("Expected a text of at least one word")
    assert page.complaints == []
    assert all(url.startswith((server.address, "data:", "blob:")) for url in page.requests)


def test_who_lacks_the_token_gets_nothing(server):
    for path in ("/", "/read", f"/{server.token[:-1]}x/", f"/{server.token}", f"/{server.token}/../{server.token}/"):
        assert status(server, "GET", path)[0] == 404
        assert status(server, "POST", path, "{}")[0] == 404


def test_another_origin_or_host_name_is_refused(server):
    path, body = f"/{server.token}/read", json.dumps({"text": "Cats sleep."})
    ours = f"127.0.0.1:{server.server_port}"
    assert status(server, "POST", path, body, Host=ours, Origin=f"http://{ours}")[0] == 200
    for headers in ({"Origin": "https://example.org"}, {"Origin": "null"}, {"Host": "example.org"}, {"Host": "127.0.0.1:1"}):
        assert status(server, "POST", path, body, **headers)[0] == 403
        assert status(server, "GET", f"/{server.token}/", **headers)[0] == 403


BAD = [
    *("", "[]", "{", '"x"', "null", '{"text": 3}', '{"text": null}', "[" * 100_000, '{"a":' * 15_000, "9" * 5000),
    *('{"text": "a \\ud800 b"}', '{"text": "\\udc00"}', b'{"text": "caf\xe9"}', b"\xff\xfe", b'{"text": "\xed\xa0\x80"}'),
]


def test_what_is_no_text_is_refused_in_a_sentence_and_the_connection_goes_on(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    with closing(connection):
        for body in BAD:
            connection.request("POST", f"/{server.token}/read", body)
            response = connection.getresponse()
            assert response.status == 400, body[:30]
            assert json.loads(response.read())["sentence"].startswith("Expected "), body[:30]
        socket_of_all = connection.sock
        connection.request("POST", f"/{server.token}/read", json.dumps({"text": "Cats \U0001f600 sleep."}))
        assert connection.getresponse().status == 200
        assert connection.sock is socket_of_all is not None


def test_a_long_text_is_refused_with_the_limit_before_any_of_it_is_cut_into_tokens(server, monkeypatch):
    monkeypatch.setattr(server.model, "encode", lambda *_, **__: pytest.fail("it was cut into tokens"))
    for text in ("x" * 10_001, "the cat sat. " * 320_000):
        answer = status(server, "POST", f"/{server.token}/read", json.dumps({"text": text}))
        assert answer[0] == 413
        assert "a text of at most 10,000 letters" in json.loads(answer[1])["sentence"]
    for length in ("50000000", "9" * 5000, "x", "-1"):
        assert status(server, "POST", f"/{server.token}/read", b"", Content_Length=length)[0] == 413


def test_a_text_of_too_many_tokens_is_refused_before_the_model_runs(server, monkeypatch):
    monkeypatch.setattr("overt.play.serve.TOKENS", 5)
    answer = status(server, "POST", f"/{server.token}/read", json.dumps({"text": "one two three four five"}))
    assert "a text of at most 5 tokens, got 7" in json.loads(answer[1])["sentence"]


def test_a_request_that_waits_too_long_for_another_text_gets_an_answer(server, monkeypatch):
    monkeypatch.setattr("overt.play.serve.PATIENCE", 0.05)
    with server.lock:
        answer = status(server, "POST", f"/{server.token}/read", json.dumps({"text": "Cats sleep."}))
    assert answer[0] == 503
    assert "while the model reads another" in json.loads(answer[1])["sentence"]


def test_an_error_of_the_model_is_an_answer_and_the_next_text_is_read(server, monkeypatch, capfd):
    path, body = f"/{server.token}/read", json.dumps({"text": "Cats sleep."})
    with monkeypatch.context() as patch:
        patch.setattr("overt.play.serve.read", lambda *_, **__: 1 / 0)
        answer = status(server, "POST", path, body)
    assert answer[0] == 500
    assert json.loads(answer[1])["sentence"] == "The model failed: ZeroDivisionError: division by zero."
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert status(server, "POST", path, body)[0] == 200


@pytest.mark.slow
def test_a_text_without_words_and_one_that_is_too_long_get_an_answer(server):
    path = f"/{server.token}/read"
    assert json.loads(status(server, "POST", path, json.dumps({"text": " "}))[1])["sentence"].startswith("Expected a text")
    answer = json.loads(status(server, "POST", path, json.dumps({"text": "word " * 700}))[1])
    assert (answer["count"], answer["all"]) == (512, False) or "sentence" in answer


def test_a_browser_that_goes_away_leaves_no_complaint(server, capfd):
    before = set(server.connections)  # of the browser of the tests above
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.request("GET", f"/{server.token}/")
        connection.getresponse()
        connection.close()  # of a page of megabytes, nothing but the headers was read
    until(lambda: server.connections <= before)
    assert capfd.readouterr().err == ""


def test_an_open_connection_does_not_hold_up_the_end(minilm):
    from overt.explain.recipes.qkv import qkv
    from overt.play.serve import PageServer

    running = PageServer(minilm, qkv(minilm, "Cats sleep."))
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        answered = http.client.HTTPConnection("127.0.0.1", running.server_port, timeout=60)
        answered.request("GET", f"/{running.token}/")
        answered.getresponse().read()
        with closing(answered), socket.create_connection(("127.0.0.1", running.server_port)):
            until(lambda: len(running.connections) == 2)
            running.shutdown()
            start = time.perf_counter()
            running.server_close()
            assert time.perf_counter() - start < 30  # a handler's own timeout is a minute
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
    assert not running.connections


def test_an_interrupt_while_a_connection_is_taken_up_ends_the_server_all_the_same(minilm, monkeypatch):
    from overt.explain.recipes.qkv import qkv
    from overt.play.serve import PageServer

    running = PageServer(minilm, qkv(minilm, "Cats sleep."))
    take_up = running.process_request
    answered = threading.Event()

    def interrupted(*arguments):
        take_up(*arguments)
        assert answered.wait(30)
        signal.raise_signal(signal.SIGINT)

    def browse():
        connection.request("GET", f"/{running.token}/")
        connection.getresponse().read()
        answered.set()

    monkeypatch.setattr(running, "process_request", interrupted)
    connection = http.client.HTTPConnection("127.0.0.1", running.server_port, timeout=60)
    browser = threading.Thread(target=browse)
    browser.start()
    handler = signal.getsignal(signal.SIGINT)
    start = time.perf_counter()
    with closing(connection):
        running.serve_until_interrupted()
        assert time.perf_counter() - start < 30  # a handler's own timeout is a minute
    browser.join()
    assert not running.connections
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["at once", "with the page", "open"])
def test_the_command_says_where_the_page_is_and_ends_by_an_interrupt(minilm, leave):
    command = [sys.executable, "-m", "overt", "play", "--serve", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        address = next(line for line in running.stdout if line.startswith("http://127.0.0.1:")).strip()
        host, _, rest = address.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", f"/{rest}")
        response = connection.getresponse()
        assert response.status == 200
        if leave != "at once":
            response.read()
        if leave != "open":
            connection.close()
        running.send_signal(signal.SIGINT)
        try:
            assert (running.wait(30), running.stderr.read()) == (0, "")
        finally:
            connection.close()
