"""The documentation builds without a warning, loads nothing from elsewhere, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from shutil import which
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """The names in a page that a link may end with, where its links go, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("next", "prev"):
            self.loads.append(given["href"])
        self.loads += [given[name] for name in ("src", "srcset", "poster", "data") if name in given]
        self.loads += re.findall(r"url\(([^)]+)\)", given.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(
        build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_nothing_comes_from_elsewhere(site, pages):
    for path, page in pages.items():
        for load in page.loads:
            assert not re.match(r"[a-z]+:|//", load), (path.name, load)
    for path in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)\"']+", path.read_text(encoding="utf-8"))
        assert not found, (path.name, found)


@pytest.mark.slow
def test_every_link_leads_somewhere(pages):
    for path, page in pages.items():
        if path.name == "404.html":  # it is shown at any address, so its links are those of the site's root
            continue
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), (path.name, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (path.name, link)


@pytest.mark.slow
def test_it_is_read_from_a_folder_by_a_browser_without_a_network(site):
    browser = which("chromium") or which("chromium-browser")
    if browser is None:
        pytest.skip("there is no chromium here")
    from playwright.sync_api import sync_playwright

    asked, said = [], []

    def visit():
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 390, "height": 800})
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            for path in ("index", "tutorial", "mathematics", "howto/order", "reference/factors"):
                page.goto(f"{(site / path).as_uri()}.html")
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, f"{path} is too wide for a phone"
            page.set_viewport_size({"width": 1280, "height": 800})
            page.goto((site / "index.html").as_uri())
            page.click("input[name=query]")
            page.keyboard.type("perspective")
            page.wait_for_selector(".md-search-result__item a[href*=mathematics]")
            chromium.close()

    # In a thread of its own: another test's browser may run in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(visit).result()
    assert not said
    assert not [url for url in asked if urlsplit(url).scheme not in ("file", "data", "blob")]
