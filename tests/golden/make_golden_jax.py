# SPDX-License-Identifier: Apache-2.0
"""Writes jax.safetensors: a second opinion by JAX, with forward-mode and second-order results.

usage: make_golden_jax.py      (environment: scripts/peers jax)
A case has inputs, outputs, grads, grad_out like the other files; also `tangents` (one per input,
null for integers), `jvp` (tangent of each output) and `hvp`: the derivative of `grads` along
`tangents` with grad_out fixed (null for integer inputs). Computed in float64, stored as float32
and float64 cases.
"""
import json
import os
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

jax.config.update("jax_enable_x64", True)
HERE = os.path.dirname(os.path.abspath(__file__))
POOL, CASES, KEYS = {}, [], {}


def put(x):
    x = np.array(x, order="C")  # ascontiguousarray would make 0-d tensors 1-d
    key = (x.dtype.str, x.shape, x.tobytes())
    if key not in KEYS:
        KEYS[key] = f"t{len(POOL)}"
        POOL[KEYS[key]] = x
    return KEYS[key]


def rng(name):
    return np.random.default_rng(zlib.crc32(("jax/" + name).encode()))


def is_float(x):
    return np.issubdtype(np.asarray(x).dtype, np.floating)


def add(op, fn, inputs, attrs=None, name=None, second=True):
    """Records fn at inputs (float ones are differentiated); small ones as float64 cases too."""
    small = sum(np.size(x) for x in inputs) < 100
    for dt in (np.float32, np.float64) if small else (np.float32,):
        case_name = (name or op) + ("_f64" if dt == np.float64 else "")
        r = rng(name or op)
        xs = [np.asarray(x, dt) if is_float(x) else np.asarray(x) for x in inputs]
        at = [i for i, x in enumerate(xs) if is_float(x)]

        def f(*floats):
            full = list(map(jnp.asarray, xs))
            for i, v in zip(at, floats):
                full[i] = v
            return fn(*full)
        vals = [jnp.asarray(xs[i], jnp.float64) for i in at]
        out, pull = jax.vjp(f, *vals)
        go = jnp.asarray(r.standard_normal(out.shape).astype(dt), jnp.float64)
        tan = [jnp.asarray(r.standard_normal(v.shape).astype(dt), jnp.float64) for v in vals]
        grads = pull(go)
        _, jvp = jax.jvp(f, vals, tan)
        gradient = lambda *v: jax.vjp(f, *v)[1](go)
        hvp = jax.jvp(gradient, vals, tan)[1] if second else None

        def spread(values):
            it = iter(values)
            return [put(np.asarray(next(it)).astype(dt)) if i in at else None
                    for i in range(len(xs))]
        case = {"name": case_name, "op": op, "attrs": attrs or {}, "inputs": [put(x) for x in xs],
                "outputs": [put(np.asarray(out).astype(dt))], "grads": spread(grads),
                "grad_out": [put(np.asarray(go).astype(dt))], "tangents": spread(tan),
                "jvp": [put(np.asarray(jvp).astype(dt))],
                "rtol": 2e-5 if dt == np.float32 else 1e-10,
                "atol": 5e-6 if dt == np.float32 else 1e-11}
        if second:
            case["hvp"] = spread(hvp)
        CASES.append(case)


def layer_norm(x, w, b):
    m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5) * w + b


def attention(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(mask, s, -jnp.inf), -1) @ v


