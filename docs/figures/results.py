"""The pictures of docs/results/images.md, docs/results/sequences.md and docs/tasks/parsing.md.

python docs/figures/results.py                                        # what needs the packaged networks alone
python docs/figures/results.py --plain RUN --one RUN --rough RUN      # drawings too, and who recognises them
python docs/figures/results.py --curves "k = 1=RUN" "k = 2=RUN"       # how sequences were learned

RUN is a folder that `undirected train` has written. Of images on MNIST: `--plain` one with gamma 0, `--one` with gamma
0.1 and one iteration, `--rough` with gamma 0.1 and five. MNIST is looked for in $UNDIRECTED_DATA.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from undirected.network import UNN
from undirected.tasks.images import figures
from undirected.tasks.images.data import Images, load
from undirected.tasks.images.evaluation import evaluate
from undirected.tasks.images.judge import recognised, trained_judge
from undirected.tasks.images.saved import open_model
from undirected.tasks.parsing import drawing
from undirected.tasks.parsing.parser import load as load_parser
from undirected.tasks.sequences import figures as sequence_figures
from undirected.tasks.sequences import tables

DOCS = Path(__file__).parents[1]
RESULTS, IMAGES = DOCS / "results", DOCS / "images"
SENTENCE = "these cats like every big teacher again who waits ."


def packaged(images: Images) -> None:
    """The energy, completions and mistakes of the network in the package."""
    net = open_model("mnist").net
    figures.energy(net, images, 5, RESULTS / "images-energy.png")
    figures.completion(net, images, 5, RESULTS / "images-completion.png")
    found = evaluate("mnist", "mnist")
    figures.confusion(found.confusion, found.classes, RESULTS / "images-confusion.png")


def drawings(networks: dict[str, tuple[UNN, int]], rough: UNN, images: Images) -> None:
    """The prototypes, and how many of them a judge recognises."""
    figures.prototypes(networks, images.classes, RESULTS / "images-prototypes.png")
    figures.prototypes({"gamma 0.1": (rough, 5)}, images.classes, RESULTS / "images-prototypes-gamma-0.1.png")
    judge, accuracy = trained_judge(images)
    print(f"Of the ten drawings at k = 5, a judge that reads {accuracy:.2%} of the test images recognises")
    for name, net in {**{name: net for name, (net, _) in networks.items()}, "gamma 0.1, k = 5": rough}.items():
        print(f"  {int(recognised(net, judge, 5).sum()):2} of {name}")


def tree() -> None:
    """A tree with its probabilities, and those of all arcs."""
    parse = load_parser("toy-parser")(SENTENCE)
    drawing.tree(parse.words, parse.heads, parse.labels, parse.probabilities).save(IMAGES / "parse.svg")
    drawing.matrix(parse.words, parse.marginals.tolist(), parse.heads).save(IMAGES / "parse-arcs.svg")


def curves(named: list[str]) -> None:
    """Validation accuracy against the steps, of runs on sequences."""
    runs = dict(each.rsplit("=", 1) for each in named)
    found = {name: tables.accuracies(Path(folder)) for name, folder in runs.items()}
    sequence_figures.curves(found, RESULTS / "sequences-curves.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("plain", "one", "rough"):
        parser.add_argument(f"--{name}", metavar="RUN")
    parser.add_argument("--curves", nargs="*", metavar="NAME=RUN", default=[])
    chosen = parser.parse_args()
    tree()
    if chosen.curves:
        curves(chosen.curves)
    images = load("mnist")
    packaged(images)
    if chosen.plain and chosen.one and chosen.rough:
        networks = {
            "gamma 1": (open_model("mnist").net, 5),
            "gamma 0.1, k = 1": (open_model(chosen.one).net, 1),
            "plain convnet": (open_model(chosen.plain).net, 1),
        }
        drawings(networks, open_model(chosen.rough).net, images)


if __name__ == "__main__":
    main()
