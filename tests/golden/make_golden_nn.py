# SPDX-License-Identifier: Apache-2.0
"""Golden cases of more layers: activations, recurrent and packed, attention, Transformer,
parametrisations, graphs, losses as layers. Called by make_golden.py."""
import torch
import torch.nn as nn
from torch.nn.utils import parametrizations as P
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from golden_lib import f32, f64, plain
from make_golden_layers import Layers


class SwiGLU(nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, -1)
        return nn.functional.silu(a) * b


class Packed(nn.Module):
    """A recurrent layer over sequences of given lengths."""

    def __init__(self, kind, lengths, **o):
        super().__init__()
        self.lengths = lengths
        self.inner = getattr(nn, kind)(**o)

    def forward(self, x, *state):
        p = pack_padded_sequence(x, torch.tensor(self.lengths), enforce_sorted=False)
        y, s = self.inner(p, *state)
        return (pad_packed_sequence(y)[0], s)

    def state_dict(self, *a, **k):
        return self.inner.state_dict()

    def load_state_dict(self, s):
        return self.inner.load_state_dict(s)

    def named_parameters(self, *a, **k):
        return self.inner.named_parameters()


class Rotary(nn.Module):
    def __init__(self, size, interleaved=False, start=0):
        super().__init__()
        self.size, self.interleaved, self.start = size, interleaved, start

    def forward(self, x):
        at = torch.arange(x.shape[-2]) + self.start
        rate = 10000.0 ** (-torch.arange(self.size // 2) * 2.0 / self.size)
        angle = (at[:, None].float() * rate.float()).to(x.dtype)
        c, s = angle.cos(), angle.sin()
        if self.interleaved:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)


class Sinusoidal(nn.Module):
    def __init__(self, d_model, batch_first=False):
        super().__init__()
        self.d, self.batch_first = d_model, batch_first

    def forward(self, x):
        n = x.shape[1 if self.batch_first else 0]
        t = torch.arange(n, dtype=torch.float64)[:, None]
        rate = torch.exp(torch.arange(0, self.d, 2, dtype=torch.float64)
                         * (-torch.log(torch.tensor(10000.0, dtype=torch.float64)) / self.d))
        p = torch.zeros(n, self.d, dtype=torch.float64)
        p[:, 0::2], p[:, 1::2] = (t * rate).sin(), (t * rate).cos()
        return x + (p if self.batch_first else p[:, None])


def loops(e, n):
    own = torch.arange(n)
    return torch.cat([e, torch.stack([own, own])], 1)


def softmax_at(v, to, n):
    """Softmax over the edges of each target, by a mask per target."""
    out = torch.zeros_like(v)
    for k in range(n):
        if (to == k).any():
            out[to == k] = torch.softmax(v[to == k], 0)
    return out


def at_targets(m, to, n, how):
    rows = []
    for k in range(n):
        own = m[to == k]
        if not len(own):
            rows.append(torch.zeros_like(m[0]))
        else:
            rows.append(own.sum(0) if how == "sum" else own.mean(0) if how == "mean"
                        else own.max(0).values)
    return torch.stack(rows)


class GCNConv(nn.Module):
    def __init__(self, i, o, add_self_loops=True, normalize=True, bias=True):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.zeros(o)) if bias else None
        self.loops, self.norm = add_self_loops, normalize

    def forward(self, x, e, w=None):
        n = len(x)
        a = torch.zeros(n, n, dtype=x.dtype)
        w = torch.ones(e.shape[1], dtype=x.dtype) if w is None else w
        a = a.index_put((e[1], e[0]), w, accumulate=True)
        if self.loops:
            a = a + torch.eye(n, dtype=x.dtype)
        if self.norm:
            d = a.sum(1)
            d = torch.where(d > 0, d.clamp(min=1e-30) ** -0.5, 0.0)
            a = d[:, None] * a * d[None]
        y = a @ self.lin(x)
        return y if self.bias is None else y + self.bias


