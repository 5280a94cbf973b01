"""Listing: a program written out as Python, one line per operation, so that running it costs nothing but the tensors.

Interpreting operations one by one takes about as long as the operations themselves when tensors are small.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable
from typing import Any

from undirected.operation import Operation, Send, Set, reads, writes

ARGUMENTS = "r, factors, activations, evidence, watch, steps, descend"


class Listing:
    """Operations, and the function that runs them: written when first wanted, and kept."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self._functions: dict[bool, Callable[..., None]] = {}

    def function(self, is_untied: bool) -> Callable[..., None]:
        """A function of the arguments named above that runs the operations on the registers `r`, in place.

        Untied, each operation has a factor and a bias of its own.
        """
        if is_untied not in self._functions:
            function = self._functions[is_untied] = _compiled(self.operations, is_untied)
            weakref.finalize(self, linecache.cache.pop, function.__code__.co_filename, None).atexit = False
        return self._functions[is_untied]

    def __getstate__(self) -> dict[str, Any]:
        return {"operations": self.operations, "_functions": {}}

    def __str__(self) -> str:
        return source(self.operations, False)


def _compiled(operations: tuple[Operation, ...], is_untied: bool) -> Callable[..., None]:
    text = source(operations, is_untied)
    name = f"<undirected program {hash(text):x}>"
    # So that error messages show the line that failed.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"operations": operations}
    exec(compile(text, name, "exec"), scope)  # written by this module from numbers and quoted names alone
    function: Callable[..., None] = scope["run"]
    return function


def source(operations: tuple[Operation, ...], is_untied: bool) -> str:
    """The source of that function."""
    written: set[int] = set()
    before: dict[int, None] = {}
    for operation in operations:
        for number in sorted(_uses(operation, is_untied) - written):
            before.setdefault(number)
        written |= writes(operation)
    sends = [operation for operation in operations if isinstance(operation, Send)]
    senders = {key: f"s{i}" for i, key in enumerate(dict.fromkeys(map(_sender, sends)))}
    sets = [operation for operation in operations if isinstance(operation, Set)]
    factors = {name: f"f{i}" for i, name in enumerate(dict.fromkeys(send.factor for send in sends))}
    activations = {name: f"a{i}" for i, name in enumerate(dict.fromkeys(each.variable for each in sets))}
    partial = dict.fromkeys(send.partial for send in sends if send.partial is not None)
    missing = {name: f"m{i}" for i, name in enumerate(partial)}
    lines = [f"def run({ARGUMENTS}):", *["    pass"] * (not operations)]
    lines += [f"    r{number} = r[{number}]" for number in before]
    if not is_untied:
        lines += [f"    {short} = factors[{name!r}]" for name, short in factors.items()]
        lines += [f"    {s} = {factors[f]}.sender({place}, {_bias(bias)})" for (f, place, bias), s in senders.items()]
        lines += [f"    {short} = evidence.missing({name!r})" for name, short in missing.items()]
    lines += [f"    {short} = activations[{name!r}]" for name, short in activations.items()]
    for position, operation in enumerate(operations):
        if isinstance(operation, Send):
            if is_untied:
                step = f"steps[{position}]"
                lines.append(f"    s = {step}.factor.sender({operation.place}, {step}.bias)")
            factor = f"{step}.factor" if is_untied else factors[operation.factor]
            # Weights of its own make another message of what has not changed, too.
            rows = None if is_untied or operation.partial is None else missing[operation.partial]
            sender = "s" if is_untied else senders[_sender(operation)]
            lines.append(f"    {_send(operation, factor, sender, rows)}")
            if operation.is_directed:  # the energy is that of this output: a module may give another one next time
                lines.append(f"    evidence.outputs[{operation.factor!r}] = r{operation.out}")
        else:
            lines += [f"    {line}" for line in _set(operation, activations[operation.variable], position, is_untied)]
        lines += [f"    r{number} = None" for number in operation.free]
    kept = written - {number for operation in operations for number in operation.free}
    lines += [f"    r[{number}] = r{number}" for number in sorted(kept)]
    lines += [f"    r[{number}] = None" for number in sorted(set(before) - kept) if _is_freed(number, operations)]
    return "\n".join(lines) + "\n"


def _is_freed(number: int, operations: tuple[Operation, ...]) -> bool:
    return any(number in operation.free for operation in operations)


def _uses(operation: Operation, is_untied: bool) -> set[int]:
    bias = set() if operation.bias is None or is_untied else {operation.bias}
    return reads(operation) | bias


def _sender(operation: Send) -> tuple[str, int, int | None]:
    return operation.factor, operation.place, operation.bias


def _bias(number: int | None) -> str:
    return "None" if number is None else f"r{number}"


def _send(operation: Send, factor: str, sender: str, rows: str | None) -> str:
    values = ", ".join(f"r{number}" for number in operation.inputs)
    if operation.is_shifted:
        values = f"*{factor}.shifted([{values}], [evidence.masks[v] for v in {factor}.variables])"
    sent = f"{sender}({values})"
    if rows is not None and operation.base is not None:
        changed = f"r{operation.inputs[1 - operation.place]}"
        sent += f" if {rows} is None else "
        sent += f"{factor}.message_from_rows({operation.place}, r{operation.base}, {rows}, {changed})"
    elif rows is not None:
        sent += f" if {rows} is None else "
        sent += f"{factor}.message_to_rows({operation.place}, {_bias(operation.bias)}, {rows}, {values})"
    return f"r{operation.out} = {sent}"


def _set(operation: Set, activation: str, position: int, is_untied: bool) -> list[str]:
    terms = [f"r{number}" for number in operation.messages]
    if operation.bias is not None:
        terms.append(f"steps[{position}].bias" if is_untied else f"r{operation.bias}")
    if not operation.messages:  # the bias alone has not the variable's shape
        terms.insert(0, f"evidence.zeros({operation.variable!r})")
    lines = [f"t = {' + '.join(terms)}"]
    if operation.descent:
        values = ", ".join(f"{number}: r{number}" for number in sorted(reads(operation)))
        lines.append(f"r{operation.out}, t = descend(operations[{position}], t, {{{values}}})")
    else:
        lines.append(f"r{operation.out} = {activation}(t)")
    if operation.preactivation is not None:
        lines.append(f"r{operation.preactivation} = t")
    lines.append(f"if watch is not None: watch(operations[{position}], r{operation.out}, t)")
    return [*lines, "t = None"]
