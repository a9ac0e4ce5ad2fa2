# SPDX-License-Identifier: Apache-2.0
"""Golden cases of views, joins, indexing, sorting and creation. Called by make_golden.py."""
import torch
import torch.nn.functional as F

from golden_lib import Family, bf16, f32, f64, i32, i64, u8


def moved(op):
    """torch.op on all inputs as one list."""
    return lambda *xs, **kw: getattr(torch, op)(xs, **kw)


def shuffled(op):
    return lambda x, **kw: getattr(x, op)(*kw.values())


def views(f):
    x, y = f.rng("x").normal(2, 3, 4), f.rng("y").normal(1, 3, 1)
    add = f.add
    for shape in ([6, 4], [4, -1], [2, 1, 12], [24]):
        add("reshape", [x], {"shape": shape}, fn=shuffled("reshape"))
    add("reshape", [torch.tensor(2.0)], {"shape": [1, 1]}, fn=shuffled("reshape"))
    add("reshape", [torch.zeros(0, 3)], {"shape": [3, 0, 2]}, fn=shuffled("reshape"))
    for dims in ([2, 0, 1], [0, 2, 1], [-1, 0, -2]):
        add("permute", [x], {"dims": dims}, fn=shuffled("permute"))
    for a, b in ((0, 1), (-1, 0), (1, 2)):
        add("transpose", [x], {"dim0": a, "dim1": b})
    add("t", [x[0]])
    add("movedim", [x], {"source": [0, 1], "destination": [2, 0]}, fn=shuffled("movedim"))
    for a in ({}, {"start_dim": 1}, {"start_dim": 0, "end_dim": 1}):
        add("flatten", [x], a)
    add("unflatten", [x], {"dim": 2, "sizes": [2, 2]}, fn=shuffled("unflatten"))
    add("unflatten", [x], {"dim": 2, "sizes": [-1, 2]}, fn=shuffled("unflatten"))
    add("squeeze", [y], {})
    add("squeeze", [y], {"dim": 0})
    add("squeeze", [y], {"dim": 1})
    add("squeeze", [y], {"dim": [0, 2]}, call_attrs={"dim": (0, 2)})
    for d in (0, 2, -1, 3):
        add("unsqueeze", [x], {"dim": d})
    add("expand", [y], {"size": [5, 3, 2]}, fn=shuffled("expand"))
    add("expand", [y], {"size": [2, -1, 3, -1]}, fn=shuffled("expand"), name="expand_new",
        call_attrs={"size": [2, 1, 3, 1]})
    add("broadcast_to", [y], {"size": [4, 2, 3, 2]})
    add("narrow", [x], {"dim": 1, "start": 1, "length": 2})
    add("narrow", [x], {"dim": -1, "start": -2, "length": 1})
    for d, i in ((0, 1), (1, -1), (-1, 0)):
        add("select", [x], {"dim": d, "index": i})

    def cut(t, dim, start=None, stop=None, step=1):
        return t[(slice(None),) * (dim % t.dim()) + (slice(start, stop, step),)]
    z = f.rng("z").normal(3, 9)
    for a in ({"start": 2}, {"stop": -2}, {"start": 1, "stop": 8, "step": 3}, {"step": 2},
              {"start": -4, "stop": 100, "step": 2}, {"start": 5, "stop": 5}):
        add("slice", [z], dict(dim=1, **a), fn=cut)
    add("diagonal", [x], {"offset": 1, "dim1": 1, "dim2": 2})
    add("diagonal", [x], {"offset": -1, "dim1": 0, "dim2": 2})
    add("diag", [z[0]], {"diagonal": 1})
    for d in ([0], [1, 2], [-1]):
        add("flip", [x], {"dims": d})
    for s, d in (([1], [0]), ([2, -1], [1, 2]), ([5], None)):
        add("roll", [x], {"shifts": s, **({} if d is None else {"dims": d})})
    for k in (1, 2, -1):
        add("rot90", [x], {"k": k, "dims": [1, 2]})
    for k in (0, 1, -1, 2):
        add("tril", [x], {"diagonal": k})
        add("triu", [x], {"diagonal": k})
    for t, dtype in ((x, i32), (x.double(), i64), (torch.tensor([0, 1, -1, 1 << 30]).int(), f32)):
        add("bitcast", [t], {"dtype": dtype}, fn=shuffled("view"))
    add("repeat", [x], {"repeats": [2, 1, 3]}, fn=shuffled("repeat"))
    add("repeat", [z], {"repeats": [2, 1, 1]}, fn=shuffled("repeat"))
    add("tile", [z], {"dims": [2]})
    add("repeat_interleave", [x], {"repeats": 2, "dim": 1})
    add("repeat_interleave", [x, torch.tensor([1, 0, 3])], {"dim": 1}, name="repeat_interleave_t")
    add("unfold", [z], {"dim": 1, "size": 4, "step": 2}, fn=shuffled("unfold"))
    img = f.rng("img").normal(2, 2, 5, 4)
    for a in ({"kernel_size": [2, 3], "padding": 1, "stride": 2},
              {"kernel_size": 2, "dilation": 2}):
        add("im2col", [img], a, fn=F.unfold)
    cols = f.rng("cols").normal(2, 8, 6)
    add("col2im", [cols], {"output_size": [4, 3], "kernel_size": 2}, fn=F.fold)
    add("pixel_shuffle", [f.rng("ps").normal(1, 8, 2, 3)], {"upscale_factor": 2})
    add("pixel_unshuffle", [f.rng("pu").normal(1, 2, 4, 6)], {"downscale_factor": 2})
    for dt, n in ((f64, "f64"), (bf16, "bf16"), (i64, "i64"), (u8, "u8"), (torch.bool, "bool")):
        v = (x * 3).to(dt) if dt != u8 else (x.abs() * 9).to(dt)
        add("permute", [v], {"dims": [2, 0, 1]}, fn=shuffled("permute"), name="permute_" + n)
        add("flip", [v], {"dims": [1]}, name="flip_" + n)
        add("tril", [v], {"diagonal": 0}, name="tril_" + n)