def conv(x, w, b, stride=1, pad=0, dilation=1, groups=1):
    y = jax.lax.conv_general_dilated(x, w, (stride,) * 2, ((pad, pad),) * 2,
                                     rhs_dilation=(dilation,) * 2, feature_group_count=groups,
                                     dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return y + b[None, :, None, None]


def cross_entropy(x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(x, -1), y[:, None], -1).mean()


def max_pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def main():
    n = lambda name, *s: rng("in/" + name).standard_normal(s)
    x = n("x", 3, 4)
    nn = jax.nn
    for op, fn in (("exp", jnp.exp), ("tanh", jnp.tanh), ("sigmoid", nn.sigmoid), ("silu", nn.silu),
                   ("softplus", nn.softplus), ("sin", jnp.sin), ("relu", nn.relu), ("elu", nn.elu),
                   ("erf", jax.lax.erf), ("atan", jnp.arctan), ("square", jnp.square)):
        add(op, fn, [x])
    add("gelu", lambda t: nn.gelu(t, approximate=False), [x])
    add("gelu", nn.gelu, [x], {"approximate": "tanh"}, name="gelu_tanh")
    for op, fn in (("log", jnp.log), ("sqrt", jnp.sqrt), ("rsqrt", jax.lax.rsqrt),
                   ("reciprocal", jnp.reciprocal)):
        add(op, fn, [np.abs(x) + .3])
    a, b = n("a", 3, 1, 4), n("b", 2, 1)
    for op, fn in (("mul", jnp.multiply), ("div", jnp.divide), ("atan2", jnp.arctan2)):
        add(op, fn, [a, np.sign(b) * (np.abs(b) + .3)])
    add("pow", jnp.power, [np.abs(a) + .3, b])
    add("where", jnp.where, [n("c", 3, 2, 4) > 0, a, b])
    t = n("t", 2, 3, 4)
    add("sum", lambda v: v.sum((0, 2)), [t], {"dim": [0, 2]})
    add("mean", lambda v: v.mean(1, keepdims=True), [t], {"dim": 1, "keepdim": True})
    add("prod", lambda v: jnp.prod(v, 1), [t], {"dim": 1})
    add("var", lambda v: v.var(1, ddof=1), [t], {"dim": 1})
    add("std", lambda v: v.std(1, ddof=1), [t], {"dim": 1})
    add("amax", lambda v: v.max(1), [t], {"dim": 1})
    add("logsumexp", lambda v: nn.logsumexp(v, 1), [t], {"dim": 1})
    add("norm", lambda v: jnp.linalg.norm(v, axis=1), [t], {"p": 2, "dim": 1})
    add("cumsum", lambda v: jnp.cumsum(v, 1), [t], {"dim": 1})
    add("cumprod", lambda v: jnp.cumprod(v, 1), [t], {"dim": 1})
    add("softmax", lambda v: nn.softmax(v, -1), [t], {"dim": -1})
    add("log_softmax", lambda v: nn.log_softmax(v, 1), [t], {"dim": 1})
    add("matmul", jnp.matmul, [n("m1", 2, 1, 3, 4), n("m2", 5, 4, 2)])
    add("matmul", jnp.matmul, [n("v1", 4), n("v2", 4, 3)], name="matmul_vector")
    add("linear", lambda v, w, c: v @ w.T + c, [x, n("w", 5, 4), n("bias", 5)])
    img, w, c = n("img", 2, 4, 5, 5), n("cw", 3, 4, 3, 3), n("cb", 3)
    add("conv2d", conv, [img, w, c])
    add("conv2d", lambda *v: conv(*v, stride=2, pad=1), [img, w, c], {"stride": 2, "padding": 1},
        name="conv2d_stride")
    add("conv2d", lambda *v: conv(*v, pad=2, dilation=2), [img, w, c],
        {"padding": 2, "dilation": 2}, name="conv2d_dilation")
    add("conv2d", lambda *v: conv(*v, groups=2), [img, n("gw", 4, 2, 3, 3), n("gb", 4)],
        {"groups": 2}, name="conv2d_groups")
    add("max_pool2d", max_pool, [n("mp", 1, 2, 4, 6)], {"kernel_size": 2}, second=False)
    add("layer_norm", layer_norm, [n("ln", 3, 6), n("lw", 6), n("lb", 6)],
        {"normalized_shape": [6]})
    add("scaled_dot_product_attention", attention, [n("q", 2, 4, 3), n("k", 2, 4, 3),
                                                    n("v", 2, 4, 3)], {"is_causal": True})
    add("cross_entropy", cross_entropy, [n("ce", 5, 4), np.array([1, 0, 3, 3, 2])])
    add("embedding", lambda i, e: e[i], [np.array([[1, 5, 1], [0, 2, 2]]), n("e", 6, 3)])
    add("index_select", lambda v, i: v[:, i], [t, np.array([2, 0, 2])], {"dim": 1})
    add("sort", lambda v: jnp.sort(v, -1), [t], {"dim": -1}, name="sort_values")
    path = os.path.join(HERE, "jax.safetensors")
    save_file(POOL, path, {"cases": json.dumps(CASES, separators=(",", ":"), allow_nan=False)})
    print(f"jax: {len(CASES)} cases, {len(POOL)} tensors, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
