"""UNN: the network that users declare and call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial as partial_of
from typing import TYPE_CHECKING, Any

import torch

from undirected import orders
from undirected.bounds import Bound, bound
from undirected.courses import equilibrium
from undirected.equilibrium import Tolerance, check_size, too_large
from undirected.errors import Diverged, NotFinite, QueryError, unknown
from undirected.evidence import Evidence, Observed, Start, gather, starting
from undirected.factors import Factor
from undirected.gradients import Gradient, Unroll
from undirected.graph import Graph
from undirected.inspection import Report, inspect
from undirected.orders import Iterations, Order
from undirected.plan import Plan, make
from undirected.program import Loop, Program, assemble, assemble_loop
from undirected.regularizers import concrete
from undirected.settled import Settled
from undirected.solution import Solution, same_count
from undirected.solve import run
from undirected.sweep import Route
from undirected.trace import Meter
from undirected.unrolled import Unrolled
from undirected.variable import Partial, Variable

if TYPE_CHECKING:
    from torch import Tensor

KEPT_PLANS = 256


class UNN(Graph):
    """An undirected neural network: variables and factors that together make an energy.

    `E(x) = sum_i [Psi_i(x_i) - <b_i, x_i>] - sum_f score_f(x_f)`, minimised block by block: called with any part of
    the variables, the network finds the others.

    >>> import torch, undirected as un
    >>> net = un.UNN(
    ...     un.Variable("x", (4,)), un.Variable("h", (8,), un.Tanh()), un.Variable("y", (3,), un.Softmax()),
    ...     un.Linear("x", "h"), un.Linear("h", "y"),
    ... )
    >>> net(observe={"x": torch.randn(5, 4)}, want="y", iterations=3)["y"].shape
    torch.Size([5, 3])
    >>> net(observe={"y": torch.tensor([0, 1, 2])}, want="x", iterations=3)["x"].shape
    torch.Size([3, 4])
    """

    def __init__(self, *parts: Variable | Factor) -> None:
        super().__init__(*parts)
        self._plans: OrderedDict[Any, tuple[Plan, Program | Loop | Route]] = OrderedDict()

    def forward(
        self,
        observe: Observed,
        want: str | Sequence[str] | None = None,
        order: str | Sequence[str] | Order | None = None,
        iterations: Iterations | None = None,
        init: Start = "zeros",
        until: Tolerance | None = None,
        lengths: Mapping[str, Tensor] | None = None,
        gradient: Gradient | None = None,
        check: bool = False,
        trace: bool = False,
    ) -> Solution:
        """Find the rest, given a part.

        Args:
            observe: values by name; an `un.Partial` observes some entries, integer labels a Softmax.
            want: the variables to find; all if not given.
            order: names, with parentheses around blocks that are updated together; forward and backward from what is
                observed if not given. See `un.orders`.
            iterations: how often the order is gone through (once); a range such as (1, 5) is drawn from in training.
            init: where free variables start: "zeros", "uniform", "random", or by name, also as tensors.
            until: iterate until an `un.Tolerance` is met instead of a fixed number of times.
            lengths: the size of each example along a symbolic axis, by symbol.
            gradient: how the solve is differentiated: `un.Unroll()` (if not given), `un.Truncated(k)`, `un.Implicit()`,
                `un.OneStep()`, `un.EquilibriumPropagation()`.
            check: evaluate the energy after every update and raise if it rose.
            trace: keep every update and the energy after it in `solution.trace`.
        """
        with self.steady():
            if until is not None and iterations is not None:
                raise QueryError("give either iterations or until, not both.")
            if until is not None and not isinstance(until, Tolerance):
                raise QueryError(f"until: takes an un.Tolerance(residual=...), not {until!r}.")
            if gradient is not None and not isinstance(gradient, Gradient):
                raise QueryError(f"gradient: takes for example un.Implicit(), not {gradient!r}.")
            evidence = gather(self._variables, observe, init, lengths, self.anchor())
            partial = tuple(name for name, value in observe.items() if isinstance(value, Partial))
            observed = tuple(name for name in observe if name not in partial)
            query = observed, partial, evidence.start, want, order
            count = 1 if until is not None else orders.count(1 if iterations is None else iterations, self.training)
            keep_all = check or trace or until is not None
            planned, program = self._planned(*query, count, keep_all, "program" if until is None else "loop")
            if self.training:
                evidence.draw_dropout([name for name in planned.updated if self._variables[name].dropout])
            meter = Meter(self, evidence, set(planned.updated), check) if check or trace else None
            state: dict[str, Tensor | None]
            preactivations: dict[str, Tensor]
            settles = until is not None
            settles = settles or not (gradient is None or gradient.unrolls(count) or not torch.is_grad_enabled())
            try:
                if settles:
                    planned_as = partial_of(self._planned, *query)
                    how = gradient or Unroll()
                    found, adjoint = equilibrium(self, planned_as, program, evidence, count, until, how, meter)
                    given = {**evidence.values, **evidence.start, **found.values}
                    state = {name: given.get(name) for name in self._variables}
                    preactivations = found.preactivations
                    done, converged, residual = found.iterations, found.converged, found.residual
                else:
                    assert isinstance(program, Program)
                    registers = run(self, program, evidence, meter)
                    state = {name: None if r is None else registers[r] for name, r in program.final.items()}
                    preactivations = {name: registers[r] for name, r in program.preactivations.items()}  # type: ignore[misc]
                    done, converged, residual = same_count(count, evidence.batch, evidence.device), None, None
                    adjoint = None
            except NotFinite as error:  # a structure is asked for after others have grown too large, within the sweeps
                verdict = bound(self, list(observed), partial).explain()
                raise Diverged(f"The solve left the finite numbers. {error} {verdict}") from None
            values: dict[str, Tensor] = {name: state[name] for name in (*planned.want, *observed)}  # type: ignore[misc]
            self._check_size(values, planned, evidence)
            return Solution(
                values=values,
                preactivation={name: t for name, t in preactivations.items() if name in planned.want},
                plan=planned,
                iterations=done,
                converged=converged,
                residual=residual,
                trace=meter.trace() if meter is not None and trace else None,
                adjoint=adjoint,
                _graph=self,
                _evidence=evidence,
                _state=state,
                _preactivations=preactivations,
            )

    def plan(
        self,
        observe: Sequence[str] | Observed,
        want: str | Sequence[str] | None = None,
        order: str | Sequence[str] | Order | None = None,
        iterations: int = 1,
        init: Start = "zeros",
        check: bool = False,
        trace: bool = False,
    ) -> Plan:
        """What a call with these arguments will do, step by step. `observe` takes names, or what a call takes.

        With `check` or `trace` nothing is pruned, since every update is looked at.

        >>> import undirected as un
        >>> net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (2,), un.Softmax()), un.Linear("x", "y"))
        >>> print(net.plan(observe=["x"], want="y"))
        observe x; want y
        1.1   y = Softmax(b + x-y)
        (1 of 1 messages computed; 0 hoisted, 0 reused, 0 skipped, 0 pruned; [in brackets]: computed before)
        """
        values = observe if isinstance(observe, Mapping) else {}
        partial = tuple(name for name, value in values.items() if isinstance(value, Partial))
        observed = tuple(name for name in self._names(observe, "observe") if name not in partial)
        started = {name: None for name in starting(self._variables, init) if name not in observed}
        count = orders.count(iterations, training=False)
        return self._planned(observed, partial, started, want, order, count, check or trace, "program")[0]

    def _names(self, names: str | Sequence[str] | Mapping[str, object], what: str) -> tuple[str, ...]:
        names = tuple(names.split()) if isinstance(names, str) else tuple(names)
        for name in names:
            if name not in self._variables:
                raise QueryError(f"{what}: {unknown('variable', name, self._variables)}")
        return names

    def _planned(
        self,
        observed: tuple[str, ...],
        partial: tuple[str, ...],
        started: Mapping[str, object],
        want: str | Sequence[str] | None,
        order: str | Sequence[str] | Order | None,
        count: int,
        keep_all: bool,
        kind: str,
    ) -> tuple[Plan, Program | Loop | Route]:
        """The plan and program of a query, kept for the next time. `kind` is "program", "whole", "loop" or "route"."""
        written = order if order is None or isinstance(order, (str, Order)) else orders.written(order)
        wanted = want if want is None or isinstance(want, str) else tuple(want)
        key = (observed, partial, tuple(started), wanted, written, count, keep_all, kind)
        found = self._plans.get(key)
        if found is None:
            parsed = orders.parse(written)
            names = None if wanted is None else self._names(wanted, "want")
            if names == ():
                raise QueryError("want: is empty. Name the variables to find, or leave it out to find all.")
            is_greedy = isinstance(parsed, orders.Greedy)
            if is_greedy and kind in ("program", "whole"):
                raise QueryError("a greedy order goes on until an un.Tolerance is met; give until=.")
            is_loop = kind == "loop" and parsed.is_fixed and not is_greedy
            planned = make(self, observed, partial, started, names, parsed, 3 if is_loop else count, keep_all)
            made: Program | Loop | Route
            if is_loop:
                made = assemble_loop(self, planned)
            elif kind in ("loop", "route"):
                made = Route(planned, tuple(started), parsed)
            else:
                made = assemble(self, planned, kind == "whole")
            found = planned, made
            for listing in found[1].listings:
                listing.function(False)
            if parsed.is_fixed:
                self._plans[key] = found
                if len(self._plans) > KEPT_PLANS:
                    self._plans.popitem(last=False)
        return found

    def unrolled(
        self,
        observe: Sequence[str] | Observed,
        want: str | Sequence[str],
        order: str | Sequence[str] | Order | None = None,
        iterations: int = 1,
        preactivation: bool = False,
        tie: bool = True,
        until: Tolerance | None = None,
    ) -> Unrolled | Settled:
        """The same computation as a plain directed module, for `torch.compile`, `torch.export` and ONNX.

        It takes the observed tensors in the order of `observe` (for a partly observed one its value, then what is
        known) and gives those wanted: their values, or their pre-activations. With `tie=False` every step has weights
        of its own, which begin as copies of the network's. A random order is drawn once. To export it with a batch of
        any size, give `torch.export.export` the `dynamic_shapes=(({0: torch.export.Dim("batch")},),)`.

        >>> import torch, undirected as un
        >>> net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (3,), un.Softmax()), un.Linear("x", "y"))
        >>> classify = net.unrolled(observe=["x"], want="y")
        >>> classify(torch.zeros(4, 2)).shape
        torch.Size([4, 3])
        """
        values = observe if isinstance(observe, Mapping) else {}
        names = self._names(observe, "observe")
        partial = tuple(name for name, value in values.items() if isinstance(value, Partial))
        observed = tuple(name for name in names if name not in partial)
        if until is not None:
            route = self._planned(observed, partial, {}, want, order, 1, True, "route")[1]
            assert isinstance(route, Route)
            if partial or preactivation or not tie or not until.is_plain or not route.order.is_fixed:
                raise QueryError("unrolled: until takes whole observations, plain sweeps and a fixed order, tied.")
            return Settled(self, names, route, until)
        count = orders.count(iterations, training=False)
        planned, program = self._planned(observed, partial, {}, want, order, count, False, "program")
        assert isinstance(program, Program)
        return Unrolled(self, names, planned, program, preactivation, tie)

    def bounded(self, observe: str | Sequence[str] | Observed = ()) -> Bound:
        """Has the energy a lower bound when these variables are observed? Always, while some norm is below 1, or not.

        >>> import undirected as un
        >>> net = un.UNN(un.Variable("x", (2,)), un.Variable("h", (2,)), un.Linear("x", "h"))
        >>> net.bounded(observe="x").verdict
        'always'
        >>> net.bounded().verdict in ("while", "no")  # depends on the weights
        True
        """
        return bound(self, self._names(observe, "observe"))

    def check(self, observe: Sequence[str | Sequence[str]] | None = None) -> Report:
        """Try every factor (multilinear? messages right?) and judge the energy of each query (bounded below?).

        `observe` lists queries, each the names that are observed; nothing, and each variable alone, if not given.

        >>> import undirected as un
        >>> net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (3,), un.Softmax()), un.Linear("x", "y"))
        >>> print(net.check([["x"]]))
        x-y (Linear): multilinear, messages right
        Given x, the energy has a lower bound, whatever the weights.
        """
        always = tuple(self.directed_inputs())
        if observe is None:
            observe = [always, *((*always, name) for name in self._variables if name not in always)]
        queries = observe
        return inspect(self, [self._names(query, "observe") for query in queries])

    def _check_size(self, values: Mapping[str, Tensor], planned: Plan, evidence: Evidence) -> None:
        """Stop with an explanation where a variable left the finite numbers, or is sure to."""
        limit = too_large(evidence.dtype)
        for name, x in values.items():
            # The sum tells, in one cheap pass.
            if name not in planned.observed and concrete(x) and not abs(x.sum().item()) <= limit:
                examples = torch.arange(len(x), device=x.device)
                check_size(self, name, x, x.abs().reshape(len(x), -1).amax(1), examples, evidence)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": OrderedDict()}
