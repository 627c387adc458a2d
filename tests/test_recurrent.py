"""The recurrent decoder against nn.LSTM and against its own definition in double precision."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.networks import RecurrentDecoder, recurrent
from dcsurv.networks.recurrent import unroll


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare on the scale of the largest expected number."""
    assert actual.shape == expected.shape
    scale = float(expected.detach().abs().max())
    difference = float((actual.detach() - expected.detach()).abs().max())
    assert difference <= tolerance * scale, f"differs by {difference:.2e}, largest number {scale:.2e}"


def same_nn_lstm(decoder: RecurrentDecoder) -> nn.LSTM:
    """Build an nn.LSTM with the decoder's weights; its gates are in the same order."""
    directions, hidden_size, _ = decoder.layers[0].recurrent_kernel.shape
    lstm = nn.LSTM(decoder.input_size, hidden_size, len(decoder.layers), bidirectional=directions == 2)
    with torch.no_grad():
        for k, layer in enumerate(decoder.layers):
            for direction, suffix in enumerate(["", "_reverse"][:directions]):
                getattr(lstm, f"weight_ih_l{k}{suffix}").copy_(layer.input_kernel[direction].t())
                getattr(lstm, f"weight_hh_l{k}{suffix}").copy_(layer.recurrent_kernel[direction].t())
                getattr(lstm, f"bias_ih_l{k}{suffix}").copy_(layer.bias[direction])
                getattr(lstm, f"bias_hh_l{k}{suffix}").zero_()
    return lstm


def lstm_gradient(lstm: nn.LSTM, kind: str, layer: int, directions: int) -> Tensor:
    """Gradient of nn.LSTM's weights in the shape of ours."""
    names = [f"{kind}_l{layer}{suffix}" for suffix in ["", "_reverse"][:directions]]
    return torch.stack([getattr(lstm, name).grad.t() for name in names])


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    ("hidden", "batch", "length"), [(7, 3, 11), (16, 1, 9), (33, 50, 1), (33, 67, 5), (64, 50, 35), (128, 20, 12)]
)
def test_values_and_gradients_equal_nn_lstm(
    hidden: int, batch: int, length: int, layers: int, bidirectional: bool, varying: bool
) -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(6, hidden, layers, bidirectional=bidirectional)
    lstm = same_nn_lstm(decoder)
    shape = (length, batch, 6) if varying else (batch, 6)
    ours, theirs = (torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True) for _ in "ab")
    out = decoder(ours, length)
    expected, _ = lstm(theirs if varying else theirs.unsqueeze(0).expand(length, -1, -1))
    assert out.is_contiguous()
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)

    weights = torch.randn(out.shape)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_near(ours.grad, theirs.grad)
    directions = 1 + bidirectional
    for k, layer in enumerate(decoder.layers):
        assert_near(layer.input_kernel.grad, lstm_gradient(lstm, "weight_ih", k, directions))
        assert_near(layer.recurrent_kernel.grad, lstm_gradient(lstm, "weight_hh", k, directions))
        assert_near(layer.bias.grad, lstm_gradient(lstm, "bias_ih", k, directions))


def test_long_sequences_equal_double_precision() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(20, 64, 2)
    double = copy.deepcopy(decoder).double()
    ours = torch.randn(50, 20, requires_grad=True)
    exact = ours.detach().double().requires_grad_()
    weights = torch.randn(700, 50, 64)
    out, expected = decoder(ours, 700), double(exact, 700)
    assert_near(out.double(), expected)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_near(ours.grad.double(), exact.grad)
    for mine, theirs in zip(decoder.parameters(), double.parameters(), strict=True):
        assert_near(mine.grad.double(), theirs.grad)


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize(("hidden", "batch", "length"), [(7, 3, 11), (33, 130, 5), (64, 50, 20)])
def test_recurrent_dropout_equals_the_definition(hidden: int, batch: int, length: int, varying: bool) -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(6, hidden, 1, bidirectional=True, recurrent_dropout=0.4)
    layer = decoder.layers[0]
    x = torch.randn((length, batch, 6) if varying else (batch, 6), requires_grad=True)
    torch.manual_seed(3)
    out = decoder(x, length)
    torch.manual_seed(3)
    keep = functional.dropout(torch.ones(2, batch, hidden), 0.4)
    assert set(keep.unique().tolist()) == {0.0, np.float32(1 / 0.6).item()}

    exact = [t.detach().double().requires_grad_() for t in (x, layer.input_kernel, layer.recurrent_kernel, layer.bias)]
    inputs = exact[0] if varying else exact[0].unsqueeze(0)
    expected = unroll(inputs, *exact[1:], keep.double(), length)
    assert_near(out.double(), expected)
    weights = torch.randn(out.shape)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    for mine, theirs in zip((x, *layer.parameters()), exact, strict=True):
        assert_near(mine.grad.double(), theirs.grad)


