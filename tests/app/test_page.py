"""Page: its other tabs, what it does with wrong input, and what it keeps to itself."""

import json
import re
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

from undirected.app.page import serve
from undirected.errors import QueryError


def test_sequences_are_completed(visit):
    page = visit()
    page.get_by_role("tab", name="Sequences").click()
    expect(page.locator("#completed .says")).to_have_text("3 4 5 6 7 8 9 10 11")  # the example
    page.get_by_label("Numbers").fill("30 29 28 ? 26 25 24 23 22")
    page.get_by_role("button", name="Complete").click()
    expect(page.locator("#completed .says")).to_have_text("30 29 28 27 26 25 24 23 22")
    sweeps = page.get_by_label("number input for Sweeps")
    sweeps.fill("2")
    sweeps.press("Enter")
    expect(page.locator("#completed figure")).to_have_count(4)  # two half-passes in each sweep
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator("#graph")).to_contain_text("You asked for the gaps of 30 29 28 ? 26")
    page.get_by_role("tab", name="Sequences").click()
    for wrong, words in (("1 2 3", "nothing is missing"), ("1 two ? 4", "unknown"), ("? " * 50, "this network reads")):
        page.get_by_label("Numbers").fill(wrong)
        page.get_by_label("Numbers").press("Enter")
        expect(page.locator("#completed .wrong")).to_contain_text(words)


def test_sentences_are_parsed(visit):
    page = visit()
    page.get_by_role("tab", name="Parser").click()
    expect(page.locator("#parsed svg")).to_have_count(5)  # the tree, the matrix, and the three best
    page.get_by_label("Sentence").fill("these dogs see that farmer .")
    page.get_by_role("button", name="Parse").click()
    expect(page.locator("#parsed svg title").first).to_have_text("these dogs see that farmer .")
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator("#graph")).to_contain_text("the tree of: these dogs see that farmer .")
    expect(page.locator("#graph")).to_contain_text("SpanningTree")
    page.get_by_role("tab", name="Parser").click()
    for wrong, words in (("  ", "Type a sentence"), ("a " * 41, "may have 40 words here, not 41")):
        page.get_by_label("Sentence").fill(wrong)
        page.get_by_label("Sentence").press("Enter")
        expect(page.locator("#parsed .wrong")).to_contain_text(words)
    # Words are words, whatever they look like: the browser would complain about the picture.
    evil = "<img src=x onerror=alert(1)> {{value}} ${1+1} </svg><script>alert(2)</script>"
    page.get_by_label("Sentence").fill(evil)
    page.get_by_role("button", name="Parse").click()
    expect(page.locator("#parsed svg title").first).to_have_text(evil)


def test_the_graph_tells_what_became_of_the_messages(visit):
    page = visit()
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator("#graph svg")).to_have_count(2)
    rows = re.findall(r"(\d+)\s+(\w+)", page.locator("#graph .fates").inner_text())
    counts = {fate: int(number) for number, fate in rows}
    naive = int(re.search(r"the (\d+) messages", page.locator("#graph").inner_text())[1])
    assert sum(counts[fate] for fate in ("computed", "hoisted", "reused", "skipped", "pruned")) == naive


def post(address, path, data, kind="application/json"):
    request = urllib.request.Request(address + path, data, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_nothing_that_visitors_send_is_kept(address, written, visit):
    visit().get_by_role("button", name="Clear").click()
    form = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\nink\r\n--x--\r\n'
    assert post(address, "gradio_api/upload", form, "multipart/form-data; boundary=x") == 404
    # A reference to a file where text belongs, of this machine or of another, is neither read nor fetched.
    file = {"path": "/etc/hostname", "url": "http://127.0.0.1:9/x", "meta": {"_type": "gradio.FileData"}}
    for number in range(8):
        body = {"fn_index": number, "data": [file, file, file, file], "session_hash": "abc"}
        post(address, "gradio_api/queue/join", json.dumps(body).encode())
    assert post(address, "gradio_api/queue/join", b"x" * 70_000) == 413
    assert written() == set()


def test_a_port_that_is_taken_is_told(address):
    port = int(re.search(r":(\d+)/", address)[1])
    with pytest.raises(QueryError, match=rf"port {port} of 127\.0\.0\.1 \(Address already in use\)"):
        serve(None, "127.0.0.1", port)
