"""Compiled LSTM over all time steps: forward and hand-written backward pass, float32.

Importing this module imports Numba, so it is imported on first use.

Why not BLAS: the products of one step are small (50 x 64 times 64 x 256), and a library call per step has to write
all pre-activations to memory before the gates can read them. Here a small register-blocked product adds to a tile and
the gates are applied while the tile is still in the nearest cache. The result does not depend on the number of
threads, because there is no thread pool behind it, nor on which rows share a batch.

Numba's own vectoriser gives up on loops over this many arrays and uses half-width registers where it succeeds, so the
inner pieces are emitted as explicit vector instructions (the ``@_intrinsic`` functions); LLVM lowers these to
whatever the CPU has. Everything around them is ordinary Numba. All of it stays in this one file, because Numba's cache
of machine code only notices changes in the file of the compiled function itself.

Layout
------
Units are grouped in blocks of ``BLOCK`` = 16 and padded with zeros to a whole number of blocks, P = 16 * ceil(H / 16).
The four gates of a block lie side by side, so that a row of gates reads [i f g o] of units 0-15, [i f g o] of units
16-31, and so on: 4 P numbers, called *blocked* below. All arrays are passed flat, with strides counted in numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

from dcsurv._compile import compiled

star_arguments: Any = types.StarArgTuple
cgutils: Any = untyped_cgutils  # Numba's interface for emitting code has no type hints
Floats = np.ndarray[Any, np.dtype[np.float32]]

BLOCK = 16  # units per block, the widest register in use; a narrower CPU goes through a block in several pieces
QUAD = 4 * BLOCK  # the four gates of a block
ROWS = 60  # batch rows taken through all steps together, so that their state stays in the cache

_IS_X86 = llvm.get_process_triple().startswith(("x86_64", "i386", "i686"))
_features = llvm.get_host_cpu_features()
if _features.get("avx512f"):
    _LANES, TILE = 16, 5  # floats per register; rows per tile, so that 4 x 5 sums fit in 32 registers
elif _features.get("avx"):
    _LANES, TILE = 8, 3  # 16 registers
else:
    _LANES, TILE = 4, (3 if _IS_X86 else 5)
OUTER_TILE = min(TILE, 4)  # where the rows are units: a tile of 5 would leave much of its last one empty

# tanh(x) = x P(x^2) / Q(x^2) for |x| <= _TANH_BOUND, fitted to equal relative error (6e-9 before rounding to float32,
# which leaves 4e-7); beyond the bound tanh differs from +-1 by less than 3e-7.
_TANH_BOUND = 7.9
_TANH_P = (1.0, 0.1345062106847763, 0.003578991862013936, 2.202324139943812e-05, 1.542796645992439e-08)
_TANH_Q = (1.0, 0.46783947944641113, 0.026192236691713333, 0.0003423650050535798, 8.598777867518947e-07)

_FLOAT = ir.FloatType()
_INT = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, _LANES)


class _Vector:
    """A register of floats while machine code is being emitted: arithmetic on it emits instructions."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _lift(self, other: _Vector | float) -> Any:
        return other.value if isinstance(other, _Vector) else _constant(other)

    def __add__(self, other: _Vector | float) -> _Vector:
        return _Vector(self.builder, self.builder.fadd(self.value, self._lift(other)))

    def __rsub__(self, other: float) -> _Vector:
        return _Vector(self.builder, self.builder.fsub(_constant(other), self.value))

    def __mul__(self, other: _Vector | float) -> _Vector:
        return _Vector(self.builder, self.builder.fmul(self.value, self._lift(other)))

    def __rtruediv__(self, other: float) -> _Vector:
        return _Vector(self.builder, self.builder.fdiv(_constant(other), self.value))

    def times_plus(self, factor: _Vector | float, term: _Vector | float) -> _Vector:
        """Self * factor + term, in one instruction where the CPU has it."""
        signature = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fused = cgutils.get_or_insert_function(self.builder.module, signature, f"llvm.fmuladd.v{_LANES}f32")
        return _Vector(self.builder, self.builder.call(fused, [self.value, self._lift(factor), self._lift(term)]))

    def clamp(self, bound: float) -> _Vector:
        """Limit to [-bound, bound]. A comparison with NaN is false, so NaN passes through."""
        value = self.value
        for limit, beyond in ((bound, ">"), (-bound, "<")):
            is_beyond = self.builder.fcmp_ordered(beyond, value, _constant(limit))
            value = self.builder.select(is_beyond, _constant(limit), value)
        return _Vector(self.builder, value)