def test_recurrent_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    plain, dropping = RecurrentDecoder(4, 16, 2), RecurrentDecoder(4, 16, 2, recurrent_dropout=0.5)
    dropping.load_state_dict(plain.state_dict())
    x = torch.randn(5, 4)
    expected = plain(x, 6)
    dropped = dropping(x, 6)
    # The first step has no previous one to drop, but the second layer's later inputs differ.
    assert torch.equal(dropped[0], expected[0])
    assert not torch.equal(dropped[1], expected[1])
    assert torch.equal(dropping.eval()(x, 6), expected)


def test_same_seed_same_bits_and_other_seed_other_bits() -> None:
    def train(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        decoder = RecurrentDecoder(4, 20, 2, bidirectional=True, recurrent_dropout=0.3)
        adam = torch.optim.Adam(decoder.parameters())
        x = torch.randn(30, 4)
        for _ in range(3):
            adam.zero_grad()
            decoder(x, 12).square().mean().backward()
            adam.step()
        return [p.detach() for p in decoder.parameters()]

    first, again, other = train(0), train(0), train(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_bits_do_not_depend_on_threads(threads) -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(30, 48, 2, bidirectional=True)
    x = torch.randn(1111, 30, requires_grad=True)
    results = []
    for n_threads in (1, 2, 3):
        threads(n_threads)
        decoder.zero_grad()
        x.grad = None
        out = decoder(x, 8)
        with torch.no_grad():
            assert torch.equal(decoder(x, 8), out)
        out.backward(torch.ones_like(out))
        results.append([out, x.grad, *(p.grad.clone() for p in decoder.parameters())])
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], result, strict=True))


def test_bits_of_a_row_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 33, 2, bidirectional=True)
    x = torch.randn(133, 5)
    with torch.no_grad():
        together = decoder(x, 7)
        for row in (0, 4, 66, 132):
            assert torch.equal(decoder(x[row : row + 1], 7)[:, 0], together[:, row])


def test_nan_stays_nan_and_stays_in_its_row() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 2)
    x = torch.randn(9, 5)
    expected = decoder(x, 6)
    x[4, 2] = torch.nan
    x.requires_grad_()
    out = decoder(x, 6)
    assert out[:, 4].isnan().all()
    others = [row for row in range(9) if row != 4]
    assert torch.equal(out[:, others], expected[:, others])
    out.sum().backward()
    assert x.grad[4].isnan().all()
    assert x.grad[others].isfinite().all()
    assert decoder.layers[0].recurrent_kernel.grad.isnan().any()

    varying = torch.randn(6, 9, 5)
    varying[3, 4, 2] = torch.nan
    out = decoder(varying, 6)
    assert out[:3].isfinite().all()
    assert out[3:, 4].isnan().all()


