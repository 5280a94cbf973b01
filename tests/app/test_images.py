"""Images: what a visitor draws is read, what is hidden is filled in, what is chosen is drawn."""

import re
from itertools import pairwise

from playwright.sync_api import expect

from tests.app.conftest import draw

SEVEN = [(25, 18), (75, 18), (60, 50), (48, 88)]
ONE = [(50, 12), (50, 88)]
ZERO = [(50, 12), (30, 30), (27, 55), (36, 80), (52, 88), (70, 75), (74, 50), (68, 25), (50, 12)]


def taken_for(page, name):
    expect(page.locator("#reading .says")).to_have_text(re.compile(rf"Taken for {name} \("))


def energies(page, selector):
    """After every update, as the picture's titles have them."""
    titles = page.locator(f"{selector} circle title").evaluate_all("all => all.map(one => one.textContent)")
    return [float(title.split(": ")[1]) for title in titles]


def test_digits_drawn_with_the_mouse_are_read(visit):
    page = visit()
    taken_for(page, 5)  # an example is there at once
    for stroke, name in ((SEVEN, 7), (ONE, 1), (ZERO, 0)):
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("#reading .says")).to_have_text("Draw a digit with the mouse.")
        draw(page, stroke)
        taken_for(page, name)
    expect(page.locator("#reading tbody tr")).to_have_count(5)
    falling = energies(page, "#reading")
    assert len(falling) > 10
    assert all(after <= before + 1e-2 for before, after in pairwise(falling))
    count = page.get_by_label("number input for Iterations")
    count.fill("2")
    count.press("Enter")
    expect(page.locator("#reading tbody tr")).to_have_count(2)
    expect(page.locator("#drawn figure")).to_have_count(2)


def test_what_is_hidden_is_filled_in_without_the_class_and_with_it(visit):
    page = visit()
    taken_for(page, 5)
    page.get_by_role("button", name="Hide", exact=True).click()
    draw(page, [(30, 75), (70, 75)])
    expect(page.locator("#filling figure")).to_have_count(3)
    before = page.locator("#filling img").nth(2).get_attribute("src")
    page.get_by_label("Class that it is told, to fill in").click()
    page.get_by_role("option", name="6").click()
    expect(page.locator("#filling figcaption").nth(2)).to_have_text("told: a 6")
    assert page.locator("#filling img").nth(2).get_attribute("src") != before
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("#filling")).to_contain_text("Hide a part of your drawing")
    page.get_by_role("button", name="Rubber").click()
    draw(page, *([(2, y), (98, y)] for y in range(5, 100, 8)))
    expect(page.locator("#reading .says")).to_have_text("Draw a digit with the mouse.")


def test_classes_are_drawn_and_mixed(visit):
    page = visit()
    expect(page.locator("#drawn .says")).to_have_text("The class is a 3; nothing else is given.")
    expect(page.locator("#drawn figure")).to_have_count(5)
    page.get_by_label("Class", exact=True).click()
    page.get_by_role("option", name="7").click()
    expect(page.locator("#drawn .says")).to_contain_text("The class is a 7")
    pictures = page.locator("#drawn img")
    pure = pictures.last.get_attribute("src")
    share = page.get_by_label("number input for Share of the second, %")
    share.fill("50")
    share.press("Enter")
    expect(page.locator("#drawn .says")).to_contain_text("50% a 7, 50% a 8")
    assert pictures.last.get_attribute("src") != pure


def test_two_visitors_at_once_do_not_see_each_other_s_drawings(visit):
    one, other = visit(), visit(dark=True)
    for page in (one, other):
        taken_for(page, 5)
        page.get_by_role("button", name="Clear").click()
    draw(one, SEVEN)
    draw(other, ZERO)
    other.get_by_role("button", name="Hide half").click()
    taken_for(one, 7)
    expect(other.locator("#filling figure")).to_have_count(3)
    for page, words in ((one, "You drew a picture: which"), (other, "and hid a part of it: which")):
        page.get_by_role("tab", name="Graph").click()
        expect(page.locator("#graph")).to_contain_text(words)