def joins(f):
    x, y, z = f.rng("a").normal(2, 3), f.rng("b").normal(2, 1), f.rng("c").normal(2, 2)
    add = f.add
    add("cat", [x, y, z], {"dim": 1}, fn=moved("cat"))
    add("cat", [x, x + 1], {"dim": 0}, fn=moved("cat"))
    add("cat", [x, torch.zeros(0, 3)], {"dim": 0}, fn=moved("cat"), name="cat_empty")
    add("cat", [x, torch.zeros(0)], {"dim": 1}, fn=moved("cat"), name="cat_empty_vector")
    add("cat", [torch.zeros(0), x[0, :2], torch.zeros(0)], {"dim": 0}, fn=moved("cat"),
        name="cat_vectors_empty")
    add("cat", [torch.tensor([1, 2]), torch.tensor([0.5])], {"dim": 0}, fn=moved("cat"),
        name="cat_promotes")
    for d in (0, 1, -1, 2):
        add("stack", [x, x * 2], {"dim": d}, fn=moved("stack"))
    w = f.rng("w").normal(7, 2)
    add("split", [w], {"split_size": 3, "dim": 0}, fn=lambda t, split_size, dim: t.split(3, dim))
    add("split", [w], {"split_size": [2, 4, 1], "dim": 0}, name="split_sizes",
        fn=lambda t, split_size, dim: t.split(split_size, dim))
    add("chunk", [w], {"chunks": 3, "dim": 0})
    add("chunk", [w], {"chunks": 2, "dim": 1})
    add("unbind", [x], {"dim": 0})
    add("unbind", [x], {"dim": 1})
    add("meshgrid", [torch.arange(3.0), torch.arange(2.0)], {"indexing": "ij"}, fn=moved_mesh)
    img = f.rng("pad").normal(1, 2, 3, 4)
    for p in ([1, 2], [1, 0, 2, 1], [0, 1, 1, 0, 1, 2]):
        add("pad", [img], {"pad": p, "mode": "constant", "value": 0.5})
    add("pad", [img], {"pad": [-1, 1, 0, -1]}, name="pad_negative")
    for mode in ("reflect", "replicate", "circular"):
        add("pad", [img], {"pad": [2, 1, 1, 2], "mode": mode}, name="pad_" + mode)
        add("pad", [img[0]], {"pad": [1, 2], "mode": mode}, name="pad1_" + mode)
    add("pad", [torch.tensor([[1, 2], [3, 4]])], {"pad": [1, 1], "value": 9}, name="pad_i64")


def moved_mesh(*xs, indexing):
    return torch.meshgrid(*xs, indexing=indexing)


def index_spec(spec, ts):
    """Builds a Python index from its JSON form; tensors are taken from the inputs by number."""
    out = []
    for s in spec:
        if s in ("none", "ellipsis"):
            out.append(None if s == "none" else Ellipsis)
        elif "int" in s:
            out.append(s["int"])
        elif "slice" in s:
            out.append(slice(*s["slice"]))
        else:
            out.append(ts[s["tensor"]])
    return tuple(out)


