"""Tables: parsers with one to five iterations, trained as in the paper, beside its figures where they are known."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undirected.tasks.parsing.run import train
from undirected.tasks.parsing.settings import Settings
from undirected.tasks.parsing.treebank import load
from undirected.tasks.run import read_result
from undirected.tasks.table import Table, spread

#: UAS of the paper with multilingual BERT, by treebank. No other figures are known here.
PAPER = {
    "UD_English-ParTUT": "91.99",
    "UD_Afrikaans-AfriBooms": "89.1",
    "UD_Hungarian-Szeged": "85.8",
    "UD_Telugu-MTG": "90.0",
}
#: Of the paper's published configurations, the same for all languages.
PAPER_RATE, PAPER_CLIP, PAPER_EPOCHS, PAPER_WARMUP, PAPER_SENTENCES = 5e-5, 1.0, 50, 20, 20
#: Learning rates that `--grid` tries: those around the paper's, and around ours for what is learned from scratch.
GRID = {"pretrained": (1e-5, 2e-5, 5e-5, 1e-4), "lstm": (1e-3, 2e-3, 4e-3)}
COLUMNS = {
    "UAS": "test_uas",
    "LAS": "test_las",
    "exact match": "test_exact_match",
    "modifier list": "test_modifier_list_accuracy",
    "modifier count": "test_modifier_count_accuracy",
}


def reproduce(
    data: str,
    encoder: str = "lstm",
    grid: bool = False,
    most: int = 5,
    quick: bool = False,
    seeds: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
    out: Path | str = "out/parsing",
) -> Table:
    """Run what the table needs and is not there yet; write it as Markdown and CSV."""
    folder = Path(out)
    rows: list[dict[str, Any]] = []
    for treebank in treebanks(data):
        for k in range(1, most + 1):
            base = settings(treebank, encoder, epochs or (2 if quick else 0))
            base = replace(base, iterations=k, device=device, precision=precision)  # type: ignore[arg-type]
            tried = [_with_rate(base, rate) for rate in _grid(encoder)] if grid else [base]
            results = [_runs(one, folder, range(seed, seed + (seeds or 1))) for one in tried]
            best = max(results, key=lambda runs: statistics.mean(run["val_uas"] for run in runs))
            rows.append(row(encoder, k, best) | {"learning rate": tried[results.index(best)].learning_rate})
    table = Table("parsing", note(encoder, seeds or 1, quick), rows)
    table.write(folder)
    return table


def treebanks(data: str) -> list[str]:
    """The treebank that `data` means, or all those in the folder that it is."""
    folder = Path(data)
    below = sorted({path.parent for path in folder.glob("*/*-ud-train.conllu")}) if folder.is_dir() else []
    return [str(path) for path in below] or [data]


def settings(data: str, encoder: str, epochs: int = 0) -> Settings:
    """The paper's for an encoder that was trained before; ours for one that learns from scratch."""
    if encoder == "lstm":
        return Settings(data=data, encoder=encoder, epochs=epochs)
    lengths = [len(sentence) for sentence in load(data).train]
    epochs = epochs or PAPER_EPOCHS
    steps = epochs * -(-len(lengths) // PAPER_SENTENCES)
    return Settings(
        data=data,
        encoder=encoder,
        hidden=400,
        dropout=0.3,
        epochs=epochs,
        words=round(PAPER_SENTENCES * statistics.mean(lengths)),
        learning_rate=PAPER_RATE,
        encoder_learning_rate=PAPER_RATE,
        clip=PAPER_CLIP,
        single=0.0,
        warmup=min(PAPER_WARMUP / steps, 0.5),
    )


def run_name(settings: Settings) -> str:
    """A folder for a run, the same for the same experiment."""
    parts = [Path(settings.data).name, Path(settings.encoder).name, f"k{settings.iterations}"]
    parts += [f"epochs{settings.epochs}", f"rate{settings.learning_rate:g}", f"seed{settings.seed}"]
    return "-".join(parts)


def row(encoder: str, k: int, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table: the mean over runs in %, and the standard deviation where there are several."""
    figures = {name: spread([100 * run[key] for run in runs]) for name, key in COLUMNS.items()}
    return {
        "treebank": runs[0]["treebank"],
        "encoder": Path(encoder).name,
        "k": k,
        **figures,
        "paper's UAS": PAPER.get(runs[0]["treebank"], ""),
        "seeds": len(runs),
        "epochs": runs[0]["epochs"],
        "CPU minutes per run": f"{statistics.mean(run['cpu_seconds'] for run in runs) / 60:.1f}",
    }


def note(encoder: str, seeds: int, quick: bool) -> str:
    """What the figures are, and what they are not."""
    words = f"Test figures in %, punctuation included, {seeds} seed{'s' * (seeds > 1)}, best epoch by UAS on the dev"
    words += " part."
    words += " A quick version: few epochs; the full one has more." if quick else ""
    words += " The paper's UAS are with multilingual BERT"
    return words + (", which was trained on far more than the treebank." if encoder == "lstm" else ".")


def _grid(encoder: str) -> tuple[float, ...]:
    return GRID["lstm" if encoder == "lstm" else "pretrained"]


def _with_rate(settings: Settings, rate: float) -> Settings:
    return replace(settings, learning_rate=rate, encoder_learning_rate=rate)


def _runs(settings: Settings, folder: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    found = []
    for seed in seeds:
        one = replace(settings, seed=seed)
        train(one, folder / run_name(one), resume=True)
        found.append(read_result(folder / run_name(one)))
    return found