def test_infinite_input_is_treated_as_by_nn_lstm() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 1)
    x = torch.randn(9, 5)
    x[2, 0], x[3, 1], x[4, :2] = torch.inf, -torch.inf, torch.inf
    expected, _ = same_nn_lstm(decoder)(x.unsqueeze(0).expand(6, -1, -1))
    assert expected[:, 4].isnan().any()
    torch.testing.assert_close(decoder(x, 6), expected, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("size", [30.0, 1e4, 1e30])
def test_extreme_inputs_saturate(size: float) -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 40, 2, bidirectional=True)
    x = size * torch.randn(9, 5)
    x.requires_grad_()
    out = decoder(x, 300)
    expected, _ = same_nn_lstm(decoder)(x.unsqueeze(0).expand(300, -1, -1))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
    assert out.abs().max() <= 1.0
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_activations_are_accurate_everywhere() -> None:
    """One unit, one step, the other gates wide open: h = tanh(tanh(x)) and h = sigmoid(x) tanh(1)."""
    x = torch.cat([torch.linspace(-20, 20, 40001), torch.logspace(-38, 0, 500), -torch.logspace(-38, 0, 500)])
    decoder = RecurrentDecoder(1, 1, 1)
    layer = decoder.layers[0]
    with torch.no_grad():
        layer.input_kernel.copy_(torch.tensor([0.0, 0.0, 1.0, 0.0]))
        layer.bias.copy_(torch.tensor([100.0, 0.0, 0.0, 100.0]))
        tanh = decoder(x[:, None], 1)[0, :, 0].double()
        layer.input_kernel.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0]))
        layer.bias.copy_(torch.tensor([100.0, 0.0, 100.0, 0.0]))
        sigmoid = decoder(x[:, None], 1)[0, :, 0].double()
    assert (tanh - x.double().tanh().tanh()).abs().max() < 1e-6
    assert (sigmoid - x.double().sigmoid() * np.tanh(1.0)).abs().max() < 1e-6
    small = x.abs() < 1e-3
    torch.testing.assert_close(tanh[small], x[small].double().tanh().tanh(), rtol=1e-6, atol=1e-37)


def test_denormal_gradients_do_no_harm_and_the_setting_is_restored() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 1)
    x = torch.randn(9, 5, requires_grad=True)
    out = decoder(x, 6)
    out.backward(torch.full_like(out, 1e-41))
    assert x.grad.abs().max() < 1e-38
    tiny = np.array([1e-41], np.float32)
    assert tiny * np.float32(0.5) > 0


def test_history_memory_is_reused_in_training_and_let_go_after_it() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 1, bidirectional=True)
    layer = decoder.layers[0]
    with torch.no_grad():
        decoder(torch.randn(9, 5), 6)
    assert layer._spare == []  # inference keeps no history

    decoder(torch.randn(9, 5), 6).sum().backward()
    memory = layer._spare[0].memory
    assert memory.numel() == 2 * 9 * (6 * 128 + 7 * 32)
    x = torch.randn(7, 5, requires_grad=True)
    out = decoder(x, 6)
    assert layer._spare == []  # taken
    with torch.no_grad():
        decoder(torch.randn(9, 5), 6)
    other = decoder(torch.randn(9, 5), 6)
    out.sum().backward()
    assert layer._spare[0].memory is memory
    reused = x.grad.clone()
    other.sum().backward()

    copied = pickle.loads(pickle.dumps(decoder))
    assert copied.layers[0]._spare == []
    x.grad = None
    copied(x, 6).sum().backward()
    assert torch.equal(x.grad, reused)
    decoder.eval()
    assert layer._spare == []


def test_backward_twice() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 1)
    x = torch.randn(9, 5, requires_grad=True)
    out = decoder(x, 6)
    out.sum().backward(retain_graph=True)
    once = x.grad.clone()
    decoder(torch.randn(9, 5), 6).sum().backward()  # overwrites the memory of the first
    out.sum().backward(retain_graph=True)
    assert torch.equal(x.grad, 2 * once)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_second_derivatives_are_refused_by_the_compiled_code_only() -> None:
    decoder = RecurrentDecoder(5, 20, 1)
    x = torch.randn(9, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"differentiated twice.*\.double\(\)"):
        torch.autograd.grad(decoder(x, 6).sum(), x, create_graph=True)
    (first,) = torch.autograd.grad(decoder.double()(x.double(), 6).sum(), x, create_graph=True)
    first.sum().backward()
    assert x.grad.abs().max() > 0


def test_frozen_weights_and_strided_tensors() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 1)
    x = torch.randn(5, 9, requires_grad=True)
    weights = torch.randn(20, 9, 6)
    (decoder(x.t(), 6) * weights.permute(2, 1, 0)).sum().backward()
    trained = x.grad.clone()
    x.grad = None
    decoder.requires_grad_(False)
    (decoder(x.t().contiguous(), 6) * weights.permute(2, 1, 0).contiguous()).sum().backward()
    assert torch.equal(x.grad, trained)