class SAGEConv(nn.Module):
    def __init__(self, i, o, aggr="mean", normalize=False, root_weight=True):
        super().__init__()
        self.lin_l = nn.Linear(i, o)
        if root_weight:
            self.lin_r = nn.Linear(i, o, bias=False)
        self.aggr, self.norm, self.root = aggr, normalize, root_weight

    def forward(self, x, e):
        y = self.lin_l(at_targets(x[e[0]], e[1], len(x), self.aggr))
        if self.root:
            y = y + self.lin_r(x)
        return nn.functional.normalize(y, dim=1) if self.norm else y


class GATConv(nn.Module):
    def __init__(self, i, o, heads=1, concat=True, v2=False):
        super().__init__()
        if v2:
            self.att = nn.Parameter(torch.zeros(1, heads, o))
        else:
            self.att_src = nn.Parameter(torch.zeros(1, heads, o))
            self.att_dst = nn.Parameter(torch.zeros(1, heads, o))
        self.bias = nn.Parameter(torch.zeros(heads * o if concat else o))
        if v2:
            self.lin_l, self.lin_r = nn.Linear(i, heads * o), nn.Linear(i, heads * o)
        else:
            self.lin = nn.Linear(i, heads * o, bias=False)
        self.h, self.o, self.concat, self.v2 = heads, o, concat, v2

    def forward(self, x, e):
        n, e = len(x), loops(e, len(x))
        if self.v2:
            s = self.lin_l(x).view(n, self.h, self.o)[e[0]]
            t = self.lin_r(x).view(n, self.h, self.o)[e[1]]
            a = (nn.functional.leaky_relu(s + t, 0.2) * self.att).sum(-1)
        else:
            h = self.lin(x).view(n, self.h, self.o)
            s = h[e[0]]
            a = nn.functional.leaky_relu(
                (s * self.att_src).sum(-1) + (h[e[1]] * self.att_dst).sum(-1), 0.2)
        y = at_targets(s * softmax_at(a, e[1], n)[..., None], e[1], n, "sum")
        y = y.flatten(1) if self.concat else y.mean(1)
        return y + self.bias


class GINConv(nn.Module):
    def __init__(self, i, o, eps=0.0, train_eps=False):
        super().__init__()
        self.nn = nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))
        if train_eps:
            self.eps = nn.Parameter(torch.full((1,), eps))
        else:
            self.register_buffer("eps", torch.full((1,), eps))

    def forward(self, x, e):
        return self.nn(at_targets(x[e[0]], e[1], len(x), "sum") + (1 + self.eps) * x)


class GlobalPool(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x, batch):
        return at_targets(x, batch, int(batch.max()) + 1, self.how)


for k in (SwiGLU, Packed, Rotary, Sinusoidal, GCNConv, SAGEConv, GATConv, GINConv, GlobalPool):
    setattr(nn, "Golden" + k.__name__, k)


class More(Layers):
    def golden(self, name, *a, **k):
        """A layer of this file; its op is the name without the prefix."""
        self.layer("Golden" + name, *a, **k)

    def built(self, op, args, module, inputs, call=None, train=True, rtol=2e-5, atol=5e-6):
        """A module that is made already (parametrised)."""
        setattr(nn, "GoldenBuilt", lambda **_: module)
        self.layer("GoldenBuilt", args, inputs, call=call, train=train, rtol=rtol, atol=atol)
        self.cases[-1]["op"] = op
        self.cases[-1]["name"] = self.unique(op)


