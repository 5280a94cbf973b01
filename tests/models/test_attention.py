"""Attention against `F.scaled_dot_product_attention` and `nn.MultiheadAttention`."""

import math

import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import undirected as un

FORWARD = "q k v s h"
AROUND = "q k v s h s v k q x"


def randomized(net: un.UNN) -> un.UNN:
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net


def projected(net: un.UNN, x: torch.Tensor, name: str) -> torch.Tensor:
    weight, bias = net.factors[f"x-{name}"].weight, net.bias(name)
    return F.linear(x, weight, bias.flatten()).view(*x.shape[:2], *bias.shape[1:])


def twin(net: un.UNN, x: torch.Tensor, **options) -> torch.Tensor:
    """Contexts (batch, n, size) or (batch, n, heads, size) by torch's own attention."""
    q, k, v = (projected(net, x, name) for name in "qkv")
    if q.dim() == 3:
        return F.scaled_dot_product_attention(q, k, v, **options)
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)


@given(
    inputs=st.integers(1, 6), size=st.integers(1, 5), heads=st.integers(1, 3), n=st.integers(1, 7), causal=st.booleans()
)
@settings(max_examples=25)
def test_one_sweep_from_zeros_is_attention(inputs, size, heads, n, causal):  # from F.scaled_dot_product_attention
    net = randomized(un.models.attention(inputs, size, heads, causal=causal))
    x = torch.randn(2, n, inputs)
    found = net(observe={"x": x}, want="h", order=FORWARD)["h"]
    torch.testing.assert_close(found, twin(net, x, is_causal=causal))


def test_positions_are_added_before_the_projections():  # from F.scaled_dot_product_attention
    positions = torch.randn(20, 4)
    net = randomized(un.models.attention(4, positions=positions))
    x = torch.randn(2, 5, 4)
    found = net(observe={"x": x}, want="h", order=FORWARD)["h"]
    torch.testing.assert_close(found, twin(net, x + positions[:5]))


def test_learned_positions_are_one_parameter():
    net = un.models.attention(4, positions=nn.Parameter(torch.randn(20, 4)))
    shapes = sorted(tuple(parameter.shape) for parameter in net.parameters())
    assert shapes.count((20, 4)) == 1
    net(observe={"x": torch.randn(2, 5, 4)}, want="h", order=FORWARD)["h"].sum().backward()
    table = net.factors["x-q"].shift["x"]
    assert (table.grad[:5] != 0).any()
    assert (table.grad[5:] == 0).all()


@pytest.mark.parametrize("heads", [1, 4])
def test_outputs_make_it_multi_head_attention(heads):  # from nn.MultiheadAttention
    net = randomized(un.models.attention(8, heads=heads, outputs=8))
    directed = nn.MultiheadAttention(8, heads, batch_first=True)
    with torch.no_grad():
        directed.in_proj_weight.copy_(torch.cat([net.factors[f"x-{name}"].weight for name in "qkv"]))
        directed.in_proj_bias.copy_(torch.cat([net.bias(name).flatten() for name in "qkv"]))
        directed.out_proj.weight.copy_(net.factors["h-y"].weight)
        directed.out_proj.bias.copy_(net.bias_y.flatten())
    x = torch.randn(3, 6, 8)
    expected, weights = directed(x, x, x, average_attn_weights=False)
    found = net(observe={"x": x}, want=["s", "y"], order=f"{FORWARD} y")
    torch.testing.assert_close(found["y"], expected)
    torch.testing.assert_close(found["s"], weights if heads > 1 else weights[:, 0])


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_by_lengths_changes_nothing(heads, causal):  # from each sequence by itself
    net = randomized(un.models.attention(4, heads=heads, causal=causal)).double()
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    lengths = torch.tensor([6, 1, 4])
    whole = net(observe={"x": x}, lengths={"n": lengths}, order=FORWARD, iterations=3, check=True)
    for example, length in enumerate(lengths.tolist()):
        alone = net(observe={"x": x[example : example + 1, :length]}, order=FORWARD, iterations=3)
        torch.testing.assert_close(whole["h"][example, :length], alone["h"][0])
        assert (whole["h"][example, length:] == 0).all()
        torch.testing.assert_close(whole.energy[example], alone.energy[0])


@pytest.mark.parametrize("heads", [1, 2])
def test_any_mask_is_an_observation_that_attention_is_zero_there(heads):  # from F.scaled_dot_product_attention
    net = randomized(un.models.attention(4, heads=heads))
    x = torch.randn(3, 5, 4)
    mask = (torch.rand(3, 5, 5) < 0.5) | torch.eye(5, dtype=torch.bool)
    if heads > 1:
        mask = mask[:, None].expand(3, heads, 5, 5)
    masked = un.Partial(torch.zeros(mask.shape), known=~mask)
    found = net(observe={"x": x, "s": masked}, want=["s", "h"], order=FORWARD)
    torch.testing.assert_close(found["h"], twin(net, x, attn_mask=mask))
    assert (found["s"][~mask] == 0).all()
    double, masked = net.double(), un.Partial(torch.zeros(mask.shape).double(), known=~mask)
    missing = un.Partial(x.double(), known=torch.rand(3, 5, 1) < 0.7)
    around = double(observe={"x": missing, "s": masked}, order=AROUND, iterations=4, check=True)
    assert around.energy.isfinite().all()
    assert (around["s"][~mask] == 0).all()


