"""Judge: it learns, and it counts drawings of the right class."""

import pytest
import torch

from undirected.tasks.images.judge import recognised, trained_judge
from undirected.tasks.images.model import draw


@pytest.fixture(scope="module")
def judged(trained):
    return trained_judge(trained.images, epochs=6)


def test_a_judge_reads_test_images(judged, trained):
    judge, accuracy = judged
    test = trained.images.test
    assert accuracy > 0.6
    with torch.no_grad():
        assert (judge.net(test.images).argmax(1) == test.labels).float().mean() == pytest.approx(accuracy)


def test_a_drawing_is_recognised_if_the_judge_reads_its_class_in_it(judged, trained):
    judge, _ = judged
    found = recognised(trained.net, judge, 2)
    with torch.no_grad():
        for number in range(10):
            drawing = draw(trained.net, torch.tensor([number]), 2)["x"]
            assert bool(found[number]) == (int(judge.net(drawing).argmax()) == number)
