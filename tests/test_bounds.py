"""Lower bounds: verdicts against eigenvalues computed densely, and against what a solve really does."""

import pytest
import torch

import undirected as un
from undirected.errors import Diverged


def coupled(weight, a=None, b=None):
    net = un.UNN(
        un.Variable("x", (2,)), un.Variable("a", (weight.shape[1],), a), un.Variable("b", (weight.shape[0],), b),
        un.Linear("x", "a"), un.Linear("a", "b"),
    ).double()  # fmt: skip
    with torch.no_grad():
        net.factors["a-b"].weight.copy_(weight)
    return net


def hessian_is_positive(net, observed) -> bool:
    """Of the energy of Identity variables, by autograd twice: the definition of a quadratic's lower bound."""
    free = [name for name in net.variables if name not in observed]
    sizes = [net.variables[name].event_shape({"n": 8}) for name in free]
    widths = [torch.Size(size).numel() for size in sizes]

    def energy(flat):
        values = {name: part.view(1, *size) for name, part, size in zip(free, flat.split(widths), sizes, strict=True)}
        values |= {name: torch.zeros(1, *net.variables[name].event_shape({"n": 8})).double() for name in observed}
        return net.energy(values)[0]

    hessian = torch.autograd.functional.hessian(energy, torch.zeros(sum(widths)).double())
    return bool(torch.linalg.eigvalsh(hessian)[0] > 0)


@pytest.mark.parametrize("norm", [0.3, 0.9, 0.99, 1.01, 3.0])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_a_pair_against_its_spectral_norm(norm, scale):  # torch.linalg, with each end's curvature divided out
    torch.manual_seed(3)
    weight = torch.randn(4, 3).double()
    weight = norm * weight / torch.linalg.matrix_norm(weight, 2)
    net = coupled(weight, un.Identity(scale), un.Identity(1.0))
    bound = net.bounded(observe="x")
    (coupling,) = bound.couplings
    assert coupling.norm == pytest.approx(norm / scale**0.5, rel=1e-6)
    assert bound.verdict == ("while" if norm / scale**0.5 < 1 else "no")
    assert (bound.verdict == "while") == hessian_is_positive(net, ["x"])


@pytest.mark.parametrize("seed", range(8))
def test_cycles_against_the_hessian(seed):  # several couplings together: neither alone decides
    torch.manual_seed(seed)
    net = un.UNN(
        *[un.Variable(name, (3,)) for name in "abcd"], un.Linear("a", "b"), un.Linear("b", "c"), un.Linear("c", "a"),
        un.Linear("c", "d"),
    ).double()  # fmt: skip
    with torch.no_grad():
        for factor in net.factors.values():
            factor.weight.normal_().mul_(0.1 + 0.05 * seed)
    for observed in ([], ["a"], ["c"], ["a", "c"]):
        bound = net.bounded(observe=observed)
        assert (bound.verdict != "no") == hessian_is_positive(net, observed)
    assert net.bounded(observe=["a", "c"]).verdict == "always"


def test_convolutions_and_symbols_against_the_hessian():
    for size in (0.05, 0.5):
        net = un.UNN(
            un.Variable("x", (2, 6)), un.Variable("h", (3, 4)), un.Variable("s", ("n", 3)), un.Variable("u", ("n", 2)),
            un.Conv1d("x", "h", 3), un.Linear("s", "u"),
        ).double()  # fmt: skip
        with torch.no_grad():
            net.factors["x-h"].weight.fill_(size)
            net.factors["s-u"].weight.fill_(0.1)
        assert (net.bounded().verdict != "no") == hessian_is_positive(net, [])
        assert len(net.bounded().couplings) == 2


@pytest.mark.parametrize("kind", [un.Tanh, un.Sigmoid, un.HardTanh, un.Softmax, un.Sparsemax, un.Entmax15])
def test_a_bounded_end_makes_it_safe(kind):  # |<a, W b>| <= radius |W| |a|, which 1/2 |a|^2 outgrows
    net = coupled(50 * torch.eye(3).double(), un.Identity(), kind())
    assert net.bounded(observe="x").verdict == "always"
    solution = net(observe={"x": torch.ones(2, 2).double()}, iterations=100, check=True)
    assert solution["a"].isfinite().all()


@pytest.mark.parametrize("kind", [un.ReLU, un.LeakyReLU, un.SoftThreshold])
def test_below_one_every_regularizer_is_safe(kind):  # Psi >= 1/2 |h|^2, so the quadratic's bound is theirs
    weight = torch.randn(3, 3).double()
    net = coupled(0.95 * weight / torch.linalg.matrix_norm(weight, 2), kind(), kind())
    assert net.bounded(observe="x").verdict == "while"
    energies = net(observe={"x": torch.ones(2, 2).double()}, iterations=300, check=True, trace=True).trace.energy
    assert (energies[-1] - energies[-20]).abs().max() < 1e-6


def test_relu_that_pushes_apart_does_not_diverge():  # a, b >= 0 and W < 0: every score is at most 0
    net = coupled(-5 * torch.eye(3).double(), un.ReLU(), un.ReLU())
    solution = net(observe={"x": torch.ones(2, 2).double()}, iterations=50, check=True)
    assert solution["b"].isfinite().all()
    assert net.bounded(observe="x").verdict != "no"


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("kind", [un.Identity, un.ReLU])
def test_divergence_names_the_culprits(kind, check):  # a coupling of 3 grows by 9 a sweep, past the end of float32
    net = coupled(3 * torch.eye(2).double(), kind(), kind()).float()
    with torch.no_grad():
        net.factors["x-a"].weight.fill_(1.0)
    with pytest.raises(Diverged) as caught:
        net(observe={"x": torch.ones(2, 2)}, iterations=100, check=check)
    text = str(caught.value)
    assert "left the finite numbers" in text
    assert "Given x, the energy has no lower bound" in text
    assert "coupling of a, b (factor 'a-b') is 3 and must stay below 1" in text
    assert "bounded regularizer (Tanh, Sigmoid, HardTanh)" in text