INDEXES = [
    ([{"int": 1}], []), ([{"int": -1}, {"slice": [None, None, 2]}], []),
    (["ellipsis", {"int": 0}], []), (["none", {"slice": [1, None, None]}, "ellipsis", "none"], []),
    ([{"tensor": 1}], [[2, 0, -1, 2]]), ([{"tensor": 1}], [[[0, 1], [3, -4]]]),
    ([{"tensor": 1}, {"tensor": 2}], [[0, 3, 1], [1, -1, 2]]),
    ([{"tensor": 1}, {"tensor": 2}], [[[0], [2]], [1, 0]]),
    ([{"slice": [None, None, None]}, {"tensor": 1}], [[1, 1, 0]]),
    ([{"tensor": 1}, {"slice": [0, 2, None]}, {"tensor": 2}], [[0, 3], [4, 1]]),
    ([{"int": 1}, {"slice": [None, None, None]}, {"tensor": 1}], [[3, 0]]),
    ([{"slice": [None, None, None]}, {"tensor": 1}, {"tensor": 2}], [[0, 2], [1, 1]]),
    ([{"tensor": 1}, "none", {"tensor": 2}], [[0, 1], [2, 0]]),
    (["ellipsis", {"tensor": 1}], [[4, 4, 0]]),
    ([{"tensor": 1}], [[True, False, True, False]]),
    ([{"slice": [None, None, None]}, {"tensor": 1}], [[True, False, True]]),
    ([{"tensor": 1}], ["mask2"]),
    ([{"tensor": 1}, {"tensor": 2}], [[True, False, True, True], [0, 1, 2]]),
]


def indexing(f):
    x = f.rng("ix").normal(4, 3, 5)
    for i, (spec, arrays) in enumerate(INDEXES):
        ts = [f.rng("mask2").bools(4, 3) if a == "mask2" else torch.tensor(a) for a in arrays]
        fn = lambda *t, index: t[0][index_spec(index, t)]
        f.add("index", [x, *ts], {"index": spec}, fn=fn)
        if i in (4, 6, 14):
            f.add("index", [(x * 5).to(i32), *ts], {"index": spec}, fn=fn, name="index_i32")
        shape = fn(x, *ts, index=spec).shape
        value = f.rng("iv").normal(*shape)
        at = [{"tensor": s["tensor"] + 1} if isinstance(s, dict) and "tensor" in s else s
              for s in spec]
        put = lambda *t, index, accumulate=False: put_at(t, index, accumulate)
        repeated = i in (4, 8, 13)
        if not repeated:
            f.add("index_put", [x, value, *ts], {"index": at}, fn=put)
        if i in (4, 6, 8, 13, 16):
            f.add("index_put", [x, value, *ts], {"index": at, "accumulate": True}, fn=put,
                  name="index_put_accumulate")
    f.add("index_put", [x, torch.tensor(2.5), torch.tensor([0, 2])], {"index": [{"tensor": 2}]},
          fn=put, name="index_put_0d")
    f.add("index_put", [x, f.rng("bc").normal(1, 5), torch.tensor([0, 2])],
          {"index": [{"tensor": 2}]}, fn=put, name="index_put_broadcast")


def put_at(t, index, accumulate):
    at = index_spec(index, t)
    out = t[0].clone()
    if not accumulate:
        out[at] = t[1]
        return out
    tensor_at = [a if torch.is_tensor(a) else torch.arange(t[0].shape[d]) for d, a in enumerate(at)]
    if all(torch.is_tensor(a) for a in at):
        return out.index_put(at, t[1], accumulate=True)
    if at[0] is Ellipsis:
        pos = t[0].dim() - 1
    else:
        pos = len(tensor_at) - 1
    return torch.index_add(out, pos, at[-1], t[1])