def test_a_causal_network_is_one_with_a_causal_mask():  # two ways to say the same
    net, causal = un.models.attention(4), un.models.attention(4, causal=True)
    causal.load_state_dict(randomized(net).state_dict())
    x = torch.randn(2, 5, 4)
    after = ~torch.ones(5, 5, dtype=torch.bool).tril()
    masked = un.Partial(torch.zeros(2, 5, 5), known=after)
    expected = net(observe={"x": x, "s": masked}, want="h", order=FORWARD, iterations=2)
    found = causal(observe={"x": x}, want="h", order=FORWARD, iterations=2)
    torch.testing.assert_close(found["h"], expected["h"])


def test_causal_softmax_attains_its_conjugate(double):  # from Fenchel and Young, and from autograd
    regularizer = un.CausalSoftmax(scale=1.7)
    t = torch.randn(3, 2, 4, 4, requires_grad=True)
    h = regularizer.activation(t)
    conjugate = regularizer.conjugate(t)
    torch.testing.assert_close(regularizer.value(h) + conjugate, (t * h).flatten(1).sum(1))
    torch.testing.assert_close(torch.autograd.grad(conjugate.sum(), t)[0], h)
    assert (h.triu(1) == 0).all()
    assert (regularizer.value(torch.full((1, 4, 4), 0.25)) == torch.inf).all()  # attends to what comes after


def test_second_sweep_has_the_updates_of_the_paper(double):  # from the gradient of the energy, written out
    net = randomized(un.models.attention(4))
    x = torch.randn(2, 5, 4)
    q, k, v = (projected(net, x, name) for name in "qkv")
    s = torch.softmax(q @ k.mT / math.sqrt(4), -1)
    h = s @ v
    q = projected(net, x, "q") + s @ k
    k = projected(net, x, "k") + s.mT @ q
    v = projected(net, x, "v") + s.mT @ h
    s = torch.softmax((q @ k.mT + h @ v.mT) / math.sqrt(4), -1)
    h = s @ v
    found = net(observe={"x": x}, order=FORWARD, iterations=2)
    for name, expected in {"q": q, "k": k, "v": v, "s": s, "h": h}.items():
        torch.testing.assert_close(found[name], expected)


@pytest.mark.parametrize("missing", [1, 3, 6])
def test_any_number_of_missing_rows_is_inferred(missing, double):  # from exact block minimisation
    net = randomized(un.models.attention(4, positions=torch.randn(6, 4)))
    for parameter in net.parameters():
        parameter.data /= 4
    x = torch.randn(3, 6, 4)
    known = torch.stack([torch.randperm(6) >= missing for _ in range(3)])[..., None]
    found = net(observe={"x": un.Partial(x, known=known)}, want="x", order=AROUND, iterations=3, check=True, trace=True)
    assert torch.equal(torch.where(known, found["x"], 0), torch.where(known, x, 0))
    # The last update of x is the sum of the three projections' transposes.
    q, k, v = (found.trace.of(name)[-1] for name in "qkv")
    expected = sum(part @ net.factors[f"x-{name}"].weight for name, part in {"q": q, "k": k, "v": v}.items())
    torch.testing.assert_close(found["x"], torch.where(known, x, expected))


def test_learns_to_fill_in_a_missing_row():  # from a task with a known answer: the missing row equals the others
    net = un.models.attention(3, 8)
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    losses = []
    for _ in range(120):
        x = torch.randn(32, 1, 3).expand(32, 4, 3)
        known = torch.arange(4)[:, None] != torch.randint(4, ())
        found = net(observe={"x": un.Partial(x, known=known)}, want="x", order=AROUND)
        loss = un.fenchel_young(found, "x", x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_onnx_answers_the_same(tmp_path):  # from onnxruntime, an independent machine
    net = randomized(un.models.attention(4, heads=2, causal=True, outputs=3)).eval()
    x = torch.randn(2, 5, 4)
    directed = net.unrolled(["x"], "y", f"{FORWARD} y", iterations=2)
    torch.onnx.export(directed, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected = net(observe={"x": x}, want="y", order=f"{FORWARD} y", iterations=2)["y"].detach()
    torch.testing.assert_close(torch.from_numpy(found), expected)


def test_heads_that_do_not_divide_are_an_error():
    with pytest.raises(un.errors.DeclarationError, match="3 heads do not divide rows of 8"):
        un.models.attention(8, heads=3)
