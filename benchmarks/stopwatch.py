"""Stopwatch: compare functions in one process, interleaved, by the median; and the memory that they need at most."""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import date

import torch
from torch.profiler import ProfilerActivity, profile


def medians(
    functions: Mapping[str, Callable[[], object]], rounds: int = 25, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Seconds per call. Each round runs every function once, so that noise hits all alike, in an order of its own: what
    one leaves in memory and caches is the next one's luck."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
        function()
    order, shuffle = list(functions), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            begin = clock()
            functions[name]()
            seconds[name].append(clock() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_memory(function: Callable[[], object]) -> int:
    """The largest number of bytes that the function's tensors take at once, as torch's allocator reports it."""
    function()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def setting() -> str:
    """Date, machine and versions, for the head of a table of results."""
    return (
        f"{date.today()}, {platform.machine()} ({torch.backends.cpu.get_cpu_capability()}), "
        f"{torch.get_num_threads()} threads, Python {platform.python_version()}, torch {torch.__version__}"
    )