def _constant(number: float) -> Any:
    return ir.Constant(_VECTOR, [np.float32(number).item()] * _LANES)


def _address(builder: Any, base: Any, offset: Any, more: int, kind: Any) -> Any:
    return builder.bitcast(builder.gep(base, [builder.add(offset, _INT(more))]), kind.as_pointer())


def _load(builder: Any, base: Any, offset: Any, more: int = 0) -> _Vector:
    return _Vector(builder, builder.load(_address(builder, base, offset, more, _VECTOR), align=4))


def _store(builder: Any, vector: _Vector, base: Any, offset: Any, more: int = 0) -> None:
    builder.store(vector.value, _address(builder, base, offset, more, _VECTOR), align=4)


def _prefetch(builder: Any, base: Any, offset: Any, more: int, to_write: bool = False) -> None:
    """Ask for a cache line to be fetched, to read or to write. An address outside the array does no harm."""
    line, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    signature = ir.FunctionType(ir.VoidType(), [line, flag, flag, flag])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", [line], signature)
    address = _address(builder, base, offset, more, ir.IntType(8))
    builder.call(prefetch, [address, flag(int(to_write)), flag(2), flag(1)])


def _broadcast(builder: Any, number: Any) -> _Vector:
    lane = ir.IntType(32)
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, lane(0))
    everywhere = ir.Constant(ir.VectorType(lane, _LANES), [0] * _LANES)
    return _Vector(builder, builder.shuffle_vector(single, single, everywhere))


def _polynomial(x: _Vector, coefficients: Sequence[float]) -> _Vector:
    result = x.times_plus(coefficients[-1], coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        result = result.times_plus(x, coefficient)
    return result


def _tanh_fraction(x: _Vector, scale: float = 1.0) -> tuple[_Vector, _Vector]:
    """Numerator and denominator of scale * tanh(scale * x); the powers of two that scale the coefficients are exact."""
    x = x.clamp(_TANH_BOUND / scale)
    square = x * x
    return (
        x * _polynomial(square, [p * scale ** (2 * k + 2) for k, p in enumerate(_TANH_P)]),
        _polynomial(square, [q * scale ** (2 * k) for k, q in enumerate(_TANH_Q)]),
    )


def _tanh(x: _Vector) -> _Vector:
    numerator, denominator = _tanh_fraction(x)
    return numerator * (1.0 / denominator)


def _intrinsic(emit: Callable[..., None]) -> Any:
    """Make a function that emits instructions, given data pointers and integers, callable from compiled code."""

    def typed(typing_context: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            (kinds,) = signature.args
            operands = []
            for kind, value in zip(kinds, cgutils.unpack_tuple(builder, values[0]), strict=True):
                if isinstance(kind, types.Array):
                    operands.append(context.make_array(kind)(context, builder, value).data)
                else:
                    operands.append(context.cast(builder, value, kind, types.int64))
            emit(builder, *operands)
            return context.get_dummy_value()

        return types.none(star_arguments(arguments)), generate

    return intrinsic(typed)


def _make_multiply(tile_rows: int, n_blocks: int) -> Any:
    """Product of a tile: out = start + a @ b, some rows by n_blocks of columns, in registers over the whole depth."""

    def emit(
        builder: Any, start: Any, start_at: Any, start_row: Any, out: Any, out_at: Any, out_row: Any, n_rows: Any,
        a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any, b_step: Any, depth: Any,
    ) -> None:  # fmt: skip
        def at(base: Any, row: Any, stride: Any) -> Any:
            return builder.add(base, builder.mul(row, stride))

        # Rows beyond the last repeat the last one: they compute and store the same numbers once more.
        last = builder.sub(n_rows, _INT(1))
        rows = [builder.select(builder.icmp_signed("<", _INT(r), last), _INT(r), last) for r in range(tile_rows)]
        a_rows = [builder.gep(a, [at(a_at, row, a_row)]) for row in rows]
        for piece in range(0, BLOCK, _LANES):
            columns = [block * BLOCK + piece for block in range(n_blocks)]
            tile = [[cgutils.alloca_once(builder, _VECTOR) for _ in columns] for _ in rows]  # become registers
            for row, sums in zip(rows, tile, strict=True):
                for column, total in zip(columns, sums, strict=True):
                    builder.store(_load(builder, start, at(start_at, row, start_row), column).value, total)
            with cgutils.for_range(builder, depth) as loop:
                a_offset = builder.mul(loop.index, a_step)
                a_values = [_broadcast(builder, builder.load(builder.gep(row, [a_offset]))) for row in a_rows]
                # One register for b, one a row for a: with the sums these just fit in the 16 registers of older CPUs.
                for index, column in enumerate(columns):
                    b_value = _load(builder, b, at(b_at, loop.index, b_step), column)
                    for a_value, total in zip(a_values, [sums[index] for sums in tile], strict=True):
                        builder.store(a_value.times_plus(b_value, _Vector(builder, builder.load(total))).value, total)
            for row, sums in zip(rows, tile, strict=True):
                for column, total in zip(columns, sums, strict=True):
                    _store(builder, _Vector(builder, builder.load(total)), out, at(out_at, row, out_row), column)

    return _intrinsic(emit)


def _call_on(builder: Any, name: str, pointer: Any) -> None:
    bytes_pointer = ir.IntType(8).as_pointer()
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [bytes_pointer]), name)
    builder.call(function, [builder.bitcast(pointer, bytes_pointer)])