def activations(f):
    x = f.rng("x").normal(3, 4, 6)
    plain_ones = ["ReLU", "ReLU6", "Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "SiLU", "Mish",
                  "SELU", "Softsign", "Hardsigmoid", "Hardswish", "Identity"]
    for op in plain_ones:
        f.layer(op, {}, [x * 2])
    for op, args in (("LeakyReLU", {}), ("LeakyReLU", {"negative_slope": 0.2}), ("ELU", {}),
                     ("ELU", {"alpha": 0.5}), ("CELU", {"alpha": 0.7}), ("Hardshrink", {}),
                     ("Hardshrink", {"lambd": 0.8}), ("Softshrink", {"lambd": 0.3}),
                     ("Softplus", {}), ("Softplus", {"beta": 2.0, "threshold": 3.0}),
                     ("Hardtanh", {}), ("Hardtanh", {"min_val": -0.5, "max_val": 0.7}),
                     ("Threshold", {"threshold": 0.2, "value": -3.0}), ("GLU", {}),
                     ("GLU", {"dim": 1}), ("GELU", {}), ("GELU", {"approximate": "tanh"}),
                     ("Softmax", {"dim": 1}), ("LogSoftmax", {"dim": -1}), ("Softmin", {"dim": 0}),
                     ("Softmax2d", {}), ("PReLU", {}), ("PReLU", {"num_parameters": 4}),
                     ("Unflatten", {"dim": 1, "unflattened_size": [2, -1]}),
                     ("Flatten", {"start_dim": 0, "end_dim": 1})):
        f.layer(op, args, [x])
    f.layer("RReLU", {}, [x], train=False)
    for op in ("Dropout1d", "AlphaDropout", "FeatureAlphaDropout"):
        f.layer(op, {}, [x], train=False)
    f.golden("SwiGLU", {}, [x])
    f.layer("RMSNorm", {"normalized_shape": [6]}, [x])
    f.layer("RMSNorm", {"normalized_shape": [4, 6], "eps": 0.1, "elementwise_affine": False}, [x])
    f.layer("CosineSimilarity", {}, [x, x.flip(0) + 0.3])
    f.layer("CosineSimilarity", {"dim": 2, "eps": 1.0}, [x, x.flip(0) + 0.3])
    for args in ({}, {"p": 1.0}, {"p": 3.0, "keepdim": True, "eps": 0.1}):
        f.layer("PairwiseDistance", args, [x[:, 0], x[:, 1]])
    f.layer("Bilinear", {"in1_features": 6, "in2_features": 4, "out_features": 3, "bias": False},
            [x[:, 0], f.rng("b").normal(3, 4)])


def bags(f):
    r = f.rng("bags")
    ids, flat = r.ints(0, 7, 3, 4), r.ints(0, 7, 9)
    offsets, w = torch.tensor([0, 2, 2, 6]), r.normal(9)
    for mode in ("sum", "mean", "max"):
        args = {"num_embeddings": 7, "embedding_dim": 3, "mode": mode}
        f.layer("EmbeddingBag", args, [ids])
        f.layer("EmbeddingBag", args, [flat, offsets])
        f.layer("EmbeddingBag", dict(args, padding_idx=2), [flat, offsets])
        f.layer("EmbeddingBag", dict(args, padding_idx=-1), [flat, offsets])
        f.layer("EmbeddingBag", dict(args, include_last_offset=True),
                [flat, torch.tensor([0, 2, 5, 9])])
    f.layer("EmbeddingBag", {"num_embeddings": 7, "embedding_dim": 3, "mode": "sum"},
            [flat, offsets, w])


