"""Equilibria in compiled and exported modules: the same as the network's own."""

import shutil

import pytest
import torch
from test_equilibrium import net_of

import undirected as un
from undirected.errors import QueryError

UNTIL = un.Tolerance(1e-9, max_iterations=500)


def expected(net, x):
    return net(observe={"x": x}, want="y", until=un.Tolerance(1e-12, max_iterations=500))["y"].detach()


def test_the_plain_loop_is_the_network():
    net, x = net_of().eval(), torch.randn(5, 4).double()
    module = net.unrolled(observe=["x"], want="y", until=UNTIL)
    torch.testing.assert_close(module(x), expected(net, x), rtol=1e-7, atol=1e-7)
    with pytest.raises(QueryError, match="until takes"):
        net.unrolled(observe=["x"], want="y", until=UNTIL, preactivation=True)


@pytest.mark.slow
@torch.no_grad()
def test_compiled_and_exported_loops_are_the_network():
    net, x = net_of().eval(), torch.randn(5, 4).double()
    module = net.unrolled(observe=["x"], want="y", until=UNTIL)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), expected(net, x), rtol=1e-7, atol=1e-7)
    exported = torch.export.export(module, (x,)).module()
    for scale in (0.1, 5.0):  # other numbers, other counts of sweeps
        torch.testing.assert_close(exported(scale * x), expected(net, scale * x), rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@torch.no_grad()
def test_the_loop_compiles_to_machine_code():  # inductor, whose while loop goes on for as many sweeps as it takes
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    net, x = net_of().eval(), torch.randn(5, 4).double()
    compiled = torch.compile(net.unrolled(observe=["x"], want="y", until=UNTIL), fullgraph=True)
    for scale in (1.0, 5.0):
        torch.testing.assert_close(compiled(scale * x), expected(net, scale * x), rtol=1e-7, atol=1e-7)