def _type_flush(typing_context: Any) -> Any:
    """Type and emit ``_flush_denormals``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = cgutils.alloca_once_value(builder, ir.IntType(32)(0))
        if _IS_X86:
            _call_on(builder, "llvm.x86.sse.stmxcsr", word)
        old = builder.load(word)
        if _IS_X86:
            builder.store(builder.or_(old, ir.IntType(32)(0x8040)), word)  # flush results, and read operands, as zero
            _call_on(builder, "llvm.x86.sse.ldmxcsr", word)
        return old

    return types.int32(), generate


def _type_restore(typing_context: Any, setting: Any) -> Any:
    """Type and emit ``_restore_denormals``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if _IS_X86:
            _call_on(builder, "llvm.x86.sse.ldmxcsr", cgutils.alloca_once_value(builder, values[0]))
        return context.get_dummy_value()

    return types.none(setting), generate


# Gradients that fade over hundreds of steps end in numbers below 1e-38, on which x86 is up to 100 times slower. The
# kernels take these for 0 and put this thread's setting back before they return.
_flush_denormals: Any = intrinsic(_type_flush)
_restore_denormals: Any = intrinsic(_type_restore)

_multiply_4 = _make_multiply(TILE, 4)
_multiply_2 = _make_multiply(TILE, 2)
_multiply_1 = _make_multiply(TILE, 1)
_multiply_outer = _make_multiply(OUTER_TILE, 4)


@_intrinsic
def _copy(builder: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any) -> None:
    """Copy ``count`` numbers, a register at a time and the rest one by one."""
    whole = builder.sub(count, builder.srem(count, _INT(_LANES)))
    with cgutils.for_range_slice(builder, _INT(0), whole, _INT(_LANES), _INT) as (index, _):
        _store(builder, _load(builder, source, builder.add(source_at, index)), target, builder.add(target_at, index))
    with cgutils.for_range(builder, count, start=whole) as loop:
        number = builder.load(builder.gep(source, [builder.add(source_at, loop.index)]))
        builder.store(number, builder.gep(target, [builder.add(target_at, loop.index)]))