def recurrent(f):
    r = f.rng("rec")
    x = r.normal(5, 3, 4)
    for op in ("LSTM", "GRU", "RNN"):
        base = {"input_size": 4, "hidden_size": 3}
        f.layer(op, base, [x[:, 0]])  # one sequence
        f.layer(op, dict(base, bidirectional=True, num_layers=2), [x[:, 0]])
        for extra in ({}, {"num_layers": 2, "bidirectional": True}):
            d = 2 * extra.get("num_layers", 1) if extra else 1
            args = dict(base, kind=op, lengths=[3, 5, 1], **extra)
            h = r.normal(d, 3, 3)
            f.golden("Packed", args, [x])
            if op == "LSTM":
                f.golden("Packed", args, [x, h, r.normal(d, 3, 3)],
                         call=lambda m, a, b, c: m(a, (b, c)))
            else:
                f.golden("Packed", args, [x, h])
    for extra in ({}, {"bidirectional": True, "num_layers": 2, "batch_first": True}):
        f.layer("LSTM", dict(input_size=4, hidden_size=5, proj_size=2, **extra), [x])
    f.layer("LSTM", {"input_size": 4, "hidden_size": 5, "proj_size": 2},
            [x, r.normal(1, 3, 2), r.normal(1, 3, 5)], call=lambda m, a, h, c: m(a, (h, c)))
    for op in ("RNNCell", "GRUCell"):
        args = {"input_size": 4, "hidden_size": 3}
        f.layer(op, args, [x[0]])
        f.layer(op, dict(args, bias=False), [x[0], r.normal(3, 3)])
        f.layer(op, args, [x[0, 0], r.normal(3)])
    f.layer("RNNCell", {"input_size": 4, "hidden_size": 3, "nonlinearity": "relu"},
            [x[0], r.normal(3, 3)])
    f.layer("LSTMCell", {"input_size": 4, "hidden_size": 3}, [x[0]])
    f.layer("LSTMCell", {"input_size": 4, "hidden_size": 3, "bias": False},
            [x[0, 0], r.normal(3), r.normal(3)], call=lambda m, a, h, c: m(a, (h, c)))


def attention(f):
    r = f.rng("mha")
    q, kv = r.normal(2, 3, 8), r.normal(2, 5, 8)
    base = {"embed_dim": 8, "num_heads": 2, "batch_first": True}
    pad = torch.tensor([[False, False, True, False, True], [False, False, False, False, True]])

    def mha(**o):
        return lambda m, a, b, c, p=None, k=None: m(a, b, c, key_padding_mask=p, attn_mask=k, **o)
    for extra in ({"add_bias_kv": True}, {"add_zero_attn": True},
                  {"add_bias_kv": True, "add_zero_attn": True, "bias": False}):
        f.layer("MultiheadAttention", dict(base, **extra), [q, kv, kv + 1, pad], call=mha())
        f.layer("MultiheadAttention", dict(base, **extra), [q, kv, kv + 1],
                call=mha(need_weights=False), attrs={"need_weights": False})
    f.layer("MultiheadAttention", dict(base, kdim=5, vdim=6),
            [q, r.normal(2, 4, 5), r.normal(2, 4, 6)], call=mha(need_weights=False),
            attrs={"need_weights": False})
    added = r.normal(3, 5)
    f.layer("MultiheadAttention", base, [q, kv, kv + 1, pad], call=lambda m, a, b, c, p: m(
        a, b, c, key_padding_mask=p, need_weights=False), attrs={"need_weights": False})
    f.layer("MultiheadAttention", base, [q, kv, kv + 1, None, added], call=mha())
    f.layer("MultiheadAttention", base, [q, kv, kv + 1, None, r.normal(4, 3, 5)], call=mha(
        average_attn_weights=False), attrs={"average_attn_weights": False})
    f.layer("MultiheadAttention", base, [q[0], kv[0], kv[1]], call=mha())
    f.layer("MultiheadAttention", base, [q[0], kv[0], kv[1]], call=mha(need_weights=False),
            attrs={"need_weights": False})


def transformer(f):
    r = f.rng("transformer")
    x, y = r.normal(4, 2, 8), r.normal(3, 2, 8)
    pad = torch.tensor([[False, False, False, True], [False, False, False, False]])
    layer = {"d_model": 8, "nhead": 2, "dim_feedforward": 6, "dropout": 0.0}
    causal = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    f.layer("TransformerEncoderLayer", dict(layer, bias=False), [x])
    f.layer("TransformerEncoderLayer", layer, [x, causal, pad])
    f.layer("TransformerDecoderLayer", dict(layer, norm_first=True), [y, x])
    for norm_first in (False, True):
        f.layer("Transformer", {"d_model": 8, "nhead": 2, "num_encoder_layers": 2,
                                "num_decoder_layers": 2, "dim_feedforward": 6, "dropout": 0.0,
                                "norm_first": norm_first}, [x, y])
    f.golden("Rotary", {"size": 8}, [r.normal(2, 3, 5, 8)], rtol=1e-4, atol=1e-5)
    f.golden("Rotary", {"size": 6, "interleaved": True, "start": 7}, [r.normal(4, 6)], rtol=1e-4,
             atol=1e-5)
    f.golden("Sinusoidal", {"d_model": 8}, [x])
    f.golden("Sinusoidal", {"d_model": 8, "batch_first": True}, [x])


