"""Trees against SuPar 1.1.4 and torch-struct 0.5: ratios of CPU time, in one process, interleaved, on one thread.

    pip install --no-deps --target rivals supar==1.1.4 torch-struct==0.5
    python benchmarks/structure.py rivals                       # prints; add --write to renew docs/results/structure.md

The two are needed for this only. SuPar's structures are imported without the rest of it, which needs more packages.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import statistics
import sys
import time
import types
import warnings
from pathlib import Path

import torch

import undirected as un

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "structure.md"


def rivals(folder: str) -> tuple[types.ModuleType, types.ModuleType]:
    sys.path.insert(0, folder)
    for name in ("supar", "supar.utils"):  # empty packages, so that their __init__ files do not run
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules[name] = package
    import supar.structs
    import torch_struct

    return supar.structs, torch_struct


def like_a_parser(batch: int, n: int) -> torch.Tensor:
    """Noise of standard deviation 2, with the arcs of a random tree 8 above it."""
    scores = 2 * torch.randn(batch, n + 1, n)
    for b in range(batch):
        order = torch.randperm(n)
        scores[b, 0, order[0]] += 8
        for k in range(1, n):
            scores[b, order[torch.randint(k, (1,))] + 1, order[k]] += 8
    return scores


def interleaved(calls: dict, seconds: float) -> dict[str, float]:
    """The median CPU time of each call in ms, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or min(map(len, times.values())) < 5:
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: 1000 * statistics.median(t) for name, t in times.items()}


def trained(distribution, shape: tuple[int, ...]):
    """log Z, marginals, and the backward pass through both."""
    scores = torch.randn(shape)

    def call() -> None:
        leaf = scores.clone().requires_grad_()
        log_z, marginals = distribution(leaf)
        (log_z.sum() + marginals.square().sum()).backward()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rivals", nargs="?", default="rivals", help="folder with supar and torch_struct")
    parser.add_argument("--seconds", type=float, default=5.0, help="per row")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.rivals):
        print(f"Nothing measured: there is no folder {arguments.rivals} with SuPar and torch-struct; see --help.")
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message=".*arg_constraints.*")
    structs, torch_struct = rivals(arguments.rivals)
    lines = [
        "# Trees: speed",
        "",
        f"Measured on {datetime.date.today()} with `benchmarks/structure.py`: torch {torch.__version__}, numba "
        f"{importlib.metadata.version('numba')}, SuPar 1.1.4, torch-struct 0.5, Python {platform.python_version()}, "
        f"one thread of a {os.cpu_count()}-core {platform.machine()} virtual machine shared with other jobs. Median "
        "CPU time, calls taking turns in one process. Ours and SuPar's spanning trees compute in float64, "
        "torch-struct's and SuPar's projective trees in the float32 that comes in; the self-test is on.",
        "",
        "## Spanning trees: log Z, marginals and backward through both, batch 32",
        "",
        "| n | undirected, ms | SuPar, ms | torch-struct, ms | ratio to SuPar | ratio to torch-struct |",
        "| --- | --- | --- | --- | --- | --- |",
    ]

    def supar(kind):
        def distribution(scores):
            d = kind(scores)
            return d.log_partition, d.marginals

        return distribution

    def struct(scores):
        d = torch_struct.NonProjectiveDependencyCRF(scores)
        return d.partition, d.marginals

    for n in (10, 25, 50, 100):
        t = interleaved(
            {
                "ours": trained(un.SpanningTree().infer, (32, n + 1, n)),
                "supar": trained(supar(structs.MatrixTree), (32, n + 1, n + 1)),
                "struct": trained(struct, (32, n, n)),
            },
            arguments.seconds,
        )
        lines.append(
            f"| {n} | {t['ours']:.2f} | {t['supar']:.2f} | {t['struct']:.2f} | {t['ours'] / t['supar']:.2f} | "
            f"{t['ours'] / t['struct']:.2f} |"
        )
    lines += ["", "The aim is 0.5 of SuPar and 0.75 of torch-struct."]
    lines += [
        "",
        "## Projective trees: the same",
        "",
        "| n | undirected, ms | SuPar, ms | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for n in (25, 50):
        t = interleaved(
            {
                "ours": trained(un.ProjectiveTree().infer, (32, n + 1, n)),
                "supar": trained(supar(structs.DependencyCRF), (32, n + 1, n + 1)),
            },
            arguments.seconds,
        )
        lines.append(f"| {n} | {t['ours']:.1f} | {t['supar']:.1f} | {t['ours'] / t['supar']:.2f} |")
    lines += ["", "## Decoding: `SpanningTree().mode` with a single root, batch 512", ""]
    lines += ["Scores like a trained parser's are synthetic: noise of deviation 2, a random tree 8 above it.", ""]
    lines += ["| n | scores | sentences a second |", "| --- | --- | --- |"]
    for n in (25, 100):
        for name, scores in (
            ("like a trained parser's", like_a_parser(512, n)),
            ("random", torch.randn(512, n + 1, n)),
        ):
            t = interleaved({"ours": lambda s=scores: un.SpanningTree().mode(s)}, arguments.seconds / 2)
            lines.append(f"| {n} | {name} | {512000 / t['ours']:,.0f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.write:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