@_intrinsic
def _gates_forward(
    builder: Any, gates: Any, gates_at: Any, cell: Any, old_at: Any, new_at: Any, gates_step: Any, cell_step: Any
) -> None:
    """Activate the gates of one block of one row in place, and compute its new cell state."""
    for piece in range(0, BLOCK, _LANES):
        i, f, g, o = (_load(builder, gates, gates_at, block * BLOCK + piece) for block in range(4))
        # sigmoid(x) = 0.5 + 0.5 tanh(0.5 x). The four divisions are done as one, by the product of the denominators.
        (i_top, i_low), (f_top, f_low) = _tanh_fraction(i, 0.5), _tanh_fraction(f, 0.5)
        (g_top, g_low), (o_top, o_low) = _tanh_fraction(g), _tanh_fraction(o, 0.5)
        if_low, go_low = i_low * f_low, g_low * o_low
        inverse = 1.0 / (if_low * go_low)
        if_inverse, go_inverse = inverse * go_low, inverse * if_low
        i = i_top.times_plus(if_inverse * f_low, 0.5)
        f = f_top.times_plus(if_inverse * i_low, 0.5)
        g = g_top * (go_inverse * o_low)
        o = o_top.times_plus(go_inverse * g_low, 0.5)
        for block, gate in enumerate((i, f, g, o)):
            _store(builder, gate, gates, gates_at, block * BLOCK + piece)
        _store(builder, f.times_plus(_load(builder, cell, old_at, piece), i * g), cell, new_at, piece)
        # Fetch what the next step will write: a store has to wait for its line, and the lines of a history are far.
        for block in range(4):
            _prefetch(builder, gates, builder.add(gates_at, gates_step), block * BLOCK + piece, to_write=True)
        _prefetch(builder, cell, builder.add(new_at, cell_step), piece, to_write=True)


@_intrinsic
def _hidden_forward(
    builder: Any, gates: Any, gates_at: Any, cell: Any, cell_at: Any,
    keep: Any, keep_at: Any, hidden: Any, hidden_at: Any, hidden_step: Any, kept: Any, kept_at: Any,
) -> None:  # fmt: skip
    """Compute h and keep * h of one block of one row.

    Apart from ``_gates_forward``, because the CPU looks ahead over few instructions: it overlaps the long chains of
    several rows only if each chain is short in the code.
    """
    for piece in range(0, BLOCK, _LANES):
        h = _load(builder, gates, gates_at, 3 * BLOCK + piece) * _tanh(_load(builder, cell, cell_at, piece))
        _store(builder, h, hidden, hidden_at, piece)
        _store(builder, h * _load(builder, keep, keep_at, piece), kept, kept_at, piece)
        _prefetch(builder, hidden, builder.add(hidden_at, hidden_step), piece, to_write=True)


@_intrinsic
def _cell_backward(
    builder: Any, gates: Any, gates_at: Any, cell: Any, old_at: Any, new_at: Any,
    hidden: Any, hidden_at: Any, d_out: Any, d_out_at: Any, read_step: Any,
    keep: Any, kept: Any, d_hidden: Any, d_cell: Any, state_at: Any,
    d_gates: Any, d_sum: Any, d_gates_at: Any, gates_step: Any, cell_step: Any,
) -> None:  # fmt: skip
    """Gradient of one block of one row with respect to its pre-activations; d_sum adds these up over the steps.

    Also turns h_{t-1} into what the recurrent kernel multiplied, keep * h_{t-1}.
    """
    for piece in range(0, BLOCK, _LANES):
        i, f, g, o = (_load(builder, gates, gates_at, block * BLOCK + piece) for block in range(4))
        factor = _load(builder, keep, state_at, piece)
        _store(builder, factor * _load(builder, hidden, hidden_at, piece), kept, state_at, piece)
        tanh_c = _tanh(_load(builder, cell, new_at, piece))
        d_h = _load(builder, d_hidden, state_at, piece).times_plus(factor, _load(builder, d_out, d_out_at, piece))
        d_c = (d_h * o).times_plus(1.0 - tanh_c * tanh_c, _load(builder, d_cell, state_at, piece))
        gradients = (
            d_c * g * (i * (1.0 - i)),
            d_c * _load(builder, cell, old_at, piece) * (f * (1.0 - f)),
            d_c * i * (1.0 - g * g),
            d_h * tanh_c * (o * (1.0 - o)),
        )
        for block, gradient in enumerate(gradients):
            _store(builder, gradient, d_gates, d_gates_at, block * BLOCK + piece)
            total = _load(builder, d_sum, d_gates_at, block * BLOCK + piece) + gradient
            _store(builder, total, d_sum, d_gates_at, block * BLOCK + piece)
        _store(builder, d_c * f, d_cell, state_at, piece)
        # Fetch what the next step, one earlier in time, will read: the products in between take long enough.
        for block in range(4):
            _prefetch(builder, gates, builder.sub(gates_at, gates_step), block * BLOCK + piece)
        _prefetch(builder, cell, builder.sub(old_at, cell_step), piece)
        _prefetch(builder, hidden, builder.sub(hidden_at, read_step), piece)
        _prefetch(builder, d_out, builder.sub(d_out_at, read_step), piece)


