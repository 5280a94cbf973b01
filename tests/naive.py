"""Block coordinate descent, written again from the mathematics: no plan, no hand-written message, nothing reused.

Every update differentiates the sum of all scores by its block, adds the bias and applies the regularizer.
"""

import torch

import undirected as un


def masks_of(case) -> dict[str, torch.Tensor]:
    """Which entries exist, from the declared shapes and the lengths."""
    masks = {}
    for name, variable in case.net.variables.items():
        batch = len(next(iter(case.lengths.values()))) if case.lengths else 1
        mask = torch.ones(batch, *variable.event_shape(case.sizes), dtype=torch.bool)
        for position, axis in enumerate(variable.axes):
            if not isinstance(axis, int) and axis.name in case.lengths:
                for example, length in enumerate(case.lengths[axis.name].tolist()):
                    mask[example].narrow(
                        position, length + axis.offset, mask.shape[position + 1] - length - axis.offset
                    )[...] = False
        masks[name] = mask
    return masks


def score_of(net, values, masks):
    """The sum of all multilinear scores over the batch."""
    total = 0.0
    for factor in net.factors.values():
        arguments = []
        for place, name in enumerate(factor.variables):
            x = values[name]
            key = factor.original.variables[place]
            if factor.original.shift and key in factor.original.shift:
                constant = factor.original.shift[key]
                for axis in range(constant.dim()):
                    size = x.shape[x.dim() - constant.dim() + axis]
                    constant = constant.narrow(axis, 0, min(size, constant.shape[axis]))
                x = torch.where(masks[name], x + constant, 0)
            arguments.append(x)
        total = total + factor.original.score(*arguments).sum()
    return total


def solve(case, batch: int, sweeps: list[list[str]]) -> tuple[dict, dict]:
    """Values and pre-activations after these sweeps, from zeros."""
    net = case.net
    masks = masks_of(case)
    values, known = {}, {}
    for name, variable in net.variables.items():
        values[name] = torch.zeros(batch, *variable.event_shape(case.sizes), dtype=torch.float64)
        masks[name] = masks[name].expand_as(values[name])
    for name, given in case.observe.items():
        if isinstance(given, un.Partial):
            known[name] = given.known
            given = torch.where(given.known, given.value, 0)
        values[name] = torch.where(masks[name], given, 0)
    t = {}
    for sweep in sweeps:
        for name in sweep:
            x = values[name].clone().requires_grad_()
            score = score_of(net, {**values, name: x}, masks)
            (z,) = torch.autograd.grad(score, x, allow_unused=True) if isinstance(score, torch.Tensor) else (None,)
            z = torch.zeros_like(x) if z is None else z
            bias = dict(net.named_parameters()).get(f"bias_{name}")
            z = (z if bias is None else z + bias).detach()
            regularizer = net.variables[name].regularizer
            if name in known:
                h = regularizer.complete(z, known[name], values[name], masks[name])
            else:
                h = regularizer.activation(z, masks[name])
            values[name], t[name] = h, z
    return values, t
