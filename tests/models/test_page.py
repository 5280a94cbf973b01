"""The page "Which network?" has every model, and its pictures are those of the models."""

import runpy
from pathlib import Path

import undirected as un

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_every_model_is_on_the_page():
    for name in un.models.__all__:
        assert f"un.models.{name}(" in PAGE, name


def test_pictures_show_the_models():  # from the networks: each variable and factor is named in its picture
    figures = runpy.run_path(str(ROOT / "docs" / "figures" / "models.py"))
    for name, (net, _) in figures["NETWORKS"].items():
        assert f"images/models/{name}.svg" in PAGE
        picture = (figures["FOLDER"] / f"{name}.svg").read_text(encoding="utf-8")
        for part in (*net.variables, *net.factors):
            assert f'data-name="{part}"' in picture, (name, part)