def parametrised(f):
    r = f.rng("parametrised")
    x, img = r.normal(3, 5), r.normal(2, 3, 5, 5)
    conv = {"in_channels": 3, "out_channels": 4, "kernel_size": 3}
    f.built("weight_norm", {"in_features": 5, "out_features": 4, "layer": "Linear"},
            P.weight_norm(nn.Linear(5, 4).double()), [x])
    f.built("weight_norm", {"layer": "Linear", "in_features": 5, "out_features": 4, "dim": 1},
            P.weight_norm(nn.Linear(5, 4).double(), dim=1), [x])
    f.built("weight_norm", dict(conv, layer="Conv2d"), P.weight_norm(nn.Conv2d(**conv).double()),
            [img])
    for train in (True, False):
        f.built("spectral_norm", {"in_features": 5, "out_features": 4, "layer": "Linear"},
                P.spectral_norm(nn.Linear(5, 4).double()), [x], train=train)
        f.built("spectral_norm", dict(conv, layer="Conv2d"),
                P.spectral_norm(nn.Conv2d(**conv).double()), [img], train=train)


def graphs(f):
    r = f.rng("graphs")
    x, e = r.normal(6, 4), torch.tensor([[0, 1, 2, 3, 3, 5, 1, 4], [1, 0, 1, 1, 2, 3, 5, 3]])
    io = {"i": 4, "o": 3}
    f.golden("GCNConv", io, [x, e])
    f.golden("GCNConv", dict(io, add_self_loops=False), [x, e, r.uniform(0.2, 2.0, 8)])
    f.golden("GCNConv", dict(io, normalize=False, bias=False), [x, e])
    for extra in ({}, {"aggr": "max"}, {"aggr": "sum", "root_weight": False},
                  {"normalize": True}):
        f.golden("SAGEConv", dict(io, **extra), [x, e])
    for v2 in (False, True):
        for extra in ({}, {"heads": 2}, {"heads": 2, "concat": False}):
            f.golden("GATConv", dict(io, v2=v2, **extra), [x, e])
    f.golden("GINConv", dict(io, eps=0.3), [x, e])
    f.golden("GINConv", dict(io, eps=-0.1, train_eps=True), [x, e])
    for how in ("sum", "mean", "max"):
        f.golden("GlobalPool", {"how": how}, [x, torch.tensor([0, 0, 2, 1, 2, 2])])
        f.golden("GlobalPool", {"how": how}, [x, torch.tensor([0, 3, 3, 0, 3, 0])])


def many_classes(f):
    r = f.rng("many_classes")
    x, t = r.normal(6, 8), torch.tensor([0, 3, 11, 5, 4, 8])
    for o in ({}, {"div_value": 2.0, "head_bias": True}):
        f.layer("AdaptiveLogSoftmaxWithLoss", dict(in_features=8, n_classes=12, cutoffs=[4, 8], **o), [x, t])
    f.layer("AdaptiveLogSoftmaxWithLoss", dict(in_features=8, n_classes=12, cutoffs=[4]), [x[0], t[2]])
    f.layer("LinearCrossEntropyLoss", dict(in_features=8, num_classes=12, bias=True), [x, t])
    f.layer("LinearCrossEntropyLoss", dict(in_features=8, num_classes=12, out_features=(2,), label_smoothing=0.1),
            [x, torch.stack([t, t.flip(0)], 1)])


def make():
    f = More("nn")
    activations(f)
    bags(f)
    recurrent(f)
    attention(f)
    transformer(f)
    parametrised(f)
    graphs(f)
    for c in f.cases:
        c["op"] = c["op"].replace("Golden", "")
        c["name"] = c["name"].replace("Golden", "")
    many_classes(f)
    f.save()