@compiled()
def _zeros(n: int) -> Floats:
    """Make an array that starts on a cache line: vectors that straddle two lines take a quarter longer."""
    buffer = np.zeros(n + BLOCK, np.float32)
    skip = -(buffer.ctypes.data // 4) % BLOCK
    return buffer[skip : skip + n]


@compiled()
def _padded(n: int) -> int:
    """Round up to whole blocks."""
    return BLOCK * (-(-n // BLOCK))


@compiled()
def _blocked(plain: Floats, units: int, panels: bool) -> Floats:
    """(n, 4 H), the gates one after the other -> (n, 4 P) blocked, flat; as panels: (n, 64) block by block."""
    n, n_blocks = plain.shape[0], _padded(units) // BLOCK
    source, out = plain.ravel(), _zeros(n * n_blocks * QUAD)
    for block in range(n_blocks):
        for row in range(n):
            at = ((block * n + row) if panels else (row * n_blocks + block)) * QUAD
            for gate in range(4):
                source_at = (row * 4 + gate) * units + block * BLOCK
                _copy(out, at + gate * BLOCK, source, source_at, min(BLOCK, units - block * BLOCK))
    return out


@compiled()
def _plain(blocked: Floats, units: int, out: Floats) -> None:
    """Undo ``_blocked`` into out (n, 4 H)."""
    target, n_blocks = out.ravel(), _padded(units) // BLOCK
    for row in range(out.shape[0]):
        for gate in range(4):
            for block in range(n_blocks):
                at, target_at = (row * n_blocks + block) * QUAD + gate * BLOCK, (row * 4 + gate) * units + block * BLOCK
                _copy(target, target_at, blocked, at, min(BLOCK, units - block * BLOCK))


@compiled()
def _transposed(kernel: Floats, units: int) -> Floats:
    """Kernel (n, 4 H) as the backward product reads it: (4 P, n padded to whole blocks), flat."""
    n = kernel.shape[0]
    out = _zeros(4 * _padded(units) * _padded(n)).reshape((4 * _padded(units), _padded(n)))
    for gate in range(4):
        for unit in range(units):
            block, lane = divmod(unit, BLOCK)
            for row in range(n):
                out[block * QUAD + gate * BLOCK + lane, row] = kernel[row, gate * units + unit]
    return out.ravel()


@compiled()
def _chunk(first: int, last: int) -> int:
    """Rows to take together: at most ROWS, in equal parts of whole tiles."""
    n = max(last - first, 1)
    parts = -(-n // ROWS)
    return TILE * (-(-n // (parts * TILE)))


@compiled()
def _set_factors(keep: Floats, first: int, n_rows: int, factors: Floats, padded: int) -> None:
    """Set the factors of h_{t-1} for some rows: those of the dropout, or 1."""
    factors[:] = 1.0
    if keep.size > 0:
        for row in range(n_rows):
            _copy(factors, row * padded, keep.ravel(), (first + row) * keep.shape[1], keep.shape[1])


@compiled()
def _forward(
    inputs: Floats, input_kernel: Floats, recurrent_kernel: Floats, bias: Floats, keep: Floats, direction: int,
    gates_history: Floats, cell_history: Floats, out: Floats, first_row: int, last_row: int,
) -> None:  # fmt: skip
    """``forward`` for one direction."""
    n_steps, batch, out_width = out.shape
    units, n_inputs = recurrent_kernel.shape[0], input_kernel.shape[0]
    padded, n_blocks = _padded(units), _padded(units) // BLOCK
    width = n_blocks * QUAD
    constant = inputs.shape[0] == 1
    panels, input_panels = _blocked(recurrent_kernel, units, True), _blocked(input_kernel, units, True)
    bias_row = _blocked(bias.reshape((1, -1)), units, False)
    inputs_flat, out_flat = inputs.ravel(), out.ravel()
    whole = units == padded  # then h goes straight to out, otherwise over rows that are padded
    hidden, hidden_width = (out_flat, out_width) if whole else (_zeros(ROWS * padded), padded)
    factors = _zeros(ROWS * padded)
    kept = _zeros(2 * ROWS * padded)  # keep * h of the previous and the present step, in turns
    projected = _zeros(ROWS * width)
    if gates_history.size > 0:
        gates, cell = gates_history.ravel(), cell_history.ravel()
        gates_step, cell_step = batch * width, batch * padded
    else:
        gates, cell = _zeros(ROWS * width), _zeros(ROWS * padded)
        gates_step = cell_step = 0

    chunk = _chunk(first_row, last_row)
    for first in range(first_row, last_row, chunk):
        n_rows = min(chunk, last_row - first)
        _set_factors(keep, first, n_rows, factors, padded)
        offset = first if gates_step > 0 else 0
        cell[offset * padded : (offset + n_rows) * padded] = 0.0
        for step in range(n_steps):
            time = step if direction == 0 else n_steps - 1 - step
            old, new = (step % 2) * ROWS * padded, ((step + 1) % 2) * ROWS * padded
            gates_at, cell_at = step * gates_step + offset * width, step * cell_step + offset * padded
            x_at = ((0 if constant else time) * batch + first) * n_inputs
            out_at = (time * batch + first) * out_width + direction * units
            hidden_at, hidden_step = (out_at, (1 - 2 * direction) * batch * out_width) if whole else (0, 0)
            depth = units if step > 0 else 0  # h_0 = 0
            for block in range(n_blocks):
                for row in range(0, n_rows, TILE):
                    rows = min(TILE, n_rows - row)
                    start, tile = row * width + block * QUAD, gates_at + row * width + block * QUAD
                    if step == 0 or not constant:
                        _multiply_4(
                            bias_row, block * QUAD, 0, projected, start, width, rows,
                            inputs_flat, x_at + row * n_inputs, n_inputs, 1,
                            input_panels, block * n_inputs * QUAD, QUAD, n_inputs,
                        )  # fmt: skip
                    _multiply_4(
                        projected, start, width, gates, tile, width, rows,
                        kept, old + row * padded, padded, 1, panels, block * units * QUAD, QUAD, depth,
                    )  # fmt: skip
                    for r in range(rows):
                        state = cell_at + (row + r) * padded + block * BLOCK
                        _gates_forward(gates, tile + r * width, cell, state, state + cell_step, gates_step, cell_step)
                    for r in range(rows):
                        state = (row + r) * padded + block * BLOCK
                        _hidden_forward(
                            gates, tile + r * width, cell, cell_at + cell_step + state, factors, state,
                            hidden, hidden_at + (row + r) * hidden_width + block * BLOCK, hidden_step,
                            kept, new + state,
                        )  # fmt: skip
            if not whole:
                for row in range(n_rows):
                    _copy(out_flat, out_at + row * out_width, hidden, row * padded, units)


@compiled()
def forward(
    inputs: Floats, input_kernel: Floats, recurrent_kernel: Floats, bias: Floats, keep: Floats,
    gates_history: Floats, cell_history: Floats, out: Floats, first_row: int, last_row: int,
) -> None:  # fmt: skip
    """Run one layer over all L steps for some rows of the batch and write these rows of ``out``.

    The pre-activations of the gates i, f, g, o, in this order, are x_t W + b + (keep * h_{t-1}) R.

    Parameters
    ----------
    inputs : (L or 1, B, E)
        One per step, or the same for all.
    input_kernel, recurrent_kernel, bias : (D, E, 4 H), (D, H, 4 H), (D, 4 H)
    keep : (D, B, H)
        Recurrent dropout: the factors of h_{t-1}; (D, 0, 0) for none.
    gates_history, cell_history : (D, L, B, 4 P), (D, L + 1, B, P)
        Filled, in the order of processing, for the backward pass; (D, 0, 0, 0) to keep nothing.
    out : (L, B, D H)
    first_row, last_row
        The rows, first inclusive, last exclusive.
    """
    environment = _flush_denormals()
    for direction in range(recurrent_kernel.shape[0]):
        _forward(
            inputs, input_kernel[direction], recurrent_kernel[direction], bias[direction], keep[direction], direction,
            gates_history[direction], cell_history[direction], out, first_row, last_row,
        )  # fmt: skip
    _restore_denormals(environment)


@compiled()
def _multiply_rows(a: Floats, a_width: int, n_rows: int, b: Floats, b_width: int, out: Floats) -> None:
    """Out (n_rows, b_width) = a (n_rows, depth) @ b (depth, b_width); the rows of a are a_width apart."""
    depth = b.size // b_width
    zero = _zeros(QUAD)
    column = 0
    while column < b_width:
        n_blocks = (b_width - column) // BLOCK
        for row in range(0, n_rows, TILE):
            rows = min(TILE, n_rows - row)
            at, a_at = row * b_width + column, row * a_width
            if n_blocks >= 4:
                _multiply_4(zero, 0, 0, out, at, b_width, rows, a, a_at, a_width, 1, b, column, b_width, depth)
            elif n_blocks >= 2:
                _multiply_2(zero, 0, 0, out, at, b_width, rows, a, a_at, a_width, 1, b, column, b_width, depth)
            else:
                _multiply_1(zero, 0, 0, out, at, b_width, rows, a, a_at, a_width, 1, b, column, b_width, depth)
        column += BLOCK * (4 if n_blocks >= 4 else 2 if n_blocks >= 2 else 1)


@compiled()
def _add_outer(
    a: Floats, a_at: int, a_width: int, n_columns: int, b: Floats, b_width: int, n_rows: int, total: Floats, width: int
) -> None:
    """Total (n_columns, width) += a' b; the n_rows rows of a and b are a_width and b_width apart."""
    for column in range(0, width, QUAD):
        for row in range(0, n_columns, OUTER_TILE):
            at = row * width + column
            _multiply_outer(
                total, at, width, total, at, width, min(OUTER_TILE, n_columns - row),
                a, a_at + row, 1, a_width, b, column, b_width, n_rows,
            )  # fmt: skip


@compiled()
def _backward(
    d_out: Floats, inputs: Floats, input_kernel: Floats, recurrent_kernel: Floats, keep: Floats, direction: int,
    gates_history: Floats, cell_history: Floats, out: Floats,
    d_inputs: Floats, d_input_kernel: Floats, d_recurrent_kernel: Floats, d_bias: Floats,
) -> None:  # fmt: skip
    """``backward`` for one direction."""
    n_steps, batch, out_width = out.shape
    units, n_inputs = recurrent_kernel.shape[0], input_kernel.shape[0]
    padded, padded_inputs, n_blocks = _padded(units), _padded(n_inputs), _padded(units) // BLOCK
    width = n_blocks * QUAD
    d_width = width + BLOCK  # rows a power of two apart would compete for the same places in the cache
    constant = inputs.shape[0] == 1
    transposed, input_transposed = _transposed(recurrent_kernel, units), _transposed(input_kernel, units)
    gates, cell, inputs_flat = gates_history.ravel(), cell_history.ravel(), inputs.ravel()
    out_flat, d_out_flat, d_inputs_flat = out.ravel(), d_out.ravel(), d_inputs.ravel()
    d_recurrent, d_input = _zeros(units * width), _zeros(n_inputs * width)
    d_gates, d_sum = _zeros(ROWS * d_width), _zeros(ROWS * d_width)
    d_x, d_bias_row = _zeros(ROWS * padded_inputs), _zeros(width)
    d_hidden, d_cell = _zeros(ROWS * padded), _zeros(ROWS * padded)
    kept, factors = _zeros(ROWS * padded), _zeros(ROWS * padded)
    # Of whole blocks, h and its gradient are read in place, otherwise from rows that are padded.
    whole = units == padded
    hidden, d_above = (out_flat, d_out_flat) if whole else (_zeros(ROWS * padded), _zeros(ROWS * padded))
    read_width, read_step = (out_width, (1 - 2 * direction) * batch * out_width) if whole else (padded, 0)

    chunk = _chunk(0, batch)
    for first in range(0, batch, chunk):
        n_rows = min(chunk, batch - first)
        _set_factors(keep, first, n_rows, factors, padded)
        d_hidden[:] = 0.0
        d_cell[:] = 0.0
        d_sum[:] = 0.0
        for step in range(n_steps - 1, -1, -1):
            time, before = (step, step - 1) if direction == 0 else (n_steps - 1 - step, n_steps - step)
            out_at = (time * batch + first) * out_width + direction * units
            before_at = (before * batch + first) * out_width + direction * units if step > 0 else out_at
            d_above_at, hidden_at = (out_at, before_at) if whole else (0, 0)
            for row in range(n_rows):
                if not whole:
                    _copy(d_above, row * padded, d_out_flat, out_at + row * out_width, units)
                    _copy(hidden, row * padded, out_flat, before_at + row * out_width, units)
                at = (step * batch + first + row) * n_blocks
                for block in range(n_blocks):
                    _cell_backward(
                        gates, (at + block) * QUAD, cell, (at + block) * BLOCK, (at + block) * BLOCK + batch * padded,
                        hidden, hidden_at + row * read_width + block * BLOCK,
                        d_above, d_above_at + row * read_width + block * BLOCK, read_step,
                        factors, kept, d_hidden, d_cell, row * padded + block * BLOCK,
                        d_gates, d_sum, row * d_width + block * QUAD, batch * width, batch * padded,
                    )  # fmt: skip
            if step > 0:
                _add_outer(kept, 0, padded, units, d_gates, d_width, n_rows, d_recurrent, width)
                _multiply_rows(d_gates, d_width, n_rows, transposed, padded, d_hidden)
            if step == 0 or not constant:
                d_projected = d_sum if constant else d_gates
                x_at = ((0 if constant else time) * batch + first) * n_inputs
                _add_outer(inputs_flat, x_at, n_inputs, n_inputs, d_projected, d_width, n_rows, d_input, width)
                if d_inputs_flat.size > 0:
                    _multiply_rows(d_projected, d_width, n_rows, input_transposed, padded_inputs, d_x)
                    for row in range(n_rows):
                        if direction == 0:
                            _copy(d_inputs_flat, x_at + row * n_inputs, d_x, row * padded_inputs, n_inputs)
                        else:
                            for k in range(n_inputs):
                                d_inputs_flat[x_at + row * n_inputs + k] += d_x[row * padded_inputs + k]
        for row in range(n_rows):
            for k in range(width):
                d_bias_row[k] += d_sum[row * d_width + k]

    _plain(d_recurrent, units, d_recurrent_kernel)
    _plain(d_input, units, d_input_kernel)
    _plain(d_bias_row, units, d_bias.reshape((1, -1)))


@compiled()
def backward(
    d_out: Floats, inputs: Floats, input_kernel: Floats, recurrent_kernel: Floats, keep: Floats,
    gates_history: Floats, cell_history: Floats, out: Floats,
    d_inputs: Floats, d_input_kernel: Floats, d_recurrent_kernel: Floats, d_bias: Floats,
) -> None:  # fmt: skip
    """Undo ``forward`` of the whole batch: given d_out (L, B, D H), compute the gradients.

    Fills those of the kernels, of the bias and, unless d_inputs is empty, of the inputs.
    """
    environment = _flush_denormals()
    for direction in range(recurrent_kernel.shape[0]):
        _backward(
            d_out, inputs, input_kernel[direction], recurrent_kernel[direction], keep[direction], direction,
            gates_history[direction], cell_history[direction], out,
            d_inputs, d_input_kernel[direction], d_recurrent_kernel[direction], d_bias[direction],
        )  # fmt: skip
    _restore_denormals(environment)
