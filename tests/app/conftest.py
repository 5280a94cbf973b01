"""A page that is served once for all tests of this folder, and browsers that watch what it asks for."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

PATIENCE = 60_000  #: milliseconds until something that does not happen is a failure


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the page would put files if it wrote any."""
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="session")
def address(folder):
    """The page of `undirected demo`, in a process of its own."""
    places = {"GRADIO_TEMP_DIR": str(folder), "TMPDIR": str(folder), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "undirected", "demo"],
        env={**os.environ, **places},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    said = []
    for line in process.stderr:
        said.append(line)
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        if found:
            break
    else:
        process.communicate()
        raise AssertionError("".join(said))
    yield found[0]
    process.terminate()
    process.communicate(timeout=30)


@pytest.fixture(scope="session")
def written(folder, address):
    """The files that the page has written since it was opened."""

    def files():
        return {path for path in folder.rglob("*") if path.is_file()}

    before = files()
    return lambda: files() - before


@pytest.fixture(scope="session")
def browser():
    """A real Chromium without a window."""
    if CHROMIUM is None:
        pytest.skip("no chromium here")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Open the page as a new visitor. At the end nothing must have gone wrong, nor come from elsewhere."""
    troubles, contexts = [], []

    def visit(dark=False):
        context = browser.new_context(
            viewport={"width": 1280, "height": 1000}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("response", lambda got: troubles.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        page.on("requestfailed", lambda lost: troubles.append(f"lost {lost.url}") if not _leaving(lost) else None)
        page.on("request", lambda asked: troubles.append(asked.url) if not _is_own(asked.url, address) else None)
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert troubles == []


def _is_own(url, address):
    return url.startswith((address, "data:", "blob:"))


def _leaving(request):
    """Streams of answers end when a visitor leaves."""
    return "/queue/data" in request.url or "/heartbeat/" in request.url


@contextmanager
def pressed(page):
    """The mouse button, held."""
    page.mouse.down()
    yield
    page.mouse.up()


def draw(page, *strokes):
    """Draw strokes with the mouse, given as points on a square of side 100."""
    box = page.locator("#sketch canvas").bounding_box()
    for stroke in strokes:
        points = [(box["x"] + x * box["width"] / 100, box["y"] + y * box["height"] / 100) for x, y in stroke]
        page.mouse.move(*points[0])
        with pressed(page):
            for point in points[1:]:
                page.mouse.move(*point, steps=4)
