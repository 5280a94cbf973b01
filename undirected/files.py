"""Files: a network in one safetensors file, its declaration in the header. No pickle: reading a file runs no code."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undirected import factors as _factors
from undirected import packaged, regularizers, simplex, structure
from undirected.declaration import positional, settings
from undirected.errors import FileError
from undirected.factors import Directed, Energy, Factor, Tied
from undirected.graph import Graph
from undirected.network import UNN
from undirected.regularizers import Regularizer
from undirected.spectral import Spectral, spectral
from undirected.variable import Variable

FORMAT = 1
KEY = "undirected"


def save(net: Graph, path: str | os.PathLike[str]) -> None:
    """Write the network to one file, all of it or nothing.

    A `Directed` or `Energy` holds Python code: its weights are saved, and `load` must be given the factor again.
    """
    tensors, aliases = _tensors(net)
    header = {
        "format": FORMAT,
        "variables": [_variable(variable) for variable in net.variables.values()],
        "factors": [_factor(factor, net) for factor in net.factors.values()],
        "aliases": aliases,
        "notes": net.notes,
    }
    try:
        text = json.dumps(header)
    except TypeError as error:
        raise FileError(
            f"save: an argument of the declaration, or a note, cannot be written as JSON: {error}."
        ) from None
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"save: there is no folder {target.parent}. Make it first.")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    os.close(handle)
    try:
        _safetensors().torch.save_file(tensors, temporary, metadata={KEY: text})
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def load(
    path: str | os.PathLike[str],
    factors: Sequence[Factor] = (),
    classes: Iterable[type[Regularizer] | type[Factor]] = (),
) -> UNN:
    """Read a network that `un.save(net, path)` wrote, or one that comes with the library.

    Args:
        path: a file, or the name of a packaged network: a word such as `"mnist"`. A file of your own without a suffix
            is `"./mnist"` or `Path("mnist")`; where the word could mean both, it is refused.
        factors: the `Directed` and `Energy` factors of the network, which no file can hold, by their names.
        classes: your own regularizers and factors that the network was declared with.

    >>> un.load("digits").variables["x"].shape
    (1, 8, 8)
    """
    header, tensors = _read(packaged.locate(path))
    known = {cls.__name__: cls for cls in (*_builtin(), *classes)}
    given = {factor.name: factor for factor in factors}
    try:
        parts: list[Variable | Factor] = [_declared_variable(entry, known) for entry in header["variables"]]
        made: dict[str, Factor] = {}
        for entry in sorted(header["factors"], key=lambda entry: "tied" in entry):
            made[entry["name"]] = _declared_factor(entry, known, given, made)
        parts += [made[entry["name"]] for entry in header["factors"]]
        net = UNN(*parts)
        for alias, original in header["aliases"].items():
            tensors[alias] = tensors[original]
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise FileError(
            f"{path}: the declaration in its header is broken ({type(error).__name__}: {error})."
        ) from error
    if tensors:
        net.to(next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.get_default_dtype()))
    try:
        net.load_state_dict(tensors)
    except RuntimeError as error:
        raise FileError(f"{path}: its weights do not fit its declaration. {error}") from None
    for alias, original in header["aliases"].items():
        _tie(net, alias, original)
    net.notes.update(header.get("notes", {}))
    return net


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise ImportError("Saving and loading needs safetensors: pip install 'undirected[files]'.") from None
    return safetensors


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _builtin() -> list[type]:
    modules = (regularizers, simplex, structure, _factors)
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return [cls for cls in found if issubclass(cls, (Regularizer, Factor)) and cls not in (Directed, Energy, Tied)]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    library = _safetensors()
    if path.is_dir():
        raise FileError(f"{path}: is a folder; give the file in it.")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    try:
        with library.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except library.SafetensorError as error:
        raise FileError(f"{path}: not a safetensors file, or only part of one ({error}).") from None
    if KEY not in metadata:
        raise FileError(
            f"{path}: a safetensors file, but not a network saved by this library: its header has no {KEY!r}. "
            "(Parsers are opened by undirected.tasks.parsing.parser.load.)"
        )
    try:
        header = json.loads(metadata[KEY])
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: the declaration in its header is broken ({error}).") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        version = header.get("format") if isinstance(header, dict) else None
        raise FileError(f"{path}: has format {version}; this version reads format {FORMAT}. Update undirected.")
    return header, tensors


def _tensors(net: Graph) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Every tensor once, and which names are the same one."""
    first: dict[int, str] = {}
    tensors, aliases = {}, {}
    for name, tensor in net.state_dict(keep_vars=True).items():
        if id(tensor) in first:
            aliases[name] = first[id(tensor)]
        else:
            first[id(tensor)] = name
            tensors[name] = tensor.detach().clone().contiguous()
    return tensors, aliases


def _tie(net: nn.Module, alias: str, original: str) -> None:
    *path, leaf = alias.split(".")
    *source, name = original.split(".")
    setattr(net.get_submodule(".".join(path)), leaf, getattr(net.get_submodule(".".join(source)), name))


def _variable(variable: Variable) -> dict[str, Any]:
    regularizer = variable.regularizer
    kind = {"kind": type(regularizer).__name__, "settings": settings(regularizer)}
    return {**settings(variable), "shape": list(variable.shape), "regularizer": kind}


def _factor(factor: Factor, net: Graph) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": factor.name, "variables": list(factor.variables)}
    if factor.original is not factor:
        return {**entry, "tied": next(name for name, other in net.factors.items() if other is factor.original)}
    if isinstance(factor, Spectral):
        return {**entry, "spectral": factor.below, "factor": _factor(factor.factor, net)}
    if isinstance(factor, (Directed, Energy)):
        return {**entry, "given": type(factor).__name__}
    found = settings(factor)
    shift = found.pop("shift", None) or {}
    learned = {name: isinstance(constant, nn.Parameter) for name, constant in shift.items()}
    shapes = {name: list(constant.shape) for name, constant in shift.items()}
    entry |= {"kind": type(factor).__name__, "settings": found, "positional": list(positional(factor))}
    return {**entry, "shift": {name: [shapes[name], learned[name]] for name in shift}}


def _class(kind: str, known: dict[str, type]) -> type:
    if kind not in known:
        raise FileError(
            f"the network uses {kind}, which is not part of this library. Give load(..., classes=[{kind}])."
        )
    return known[kind]


def _declared_variable(entry: dict[str, Any], known: dict[str, type]) -> Variable:
    kind = entry["regularizer"]
    regularizer = _class(kind["kind"], known)(**kind["settings"])
    return Variable(**{**entry, "shape": tuple(entry["shape"]), "regularizer": regularizer})


def _declared_factor(
    entry: dict[str, Any], known: dict[str, type], given: dict[str, Factor], made: dict[str, Factor]
) -> Factor:
    name = entry["name"]
    if "tied" in entry:
        return made[entry["tied"]].tied(*entry["variables"], name=name)
    if "spectral" in entry:
        return spectral(_declared_factor(entry["factor"], known, given, made), entry["spectral"])
    if "given" in entry:
        if name not in given:
            raise FileError(
                f"the factor {name!r} is a {entry['given']}, which holds Python code. Give load(..., factors=[...])."
            )
        return given[name]
    arguments = {**entry["settings"]}
    if entry["shift"]:
        zeros = {v: torch.zeros(shape) for v, (shape, _) in entry["shift"].items()}
        arguments["shift"] = {v: nn.Parameter(zeros[v]) if entry["shift"][v][1] else zeros[v] for v in zeros}
    factor: Factor = _class(entry["kind"], known)(*entry["positional"], **arguments)
    return factor
