#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX's and TensorFlow's side of bench/compare: whole training steps, a JSON line per case.

usage: peers_xla.py [--list] [--threads N] [--rounds N] [--seconds S] [--variant V] CASE ...
variants: jax (jit of the whole step, donated buffers); tf (tf.function); tf_xla (jit_compile=True).
The head of peers_torch.py defines the numbers that both sides start from; weights are laid out as
these libraries prefer (dense layers [in, out], images NHWC, filters HWIO).
"""
import importlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/golden"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np  # noqa: E402

import peer_common  # noqa: E402
from philox import centred, words  # noqa: E402

LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01
GPT = {"vocabulary": 65, "width": 128, "heads": 4, "layers": 4, "context": 64, "batch": 12}


class Formula:
    """Parameters in PyTorch's order: call with PyTorch's shape and kind."""

    def __init__(self):
        self.next = 0

    def __call__(self, *shape, one=False):
        p, self.next = self.next, self.next + 1
        if len(shape) == 1:
            return np.full(shape, 1.0 if one else 0.0, np.float32)
        n = int(np.prod(shape))
        bound = np.float32(1.0 / np.sqrt(n / shape[0]))
        return (bound * centred(1000 + p, n)).reshape(shape)


def image(*shape):
    return centred(2000, int(np.prod(shape))).reshape(shape)


def integers(seed, shape, below):
    return (words(seed, int(np.prod(shape))) % below).astype(np.int32).reshape(shape)


def mlp_numbers():
    w = Formula()
    return [w(128, 784).T, w(128), w(10, 128).T, w(10)], image(64, 784), integers(2001, (64,), 10)


def conv_numbers():
    w = Formula()
    c1, d1, c2, d2 = w(32, 1, 3, 3), w(32), w(64, 32, 3, 3), w(64)
    f1 = w(128, 9216).reshape(128, 64, 12, 12).transpose(2, 3, 1, 0).reshape(9216, 128)
    b1 = w(128)
    f2, b2 = w(10, 128).T, w(10)
    p = [c1.transpose(2, 3, 1, 0), d1, c2.transpose(2, 3, 1, 0), d2, f1, b1, f2, b2]
    return p, image(64, 1, 28, 28).transpose(0, 2, 3, 1), integers(2001, (64,), 10)


def gpt_numbers():
    w, g = Formula(), GPT
    d = g["width"]
    p = {"tok": w(g["vocabulary"], d), "pos": w(g["context"], d), "blocks": []}
    for _ in range(g["layers"]):
        p["blocks"].append({
            "g1": w(d, one=True), "c1": w(d), "qkv": w(3 * d, d).T, "qkv_b": w(3 * d),
            "out": w(d, d).T, "out_b": w(d), "g2": w(d, one=True), "c2": w(d),
            "up": w(4 * d, d).T, "up_b": w(4 * d), "down": w(d, 4 * d).T, "down_b": w(d)})
    p["g"], p["c"], p["head"] = w(d, one=True), w(d), w(g["vocabulary"], d).T
    shape = (g["batch"], g["context"])
    return p, integers(2000, shape, g["vocabulary"]), integers(2001, shape, g["vocabulary"])


def lstm_numbers():
    w = Formula()
    p = [w(1024, 64).T, w(1024, 256).T, w(1024), w(1024), w(10, 256).T, w(10)]
    return p, image(32, 50, 64), integers(2001, (32,), 10)


NUMBERS = {"mlp": mlp_numbers, "conv": conv_numbers, "gpt": gpt_numbers, "lstm": lstm_numbers}
VARIANTS = {"mlp": ("jax", "tf", "tf_xla"), "conv": ("jax", "tf", "tf_xla"), "gpt": ("jax",),
            "lstm": ("jax",)}


def jax_model(case):
    import jax
    import jax.numpy as jnp
    from jax import lax

    def mlp(p, x):
        return jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]

    def conv(p, x):
        def layer(x, w, b):
            y = lax.conv_general_dilated(x, w, (1, 1), "VALID",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
            return jax.nn.relu(y + b)
        x = layer(layer(x, p[0], p[1]), p[2], p[3])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jax.nn.relu(x.reshape(x.shape[0], -1) @ p[4] + p[5]) @ p[6] + p[7]

    def norm(x, g, c):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + c

    def gpt(p, ids):
        b, t = ids.shape
        d, heads = GPT["width"], GPT["heads"]
        seen = jnp.tril(jnp.ones((t, t), bool))
        x = p["tok"][ids] + p["pos"][:t]
        for q in p["blocks"]:
            z = norm(x, q["g1"], q["c1"]) @ q["qkv"] + q["qkv_b"]
            parts = [s.reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3)
                     for s in jnp.split(z, 3, -1)]
            s = parts[0] @ parts[1].swapaxes(-1, -2) / np.sqrt(d // heads)
            y = jax.nn.softmax(jnp.where(seen, s, -jnp.inf), -1) @ parts[2]
            x = x + y.transpose(0, 2, 1, 3).reshape(b, t, d) @ q["out"] + q["out_b"]
            h = jax.nn.gelu(norm(x, q["g2"], q["c2"]) @ q["up"] + q["up_b"], approximate=False)
            x = x + h @ q["down"] + q["down_b"]
        return norm(x, p["g"], p["c"]) @ p["head"]

    def lstm(p, x):
        def cell(state, gates_x):
            h, c = state
            i, f, g, o = jnp.split(gates_x + h @ p[1] + p[3], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None
        zero = jnp.zeros((x.shape[0], 256), x.dtype)
        (h, _), _ = lax.scan(cell, (zero, zero), (x @ p[0] + p[2]).swapaxes(0, 1))
        return h @ p[4] + p[5]

    return {"mlp": mlp, "conv": conv, "gpt": gpt, "lstm": lstm}[case]


def jax_step(case):
    import jax
    import jax.numpy as jnp

    model = jax_model(case)
    p, x, y = NUMBERS[case]()
    p = jax.tree.map(jnp.asarray, p)
    x, y = jnp.asarray(x), jnp.asarray(y)
    zeros = lambda: jax.tree.map(jnp.zeros_like, p)  # noqa: E731

    def loss_of(p, x, y):
        logits = model(p, x)
        logits = jax.nn.log_softmax(logits.reshape(-1, logits.shape[-1]), -1)
        return -jnp.take_along_axis(logits, y.reshape(-1, 1), -1).mean()

    def step(state, x, y):
        p, m, v, t = state
        t = t + 1
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, g)
        v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, g)
        scale = LR / (1 - BETA1 ** t)
        root = jnp.sqrt(1 - BETA2 ** t)
        p = jax.tree.map(lambda p, m, v: p * (1 - LR * DECAY) -
                         scale * m / (jnp.sqrt(v) / root + EPS), p, m, v)
        return (p, m, v, t), loss

    jitted = jax.jit(step, donate_argnums=0)
    state = (p, zeros(), zeros(), jnp.float32(0))

    def run():
        nonlocal state
        state, loss = jitted(state, x, y)
        return float(loss)
    return run, "JAX " + jax.__version__


def tf_step(case, xla, threads):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    p, x, y = NUMBERS[case]()
    p = [tf.Variable(w) for w in p]
    x, y = tf.constant(x), tf.constant(y)

    def model(x):
        if case == "mlp":
            return tf.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, p[0], 1, "VALID"), p[1]))
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, p[2], 1, "VALID"), p[3]))
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        return tf.nn.relu(tf.reshape(x, (x.shape[0], -1)) @ p[4] + p[5]) @ p[6] + p[7]

    opt = tf.keras.optimizers.AdamW(LR, weight_decay=DECAY, beta_1=BETA1, beta_2=BETA2,
                                    epsilon=EPS)
    opt.build(p)

    @tf.function(jit_compile=xla)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x)))
        opt.apply_gradients(zip(tape.gradient(loss, p), p))
        return loss
    return lambda: float(step(x, y).numpy()), "TensorFlow " + tf.__version__


def measure(case, variant, a):
    def make():
        step, version = (jax_step(case) if variant == "jax" else
                         tf_step(case, variant == "tf_xla", a.threads))
        return step, {"version": version}
    importlib.import_module("jax" if variant == "jax" else "tensorflow")
    peer_common.measure(case, variant, make, a)


def installed():
    from importlib.util import find_spec
    have = set()
    if find_spec("jax"):
        have.add("jax")
    if find_spec("tensorflow"):
        have |= {"tf", "tf_xla"}
    return {c: [v for v in vs if v in have] for c, vs in VARIANTS.items()}


def pin(a):
    if hasattr(os, "sched_setaffinity"):  # XLA takes as many threads as there are processors
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:a.threads]))


if __name__ == "__main__":
    sys.exit(peer_common.run("JAX's and TensorFlow's side of bench/compare", installed, measure, pin))
