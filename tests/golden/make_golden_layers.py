# SPDX-License-Identifier: Apache-2.0
"""Golden cases of whole layers with a given state_dict. Called by make_golden.py."""
import torch
import torch.nn as nn

from golden_lib import Family, f32, f64, plain


class Layers(Family):
    def layer(self, op, args, inputs, call=None, train=True, attrs=None, pick=None, rtol=2e-5,
              atol=5e-6, wide=False):
        """Records forward, input and parameter gradients and the state after, as float32 and
        (wide) float64. args: constructor arguments; pick: outputs out of the module's result."""
        for dt in (f32, f64) if wide else (f32,):
            name = self.unique(op + ("_f64" if dt == f64 else ""))
            rng = self.rng(name.replace("_f64", ""))
            m = getattr(nn, op)(**args).double()
            state = {k: self.draw(rng, op, k, v) for k, v in m.state_dict().items()}
            state = {k: v.to(dt) if v.is_floating_point() else v for k, v in state.items()}
            m.load_state_dict(state)
            m.train(train)
            xs = [x.to(dt).double() if x is not None and x.is_floating_point() else x
                  for x in inputs]
            live = [x.clone().requires_grad_() if x is not None and x.is_floating_point() else x
                    for x in xs]
            out = flat(call(m, *live) if call else m(*live))
            out = [out[i] for i in pick] if pick else out
            go = [rng.normal(*o.shape, dtype=dt).double() for o in out]
            params = dict(m.named_parameters())
            leaves = [x for x in live if x is not None and x.requires_grad] + list(params.values())
            got = list(torch.autograd.grad(out, leaves, go, allow_unused=True))
            narrow = lambda t: None if t is None else self.put(
                t.to(dt) if t.is_floating_point() else t)
            n = len(leaves) - len(params)
            grads = iter(got[:n])
            after = m.state_dict()
            self.cases.append({
                "name": name, "op": op, "args": plain(args), "attrs": plain(attrs or {}),
                "train": train, "state": {k: narrow(v) for k, v in state.items()},
                "inputs": [None if x is None else narrow(x) for x in xs],
                "outputs": [narrow(o) for o in out], "grad_out": [narrow(g) for g in go],
                "grads": [narrow(next(grads)) if x is not None and x.requires_grad else None
                          for x in live],
                "param_grads": {k: narrow(g) for k, g in zip(params, got[n:])},
                "state_after": {k: narrow(v) for k, v in after.items()
                                if not torch.equal(v.to(state[k].dtype), state[k])},
                "rtol": rtol if dt == f32 else 1e-11, "atol": atol if dt == f32 else 1e-12})

    def draw(self, rng, op, key, v):
        if not v.is_floating_point():
            return v.clone()  # state_dict() shows the buffer itself, which the call changes
        if key.endswith("running_var"):
            return rng.uniform(0.5, 2.0, *v.shape, dtype=f64)
        return rng.normal(*v.shape, dtype=f64, scale=0.4)


def flat(v):
    if torch.is_tensor(v):
        return [v]
    return [t for x in v if x is not None for t in flat(x)]


def simple(f):
    r = f.rng("x")
    x, img = r.normal(3, 5), r.normal(2, 4, 5, 5)
    f.layer("Linear", {"in_features": 5, "out_features": 4}, [x], wide=True)
    f.layer("Linear", {"in_features": 5, "out_features": 4, "bias": False}, [r.normal(2, 3, 5)])
    f.layer("Conv1d", {"in_channels": 4, "out_channels": 3, "kernel_size": 3, "padding": 1},
            [img[:, :, 0]])
    for extra in ({}, {"stride": 2, "padding": 1}, {"groups": 2, "bias": False},
                  {"dilation": 2, "padding": "same"}):
        f.layer("Conv2d", dict(in_channels=4, out_channels=6, kernel_size=3, **extra), [img],
                wide=not extra)
    for mode in ("reflect", "replicate", "circular"):
        f.layer("Conv2d", dict(in_channels=4, out_channels=2, kernel_size=3, padding=1,
                               padding_mode=mode), [img])
    f.layer("ConvTranspose2d", dict(in_channels=4, out_channels=2, kernel_size=3, stride=2,
                                    padding=1, output_padding=1), [img])
    for train in (True, False):
        f.layer("BatchNorm2d", {"num_features": 4}, [img], train=train, wide=True)
        f.layer("BatchNorm1d", {"num_features": 5}, [x], train=train)
    f.layer("BatchNorm2d", {"num_features": 4, "momentum": None}, [img])
    f.layer("BatchNorm2d", {"num_features": 4, "affine": False, "momentum": 0.3}, [img])
    f.layer("BatchNorm2d", {"num_features": 4, "track_running_stats": False}, [img], train=False)
    for train in (True, False):
        f.layer("BatchNorm3d", {"num_features": 2}, [f.rng("volume").normal(2, 2, 2, 3, 2)], train=train)
    f.layer("LayerNorm", {"normalized_shape": [5]}, [x], wide=True)
    f.layer("LayerNorm", {"normalized_shape": [5, 5], "elementwise_affine": False}, [img])
    f.layer("GroupNorm", {"num_groups": 2, "num_channels": 4}, [img])
    f.layer("RMSNorm", {"normalized_shape": [5], "eps": 1e-6}, [x])
    f.layer("InstanceNorm2d", {"num_features": 4, "affine": True}, [img])
    ids = torch.tensor([[1, 4, 1], [0, 2, 2]])
    f.layer("Embedding", {"num_embeddings": 6, "embedding_dim": 3}, [ids])
    f.layer("Embedding", {"num_embeddings": 6, "embedding_dim": 3, "padding_idx": 2}, [ids])
    f.layer("Embedding", {"num_embeddings": 6, "embedding_dim": 3, "padding_idx": -1},
            [torch.tensor([[5, 0], [2, 5]])])
    f.layer("PReLU", {"num_parameters": 4}, [img])
    f.layer("Bilinear", {"in1_features": 5, "in2_features": 4, "out_features": 2},
            [x, r.normal(3, 4)])
    f.layer("Dropout", {"p": 0.4}, [x], train=False)
    f.layer("Flatten", {}, [img])
    f.layer("MaxPool2d", {"kernel_size": 2}, [img])
    f.layer("AvgPool2d", {"kernel_size": 2, "stride": 1}, [img])
    f.layer("AdaptiveAvgPool2d", {"output_size": 2}, [img])


