"""Sketch: a drawing comes as numbers, and nothing else is taken for one."""

import base64

import numpy as np
import pytest

from undirected.app.images import Reader
from undirected.app.sketch import GRID, Drawing, decode
from undirected.errors import QueryError


def encoded(cells):
    return base64.b64encode(np.round(cells * 255).astype(np.uint8).tobytes()).decode()


def test_a_drawing_comes_back_as_it_was_sent():
    ink, hidden = np.random.default_rng(0).random((2, GRID, GRID)).round(2)
    drawing = decode(f"{encoded(ink)}.{encoded(hidden)}")
    np.testing.assert_allclose(drawing.ink, ink, atol=1 / 255)
    assert (drawing.hidden == (np.round(hidden * 255) > 127.5)).all()


@pytest.mark.parametrize(
    "wrong", [None, "", 3, ["a"], {"path": "/etc/passwd"}, "a.b", "a.b.c", encoded(np.ones((9, 9))) + ".", "\ud800.é"]
)
def test_what_is_no_drawing_is_refused(wrong):
    with pytest.raises(QueryError):
        decode(wrong)


@pytest.mark.parametrize("model", ["mnist", "digits"])
def test_what_is_hidden_stays_hidden_when_the_drawing_is_fitted_into_the_frame(model):
    reader = Reader(model)
    ink, hidden = np.zeros((GRID, GRID), np.float32), np.zeros((GRID, GRID), bool)
    ink[10:50, 20:30] = 1  # 40 rows of ink, of which the lower half is hidden, as is all that lies beside and below it
    hidden[30:] = True
    image, mask = reader.seen(Drawing(ink, hidden))
    rows = mask.all(1)
    assert (mask.any(1) == rows).all()  # whole rows
    inked = (image[0, 0] > 0).any(1)
    assert (inked & rows).sum() == (inked & ~rows).sum()  # half of the ink
    assert rows[-1]
    assert not rows[0]