def test_a_solve_below_the_norm_does_not_diverge():  # and one above does: the verdict is about real solves
    for norm, verdict in ((0.98, "while"), (1.02, "no")):
        net = coupled(norm * torch.eye(2).double())
        assert net.bounded(observe=["x"]).verdict == verdict
        energy = net(observe={"x": torch.ones(1, 2).double()}, iterations=600).energy
        assert (energy.abs() < 1e6).all() == (verdict == "while")


def test_three_unbounded_variables_are_a_cubic():
    net = un.UNN(*[un.Variable(name, (2,)) for name in "abc"], un.Einsum("a[i] b[i] c[i]"))
    bound = net.bounded()
    assert bound.verdict == "no"
    assert "factor 'a-b-c' joins three free variables without bounds, a cubic" in str(bound)
    assert net.bounded(observe="a b").verdict == "always"


def test_a_bounded_third_variable_decides_the_norm():  # s on the simplex: the largest is where s is a corner
    net = un.UNN(
        un.Variable("s", (2,), un.Softmax()), un.Variable("a", (3,)), un.Variable("b", (3,)),
        un.Einsum("s[k] a[i] b[j] W[k,i,j]"),
    ).double()  # fmt: skip
    with torch.no_grad():
        net.factors["s-a-b"].W.normal_()
    W = net.factors["s-a-b"].W.detach().clone()
    largest = max(float(torch.linalg.matrix_norm(W[k], 2)) for k in range(2))
    for size in (0.9 / largest, 1.1 / largest):
        with torch.no_grad():
            net.factors["s-a-b"].W.copy_(size * W)
        (coupling,) = net.bounded().couplings
        assert coupling.is_searched
        assert coupling.norm == pytest.approx(size * largest, rel=1e-2)


def test_what_cannot_be_told():
    net = un.UNN(un.Variable("a", (2,)), un.Energy(lambda a: -a.square().sum(1), "a", name="mine"))
    assert net.bounded().verdict == "unknown"
    assert "'mine'" in str(net.bounded())
    assert net.bounded(observe="a").verdict == "always"


def test_growth_that_is_not_known_is_said():  # a regularizer without curvature, coupled to one without bounds
    class Slow(un.Elementwise):
        def psi(self, h):
            return torch.xlogy(h, h) - h

        def psi_star(self, t):
            return t.exp()

        def link(self, t):
            return t.exp()

    net = un.UNN(un.Variable("x", (3,)), un.Variable("h", (4,), Slow()), un.Linear("x", "h"))
    assert net.bounded().verdict == net.bounded("x").verdict == "unknown"
    assert "'h'" in net.bounded().explain()


def test_large_networks_are_bounded_by_power_iteration():  # against the dense spectral norm
    weight = torch.randn(700, 600).double()
    weight = 0.8 * weight / torch.linalg.matrix_norm(weight, 2)
    (coupling,) = coupled(weight).bounded(observe="x").couplings
    assert coupling.norm == pytest.approx(0.8, rel=2e-2)
    assert coupling.norm <= 0.8 + 1e-9  # a Rayleigh quotient never exceeds it


def test_scalar_variables():  # a coupling of numbers is its own norm
    net = un.UNN(un.Variable("a", ()), un.Variable("b", ()), un.Linear("a", "b")).double()
    for weight, verdict in ((0.5, "while"), (-2.0, "no")):
        with torch.no_grad():
            net.factors["a-b"].weight.fill_(weight)
        assert net.bounded().verdict == verdict
        assert net.bounded().couplings[0].norm == pytest.approx(abs(weight))


@pytest.mark.parametrize("kinds", [(un.ReLU, un.ReLU), (un.ReLU, un.Identity), (un.LeakyReLU, un.ReLU)])
@pytest.mark.parametrize("seed", range(3))
def test_one_sided_domains_against_real_solves(kinds, seed):  # what is said to fall for ever really does
    torch.manual_seed(seed)
    net = coupled(0.8 * torch.randn(3, 3).double(), kinds[0](), kinds[1]())
    verdict = net.bounded(observe="x").verdict
    starts = {name: torch.rand(50, 3).double() for name in ("a", "b")}
    try:
        energy = net(observe={"x": torch.zeros(50, 2).double()}, order="a b", iterations=200, init=starts).energy
        fell = not bool((energy > -1e3).all())
    except Diverged:
        fell = True
    assert fell == (verdict == "no")


def test_a_norm_that_grows_with_the_size_says_at_which():  # summed over n, the norm is sqrt(n) that of the matrix
    net = un.UNN(un.Variable("x", ("n", 3)), un.Variable("y", (4,)), un.Linear("x", "y"))
    expected = 8**0.5 * float(torch.linalg.matrix_norm(net.factors["x-y"].weight, 2).detach())
    bound = net.bounded()
    assert abs(bound.couplings[0].norm - expected) < 1e-4 * expected
    assert "at n = 8 and must stay below 1" in str(bound)


def test_a_coupling_as_strong_as_what_is_observed():
    variables = [un.Variable(name, (3,)) for name in "abc"]
    net = un.UNN(*variables, un.Einsum("a[i] b[i] c[i]"))
    assert net.bounded("c").verdict == "unknown"
    assert "depends on what is observed" in str(net.bounded("c"))
    assert net.bounded().verdict == "no"