def recurrent(f):
    r = f.rng("rec")
    seq, first = r.normal(5, 2, 3), r.normal(2, 5, 3)
    for op in ("LSTM", "GRU", "RNN"):
        f.layer(op, {"input_size": 3, "hidden_size": 4}, [seq], wide=True)
        for extra in ({"num_layers": 2}, {"bidirectional": True}, {"bias": False},
                      {"num_layers": 2, "bidirectional": True}):
            f.layer(op, dict(input_size=3, hidden_size=4, batch_first=True, **extra), [first])
        if op == "LSTM":
            f.layer(op, {"input_size": 3, "hidden_size": 4, "batch_first": True},
                    [first, r.normal(1, 2, 4), r.normal(1, 2, 4)],
                    call=lambda m, x, h, c: m(x, (h, c)))
            f.layer(op, {"input_size": 3, "hidden_size": 4, "proj_size": 2}, [seq])
            f.layer(op, {"input_size": 3, "hidden_size": 4}, [seq[:, 0]])
        else:
            f.layer(op, {"input_size": 3, "hidden_size": 4, "batch_first": True},
                    [first, r.normal(1, 2, 4)])
    f.layer("RNN", {"input_size": 3, "hidden_size": 4, "nonlinearity": "relu"}, [seq])
    f.layer("LSTMCell", {"input_size": 3, "hidden_size": 4},
            [seq[0], r.normal(2, 4), r.normal(2, 4)], call=lambda m, x, h, c: m(x, (h, c)))
    f.layer("GRUCell", {"input_size": 3, "hidden_size": 4}, [seq[0], r.normal(2, 4)])


def attention(f):
    r = f.rng("mha")
    q, kv = r.normal(2, 3, 8), r.normal(2, 5, 8)
    base = {"embed_dim": 8, "num_heads": 2, "batch_first": True}

    def mha(**o):
        return lambda m, a, b, c: m(a, b, c, **o)
    f.layer("MultiheadAttention", base, [q, kv, kv + 1], call=mha(need_weights=False),
            attrs={"need_weights": False}, wide=True)
    f.layer("MultiheadAttention", base, [q, kv, kv + 1], call=mha())
    f.layer("MultiheadAttention", dict(base, bias=False, batch_first=False), [q, q, q],
            call=mha(average_attn_weights=False), attrs={"average_attn_weights": False})
    causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    pad = torch.tensor([[False, False, True], [False, False, False]])
    f.layer("MultiheadAttention", base, [q, q, q, None, causal], attrs={"need_weights": False},
            call=lambda m, a, b, c, p, k: m(a, b, c, attn_mask=k, need_weights=False))
    f.layer("MultiheadAttention", base, [q, q, q, pad],
            call=lambda m, a, b, c, p: m(a, b, c, key_padding_mask=p))
    f.layer("MultiheadAttention", dict(base, kdim=5, vdim=6),
            [q, r.normal(2, 4, 5), r.normal(2, 4, 6)], call=mha())
    layer = {"d_model": 8, "nhead": 2, "dim_feedforward": 6, "dropout": 0.0, "batch_first": True}
    for extra in ({}, {"norm_first": True, "activation": "gelu"}):
        f.layer("TransformerEncoderLayer", dict(layer, **extra), [q])
        f.layer("TransformerDecoderLayer", dict(layer, **extra), [q, kv])


def make():
    f = Layers("layers")
    simple(f)
    recurrent(f)
    attention(f)
    f.save()