def gathers(f):
    add = f.add
    x, src = f.rng("gx").normal(3, 5), f.rng("gs").normal(2, 4)
    idx = torch.tensor([[0, 2, 1, 0], [2, 2, 0, 1]])
    add("gather", [x, idx], {"dim": 0}, fn=lambda a, i, dim: a.gather(dim, i))
    add("gather", [x, torch.tensor([[4, 0], [1, 1], [3, 2]])], {"dim": 1},
        fn=lambda a, i, dim: a.gather(dim, i))
    add("take_along_dim", [x, torch.tensor([[4], [0], [2]])], {"dim": 1})
    unique = torch.tensor([[0, 2, 1, 0], [2, 0, 0, 1]])
    add("scatter", [x, unique, src], {"dim": 0}, fn=lambda a, i, s, dim: a.scatter(dim, i, s))
    add("scatter", [x, unique], {"dim": 0, "value": 1.5}, name="scatter_value",
        fn=lambda a, i, dim, value: a.scatter(dim, i, value))
    add("scatter_add", [x, idx, src], {"dim": 0}, fn=lambda a, i, s, dim: a.scatter_add(dim, i, s))
    add("scatter_add", [torch.zeros(3, 5, dtype=i64), idx, (src * 9).to(i64)], {"dim": 0},
        name="scatter_add_i64", fn=lambda a, i, s, dim: a.scatter_add(dim, i, s))
    for red in ("sum", "prod", "mean", "amax", "amin"):
        for inc in (True, False):
            add("scatter_reduce", [x, idx, src], {"dim": 0, "reduce": red, "include_self": inc},
                fn=lambda a, i, s, dim, reduce, include_self:
                a.scatter_reduce(dim, i, s, reduce, include_self=include_self))
    k = torch.tensor([2, 0, 2])
    add("index_select", [x, k], {"dim": 0}, fn=lambda a, i, dim: a.index_select(dim, i))
    add("index_select", [x, torch.tensor([4, 1], dtype=i32)], {"dim": -1}, name="index_select_i32",
        fn=lambda a, i, dim: a.index_select(dim, i))
    add("index_add", [x, k, f.rng("ia").normal(3, 5)], {"dim": 0, "alpha": 2},
        fn=lambda a, i, s, dim, alpha: a.index_add(dim, i, s, alpha=alpha))
    add("index_fill", [x, torch.tensor([0, 3])], {"dim": 1, "value": -1.0},
        fn=lambda a, i, dim, value: a.index_fill(dim, i, value))
    m = f.rng("ms").bools(3, 5)
    add("masked_select", [x, m])
    add("masked_scatter", [x, m, f.rng("mss").normal(15)])
    add("nonzero", [m])
    add("nonzero", [torch.tensor([0.0, 2.0, 0.0, -1.0])])
    add("one_hot", [torch.tensor([[0, 2], [1, 0]])], {"num_classes": 4})
    add("one_hot", [torch.tensor([0, 2, 1])], {"num_classes": -1})
    w = f.rng("emb").normal(6, 3)
    ids = torch.tensor([[1, 5, 1], [0, 2, 2]])
    for a in ({}, {"padding_idx": 2}, {"padding_idx": -1}):
        add("embedding", [ids, w], a, fn=F.embedding)
    add("embedding", [ids.to(i32), w], fn=F.embedding, name="embedding_i32")
    add("embedding", [torch.tensor(3), w], fn=F.embedding, name="embedding_0d")
    add("bincount", [torch.tensor([0, 3, 3, 1])], {"minlength": 6})


def sorting(f):
    x = torch.tensor([[3.0, 1, 2, 1, 3], [0, float("nan"), -1, 5, float("-inf")]])
    y = f.rng("sort").normal(2, 3, 6)
    for desc in (False, True):
        a = {"dim": -1, "descending": desc, "stable": True}
        f.add("sort", [x], a, name="sort_ties", grad=False,
              fn=lambda t, **k: torch.sort(t, **k))
        f.add("sort", [y], a, fn=lambda t, **k: torch.sort(t, **k))
        f.add("sort", [(y * 9).to(i64)], a, fn=lambda t, **k: torch.sort(t, **k), name="sort_i64")
        f.add("argsort", [y], dict(a, dim=1))
        f.add("topk", [y], {"k": 2, "dim": 2, "largest": desc})
        f.add("topk", [y], {"k": 3, "dim": 1, "largest": desc})
    edges = torch.tensor([0.0, 1.0, 2.0, 2.0, 5.0])
    v = torch.tensor([[-1.0, 0.0, 2.0], [1.5, 5.0, 9.0]])
    for right in (False, True):
        f.add("searchsorted", [edges, v], {"right": right}, grad=False)
        f.add("bucketize", [v, edges], {"right": right}, grad=False)
    f.add("unique", [torch.tensor([3, 1, 3, 2, 1])], {"return_inverse": True,
                                                      "return_counts": True})


def creation(f):
    for a in ({"start": 0, "end": 5}, {"start": 2, "end": -3, "step": -2},
              {"start": 0.0, "end": 1.0, "step": 0.3}, {"start": 1, "end": 4, "dtype": f32}):
        f.add("arange", [], a)
    for a in ({"start": 0, "end": 1, "steps": 5}, {"start": -3, "end": 3, "steps": 7},
              {"start": 2, "end": 2.5, "steps": 1}, {"start": 0, "end": 1, "steps": 4,
                                                      "dtype": f64}):
        f.add("linspace", [], a)
    f.add("eye", [], {"n": 3})
    f.add("eye", [], {"n": 2, "m": 4, "dtype": i64})
    for v in (2, 2.5, True):
        f.add("full", [], {"size": [2, 2], "fill_value": v})
    f.add("full", [], {"size": [], "fill_value": 1.5, "dtype": f64})
    f.add("zeros", [], {"size": [0, 2]})
    f.add("ones", [], {"size": [3], "dtype": u8})


def make():
    f = Family("view_index")
    views(f)
    joins(f)
    indexing(f)
    gathers(f)
    sorting(f)
    creation(f)
    f.save()
