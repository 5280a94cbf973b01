"""Gate: what is not asked for by the page itself does not reach it."""

import asyncio

import pytest

from undirected.app import gate
from undirected.app.gate import Gate


def ask(gate, method, path, headers=(), client="10.0.0.1"):
    """The status and headers of an answer, from an app behind the gate that always says 200."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers), "client": (client, 1)}
    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def size(count):
    return [(b"content-length", str(count).encode())]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/gradio_api/proxy=http://example.org"),
        ("POST", "/gradio_api/run/predict"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/vibe-edit"),
        ("POST", "/gradio_api/process_recording"),
        ("GET", "/monitoring"),
        ("PUT", "/"),
    ],
)
def test_what_the_page_does_not_need_is_not_there(method, path):
    assert ask(Gate(app), method, path, size(10))[0] == 404


def test_what_it_needs_is_and_the_browser_is_told_to_stay_here():
    for method, path in (("GET", "/"), ("GET", "/assets/index.js"), ("POST", "/gradio_api/queue/join")):
        status, headers = ask(Gate(app), method, path, size(10))
        assert status == 200
        assert b"default-src 'self'" in headers[b"content-security-policy"]


def test_large_requests_and_those_of_unknown_size_are_refused():
    join = "/gradio_api/queue/join"
    assert ask(Gate(app), "POST", join, size(gate.LARGEST))[0] == 200
    assert ask(Gate(app), "POST", join, size(gate.LARGEST + 1))[0] == 413
    assert ask(Gate(app), "POST", join)[0] == 411
    assert ask(Gate(app), "POST", join, [(b"content-length", b"many")])[0] == 411


def test_who_asks_too_often_waits_while_others_do_not(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(gate.time, "monotonic", lambda: now[0])
    guard = Gate(app)

    def join(client):
        return ask(guard, "POST", "/gradio_api/queue/join", size(10), client)[0]

    assert [join("10.0.0.1") for _ in range(int(gate.AT_ONCE))] == [200] * int(gate.AT_ONCE)
    assert join("10.0.0.1") == 429
    assert join("10.0.0.2") == 200
    now[0] += 1  # the allowance grows back
    assert [join("10.0.0.1") for _ in range(int(gate.PER_SECOND) + 1)] == [200] * int(gate.PER_SECOND) + [429]


def test_only_so_many_addresses_are_remembered():
    guard = Gate(app)
    for number in range(gate.REMEMBERED + 50):
        ask(guard, "POST", "/gradio_api/queue/join", size(10), f"client {number}")
    assert len(guard._allowances) == gate.REMEMBERED