def test_default_dtype_does_not_matter() -> None:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(5, 20, 2)
    x = torch.randn(9, 5, requires_grad=True)
    decoder(x, 6).sum().backward()
    expected, x.grad = x.grad, None
    torch.set_default_dtype(torch.float64)
    try:
        decoder.eval().train()
        decoder(x, 6).sum().backward()
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(x.grad, expected)


def test_one_compilation_serves_all_shapes() -> None:
    for layers, bidirectional, batch in ((1, False, 1), (2, True, 9)):
        decoder = RecurrentDecoder(5, 20, layers, bidirectional=bidirectional, recurrent_dropout=0.1)
        decoder(torch.randn(batch, 5), 1).sum().backward()
        decoder.eval()(torch.randn(6, batch, 5), 6)
    from dcsurv.networks import _lstm_kernels

    assert len(_lstm_kernels.forward.signatures) == len(_lstm_kernels.backward.signatures) == 1


def test_empty_batch() -> None:
    decoder = RecurrentDecoder(5, 20, 2, bidirectional=True)
    out = decoder(torch.randn(0, 5), 6)
    assert out.shape == (6, 0, 40)
    out.sum().backward()
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in decoder.parameters())


def test_initialisation() -> None:
    torch.manual_seed(0)
    first, second = RecurrentDecoder(30, 24, 2, bidirectional=True).layers
    assert second.input_kernel.shape == (2, 48, 96)
    for layer, fan_in in ((first, 30), (second, 48)):
        bound = (6 / (fan_in + 96)) ** 0.5
        assert 0.97 * bound < layer.input_kernel.abs().max() <= bound
        for direction in range(2):
            kernel = layer.recurrent_kernel[direction].detach()
            torch.testing.assert_close(kernel @ kernel.t(), torch.eye(24), rtol=0, atol=1e-5)
        expected = torch.zeros(2, 4, 24)
        expected[:, 1] = 1.0
        assert torch.equal(layer.bias, expected.view(2, 96))
    assert not torch.equal(first.recurrent_kernel[0], first.recurrent_kernel[1])


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="hidden_size=0"):
        RecurrentDecoder(5, 0, 1)
    with pytest.raises(ValueError, match=r"\[0, 1\); got 1"):
        RecurrentDecoder(5, 4, 1, recurrent_dropout=1.0)
    decoder = RecurrentDecoder(5, 4, 1)
    with pytest.raises(ValueError, match="at least one node"):
        decoder(torch.randn(3, 5), 0)
    for shape in [(3, 6), (7, 3, 5), (5,), (1, 6, 3, 5)]:
        with pytest.raises(ValueError, match=rf"got \({shape[0]}"):
            decoder(torch.randn(shape), 6)


def test_numba_is_imported_on_first_use() -> None:
    code = "import sys, dcsurv.networks; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("fails", ["forward", "backward", "import"])
def test_where_it_does_not_compile_the_loop_takes_over_with_one_warning(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core.errors import LoweringError

    from dcsurv.networks import _lstm_kernels as kernels

    def refuse(*_: object) -> None:
        raise LoweringError("no such instruction")

    decoder, encoding = RecurrentDecoder(3, 5, 1), torch.randn(4, 3)
    layer = decoder.layers[0]
    operands = (encoding[None], layer.input_kernel, layer.recurrent_kernel, layer.bias, None, 6)
    recurrent._compiles.cache_clear()
    recurrent._warn_of_loop.cache_clear()
    if fails == "import":
        monkeypatch.setitem(sys.modules, "dcsurv.networks._lstm_kernels", None)
        monkeypatch.delattr(sys.modules["dcsurv.networks"], "_lstm_kernels")
    else:
        monkeypatch.setattr(kernels, fails, refuse)
    try:
        with pytest.warns(UserWarning, match="could not be compiled .* plain torch operations"):
            decoder(encoding, length=6)
        out = decoder(encoding, length=6)  # a second warning would be an error
        out.sum().backward()
        with torch.no_grad():
            seen = decoder(encoding, length=6)
        torch.testing.assert_close(out, unroll(*operands), rtol=0, atol=0)
        if fails != "backward":  # prediction needs the forward pass only
            torch.testing.assert_close(seen, unroll(*operands), rtol=0, atol=0)
    finally:
        recurrent._compiles.cache_clear()
        recurrent._warn_of_loop.cache_clear()
