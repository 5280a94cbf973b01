"""Gate: which requests reach the page. Nothing is uploaded, nothing large is read, nobody asks too often."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: All that the page itself asks for. Gradio has more: uploads, files, proxies, code, recordings, history.
OPEN = {
    "GET": re.compile(
        r"/|/(assets|static|svelte)/.*|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)/?"
        r"|/gradio_api/(info|app_id|startup-events|theme\.css|queue/data|heartbeat/\w+)/?"
    ),
    "HEAD": re.compile(r"/"),
    "POST": re.compile(r"/gradio_api/(queue/join|cancel|reset)/?"),
}
LARGEST = 64 * 1024  #: bytes of a request; a drawing has about 8,500
PER_SECOND, AT_ONCE = 8.0, 40.0  #: questions of one address
REMEMBERED = 1000  #: addresses
#: The browser itself refuses whatever does not come from here. Gradio's components are made of inline code.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; form-action 'none'; base-uri 'self'"
)


class Gate:
    """An ASGI layer around the page."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app
        self._allowances: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        refusal = self._refusal(scope)
        if refusal is not None:
            return await _refuse(send, *refusal)

        async def sealed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_SEALS]
            await send(message)

        return await self.app(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        method, path = scope["method"], scope["path"]
        if method not in OPEN or not OPEN[method].fullmatch(path):
            return 404, "There is no such page."
        if method == "POST":
            length = dict(scope["headers"]).get(b"content-length", b"")
            if not length.isdigit():
                return 411, "A request must say how long it is."
            if int(length) > LARGEST:
                return 413, f"A request may have {LARGEST} bytes, not {int(length)}."
            if not self._is_allowed((scope.get("client") or ("unknown",))[0], time.monotonic()):
                return 429, "Too many questions at once. Wait a few seconds."
        return None

    def _is_allowed(self, address: str, now: float) -> bool:
        """Each address has an allowance of questions, which grows back."""
        left, since = self._allowances.pop(address, (AT_ONCE, now))
        left = min(AT_ONCE, left + (now - since) * PER_SECOND)
        self._allowances[address] = (max(left - 1, 0.0), now)
        if len(self._allowances) > REMEMBERED:
            self._allowances.popitem(last=False)
        return left >= 1


_SEALS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = f'{{"detail": "{reason}"}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_SEALS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
