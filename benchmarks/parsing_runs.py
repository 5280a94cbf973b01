"""Parsers of several treebanks with one to three iterations: the figures of docs/results/parsing.md.

python benchmarks/parsing_runs.py --missing             # the runs that are yet to be made
python benchmarks/parsing_runs.py te-lstm-k2-seed0 ...  # make them, each from where it was stopped; write the files
python benchmarks/parsing_runs.py                       # write the files from the runs that are there

Every run is a folder in out/parsing. What it gave is copied to docs/results/parsing-runs.csv, from which the tables in
docs/results/parsing.md are made; the text around them is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from typing import Any

from undirected.tasks.parsing.run import train
from undirected.tasks.parsing.settings import Settings
from undirected.tasks.parsing.tables import COLUMNS, PAPER
from undirected.tasks.run import RESULT, read_result
from undirected.tasks.table import spread

RUNS = Path("out/parsing")
PAGE, FILE = Path("docs/results/parsing.md"), Path("docs/results/parsing-runs.csv")
KEYS = ("val_uas", "val_las", "best_epoch", "epochs", "parameters", "seconds", "cpu_seconds", "threads")

#: What depends on the treebank: small ones are gone through more often, in smaller steps.
LSTM: dict[str, dict[str, Any]] = {
    "te": {"words": 180, "epochs": 32},
    "hu": {"words": 130, "epochs": 24, "learning_rate": 2e-3},
    "af": {"words": 160, "epochs": 22, "learning_rate": 2e-3},
    "en": {"words": 160, "epochs": 18, "learning_rate": 2e-3},
    "pt": {"words": 250, "epochs": 6, "learning_rate": 2e-3},
}
MINILM: dict[str, Any] = {
    "words": 300,
    "learning_rate": 1e-3,
    "encoder_learning_rate": 1.5e-4,
    "warmup": 0.1,
}


def runs() -> dict[str, Settings]:
    """All runs by name, the cheap ones first."""
    plan = [(data, k, seed) for seed in range(3) for data in ("te", "hu") for k in (1, 2, 3)]
    plan[6:6] = [(data, k, 0) for data in ("af", "en") for k in (1, 2, 3)]
    plan.append(("pt", 1, 0))
    found = {
        f"{data}-lstm-k{k}-seed{seed}": Settings(data=data, iterations=k, seed=seed, **LSTM[data])
        for data, k, seed in plan
    }
    for k, epochs in ((1, 8), (2, 6)):
        chosen = Settings(data="en", encoder="minilm", iterations=k, epochs=epochs, **MINILM)
        found[f"en-minilm-k{k}-seed0"] = chosen
    return found


def collect() -> list[dict[str, Any]]:
    """What the runs gave: those in the file, and those whose folders are there."""
    known: dict[str, dict[str, Any]] = {}
    if FILE.is_file():
        with FILE.open(newline="") as file:
            known = {row["run"]: row for row in csv.DictReader(file)}
    for name, settings in runs().items():
        if (RUNS / name / RESULT).is_file():
            result = read_result(RUNS / name)
            known[name] = {
                "run": name,
                "treebank": result["treebank"],
                "encoder": settings.encoder,
                "k": settings.iterations,
                "seed": settings.seed,
                **{key: f"{result[key]:.6f}" for key in COLUMNS.values()},
                **{key: result[key] for key in KEYS},
            }
    return [known[name] for name in runs() if name in known]


def tables(rows: list[dict[str, Any]]) -> str:
    """A line for each treebank, encoder and number of iterations."""
    heads = ["treebank", "encoder", "k", "seeds", *COLUMNS, "dev UAS", "paper's UAS", "epochs", "CPU minutes per run"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["treebank"], row["encoder"], str(row["k"])), []).append(row)
    for (treebank, encoder, k), group in sorted(groups.items(), key=lambda item: item[0]):
        cells = [treebank.removeprefix("UD_"), encoder, k, len(group)]
        cells += [spread([100 * float(row[key]) for row in group]) for key in COLUMNS.values()]
        cells += [spread([100 * float(row["val_uas"]) for row in group]), PAPER.get(treebank, ""), group[0]["epochs"]]
        cells += [f"{sum(float(row['cpu_seconds']) for row in group) / len(group) / 60:.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def write() -> None:
    rows = collect()
    if not rows:
        return
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if PAGE.is_file():
        text = PAGE.read_text()
        inside = rf"\g<1>\n{tables(rows)}\n\g<2>"
        PAGE.write_text(re.sub(r"(<!-- table -->\n).*?(<!-- end -->)", inside, text, flags=re.DOTALL))
    else:
        print(tables(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="runs to make")
    parser.add_argument("--missing", action="store_true", help="list the runs that are yet to be made")
    chosen = parser.parse_args()
    if chosen.missing:
        done = {row["run"] for row in collect()}
        print("\n".join(name for name in runs() if name not in done))
        return
    for name in chosen.names:
        train(runs()[name], RUNS / name, resume=True, progress=False)
        write()
    if not chosen.names:
        write()


if __name__ == "__main__":
    main()
