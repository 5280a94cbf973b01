"""UNN: the network that users declare and call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undirected import orders
from undirected.bounds import Bound, bound
from undirected.equilibrium import Tolerance, settle
from undirected.errors import Diverged, QueryError, unknown
from undirected.evidence import Observed, Start, gather, is_finite, starting
from undirected.factors import Factor
from undirected.graph import Graph
from undirected.inspection import Report, inspect
from undirected.orders import Iterations, Order
from undirected.plan import Plan, make
from undirected.program import Loop, Program, assemble, assemble_loop
from undirected.regularizers import concrete
from undirected.solution import Solution, same_count
from undirected.solve import run
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
        self._plans: OrderedDict[Any, tuple[Plan, Program | Loop]] = OrderedDict()

    def forward(
        self,
        observe: Observed,
        want: str | Sequence[str] | None = None,
        order: str | Sequence[str] | Order | None = None,
        iterations: Iterations | None = None,
        init: Start = "zeros",
        until: Tolerance | None = None,
        lengths: Mapping[str, Tensor] | None = None,
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
            check: evaluate the energy after every update and raise if it rose.
            trace: keep every update and the energy after it in `solution.trace`.
        """
        if until is not None and iterations is not None:
            raise QueryError("give either iterations or until, not both.")
        evidence = gather(self._variables, observe, init, lengths, self.anchor())
        count = 3 if until is not None else orders.count(1 if iterations is None else iterations, self.training)
        partial = tuple(name for name, value in observe.items() if isinstance(value, Partial))
        observed = tuple(name for name in observe if name not in partial)
        planned, program = self._planned(
            observed, partial, evidence.start, want, order, count, check or trace, until is not None
        )
        if self.training:
            evidence.draw_dropout([name for name in planned.updated if self._variables[name].dropout])
        meter = Meter(self, evidence, set(planned.updated), check) if check or trace else None
        state: dict[str, Tensor | None]
        if isinstance(program, Loop):
            assert until is not None
            found = settle(self, program, evidence, until, meter)
            given = {**evidence.values, **evidence.start, **found.values}
            state = {name: given.get(name) for name in self._variables}
            preactivations = found.preactivations
            done, converged, residual = found.iterations, found.converged, found.residual
        else:
            registers = run(self, program, evidence, meter)
            state = {name: None if r is None else registers[r] for name, r in program.final.items()}
            preactivations = {name: registers[r] for name, r in program.preactivations.items()}
            done, converged, residual = same_count(count, evidence.batch, evidence.device), None, None
        values = {name: state[name] for name in (*planned.want, *observed)}
        self._check_finite(values, planned)
        return Solution(
            values=values,
            preactivation={name: t for name, t in preactivations.items() if name in planned.want},
            plan=planned,
            iterations=done,
            converged=converged,
            residual=residual,
            trace=meter.trace() if meter is not None and trace else None,
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
    ) -> Plan:
        """What a call with these arguments will do, step by step. `observe` takes names, or what a call takes.

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
        return self._planned(observed, partial, started, want, order, count, False, False)[0]

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
        loop: bool,
    ) -> tuple[Plan, Program | Loop]:
        """The plan and program of a query, kept for the next time."""
        written = order if order is None or isinstance(order, (str, Order)) else tuple(order)
        wanted = want if want is None or isinstance(want, str) else tuple(want)
        key = (observed, partial, tuple(started), wanted, written, count, keep_all, loop)
        found = self._plans.get(key)
        if found is None:
            parsed = orders.parse(order)
            if loop and not parsed.is_fixed:
                raise QueryError("until needs an order that is the same in every sweep; this one is random.")
            names = None if wanted is None else self._names(wanted, "want")
            planned = make(self, observed, partial, started, names, parsed, count, keep_all or loop)
            found = planned, (assemble_loop if loop else assemble)(self, planned)
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
    ) -> Unrolled:
        """The same computation as a plain directed module, for `torch.compile`, `torch.export` and ONNX.

        It takes the observed tensors in the order of `observe` (for a partly observed one its value, then what is
        known) and gives those wanted: their values, or their pre-activations. With `tie=False` every step has weights
        of its own, which begin as copies of the network's.

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
        count = orders.count(iterations, training=False)
        planned, program = self._planned(observed, partial, {}, want, order, count, False, False)
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
        queries = [(), *((name,) for name in self._variables)] if observe is None else observe
        return inspect(self, [self._names(query, "observe") for query in queries])

    def _check_finite(self, values: Mapping[str, Tensor | None], planned: Plan) -> None:
        for name, value in values.items():
            if value is not None and name not in planned.observed and concrete(value) and not is_finite(value):
                example = int((~value.isfinite()).nonzero()[0, 0])
                raise Diverged(
                    f"{name} left the finite numbers (example {example}). "
                    f"{bound(self, planned.observed, planned.partial).explain()}"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": OrderedDict()}
