"""Use: a picture stays what it is, whatever its size, colours and format."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from undirected.errors import FileError, QueryError
from undirected.tasks.images.evaluation import evaluate
from undirected.tasks.images.model import draw, read
from undirected.tasks.images.picture import open_picture
from undirected.tasks.images.use import classify, complete, fill_in, generate, hidden_half


def scene(path, size=(300, 200), ground="white", mark="black", mode="RGB"):
    """A thick stroke from the upper left to the lower right, on some ground."""
    picture = Image.new(mode, size, ground)
    ImageDraw.Draw(picture).line((80, 40, 220, 160), fill=mark, width=24)
    picture.save(path)
    return path


@pytest.mark.parametrize(
    ("name", "ground", "mark", "mode"),
    [
        ("inverted.png", "black", "white", "RGB"),
        ("grey.png", 255, 0, "L"),
        ("blue.png", "#ffffcc", "#000088", "RGB"),
        ("scan.jpg", "white", "black", "RGB"),
        ("clear.png", (0, 0, 0, 0), (0, 0, 0, 255), "RGBA"),
    ],
)
def test_colours_and_formats_do_not_matter(tmp_path, name, ground, mark, mode):
    plain = open_picture(scene(tmp_path / "plain.png"), 28)
    other = open_picture(scene(tmp_path / name, ground=ground, mark=mark, mode=mode), 28)
    assert (plain - other).abs().mean() < 0.02
    assert plain.max() == pytest.approx(1)
    assert plain.min() == -1


def test_size_and_place_do_not_matter(tmp_path):
    small = open_picture(scene(tmp_path / "a.png"), 28)
    with Image.open(tmp_path / "a.png") as picture:
        large = Image.new("RGB", (900, 1000), "white")
        large.paste(picture.resize((600, 400)), (250, 500))
        large.save(tmp_path / "b.png")
    assert (small - open_picture(tmp_path / "b.png", 28)).abs().mean() < 0.03
    ink = small[0, 0] > 0  # fitted into 20 of 28 pixels, its mass in the middle
    rows = ink.any(1).nonzero()
    assert 18 <= rows.max() - rows.min() + 1 <= 20
    mass = (small[0, 0] + 1).sum(1)
    assert float(mass @ torch.arange(28.0) / mass.sum()) == pytest.approx(13.5, abs=0.6)


def test_pictures_of_the_network_s_size_are_read_as_they_are(trained, tmp_path):
    test = trained.images.test
    rows = ((test.images.amax((1, 2, 3)) == 1) & (test.images[:, 0, :, 0].amax(1) == -1)).nonzero()[:40, 0]
    images, labels = test.images[rows], test.labels[rows]  # all of the contrast, and paper at the border
    paths = []
    for number, image in enumerate(images):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(((image[0] + 1) * 127.5).round().numpy().astype(np.uint8)).save(paths[-1])
    found = classify(trained.folder, paths, out=tmp_path / "seen")
    expected = read(trained.net, images, 1)["y"].detach()
    for one, row in zip(found, expected, strict=True):
        assert int(one.name) == int(row.argmax())
        assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert one.probability == pytest.approx(float(row.max()), abs=0.02)
    assert np.mean([int(one.name) == label for one, label in zip(found, labels.tolist(), strict=True)]) > 0.6
    assert len(list((tmp_path / "seen").iterdir())) == 40


def test_no_pictures_are_refused_by_name(tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(FileError, match=r"text\.png"):
        open_picture(tmp_path / "text.png", 28)
    with pytest.raises(FileError, match=r"gone\.png"):
        open_picture(tmp_path / "gone.png", 28)
    Image.new("L", (50, 50), 128).save(tmp_path / "empty.png")
    with pytest.raises(FileError, match=r"empty\.png.*empty"):
        open_picture(tmp_path / "empty.png", 28)


def test_generate_writes_what_the_network_draws(trained, tmp_path):
    (path,) = generate(trained.folder, label=3, iterations=2, out=tmp_path)
    assert path.name == "class-3.png"
    with Image.open(path) as picture:
        levels = torch.from_numpy(np.array(picture.resize((8, 8), Image.Resampling.NEAREST))).float()
    expected = draw(trained.net, torch.tensor([3]), 2)["x"][0, 0].detach()
    torch.testing.assert_close(1 - levels / 127.5, expected, atol=0.01, rtol=0)
    assert len(generate(trained.folder, out=tmp_path / "all")) == 10
    with pytest.raises(QueryError, match="0 to 9"):
        generate(trained.folder, label=10, out=tmp_path)


@pytest.mark.parametrize("label", [None, 3])
def test_completion_keeps_what_is_known_and_lowers_the_energy(trained, label):
    images = trained.images.test.images[:6]
    hidden = hidden_half(8, "left")
    labels = None if label is None else torch.full((6,), label)
    with torch.no_grad():
        found = fill_in(trained.net, images, hidden, labels, 5)
        blank = torch.where(hidden, 0.0, images)
        before = trained.net.energy(_settled(trained.net, blank, found["y"]))
        after = trained.net.energy(_settled(trained.net, found["x"], found["y"]))
    assert torch.equal(found["x"][..., :, 4:], images[..., :, 4:])
    assert (found["x"][..., :, :4] != 0).all()
    assert (after <= before + 1e-4).all()


def _settled(net, x, y):
    """An image and a class with the hidden layers that many sweeps find for them."""
    return dict(net(observe={"x": x, "y": y}, order="h1 h2", iterations=50).values)


def test_complete_takes_a_side_or_a_mask(trained, tmp_path):
    scene(tmp_path / "a.png")
    found = complete(trained.folder, tmp_path / "a.png", hide="top", out=tmp_path)
    assert found.path.is_file()
    mask = Image.new("L", (100, 100), 0)
    mask.paste(255, (0, 50, 100, 100))
    mask.save(tmp_path / "mask.png")
    by_mask = complete(trained.folder, tmp_path / "a.png", hide=str(tmp_path / "mask.png"), out=tmp_path / "m")
    by_name = complete(trained.folder, tmp_path / "a.png", hide="bottom", out=tmp_path / "n")
    assert by_mask.path.read_bytes() == by_name.path.read_bytes()
    assert complete(trained.folder, tmp_path / "a.png", label=7, out=tmp_path / "o").name == "7"
    Image.new("L", (9, 9), 0).save(tmp_path / "mask.png")
    with pytest.raises(QueryError, match="hides nothing"):
        complete(trained.folder, tmp_path / "a.png", hide=str(tmp_path / "mask.png"), out=tmp_path)


def test_precisions_agree_and_others_are_refused(trained, tmp_path):
    scene(tmp_path / "a.png")
    single, double, mixed = (
        classify(trained.folder, [tmp_path / "a.png"], precision=p)[0].probability for p in ("32", "64", "bf16-mixed")
    )
    assert single == pytest.approx(double, abs=1e-4)
    assert single == pytest.approx(mixed, abs=0.1)
    with pytest.raises(QueryError, match="bf16-mixed"):
        classify(trained.folder, [tmp_path / "a.png"], precision="8")


def test_evaluation_counts_every_test_image(trained):
    found = evaluate(trained.folder)
    assert found.accuracy == pytest.approx(trained.result["test_accuracy"])
    assert found.confusion.sum() == found.count == 300
    assert found.confusion.diagonal().sum() / 300 == pytest.approx(found.accuracy)
    assert found.confusion.sum(1).tolist() == trained.images.test.labels.bincount().tolist()


def test_files_that_are_no_image_networks_are_refused(tmp_path, trained):
    import undirected as un

    net = un.UNN(un.Variable("a", (2,)), un.Variable("b", (2,)), un.Linear("a", "b"))
    un.save(net, tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="not one for images"):
        evaluate(tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="no network there"):
        evaluate(tmp_path)
