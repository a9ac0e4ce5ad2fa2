# SPDX-License-Identifier: Apache-2.0
"""Golden cases of normalisation, softmax, losses and similarities. Called by make_golden.py."""
import torch
import torch.nn.functional as F

from golden_lib import INF, Family, bf16, f16, f32, f64

REDUCTIONS = ("mean", "sum", "none")
LOOSE = {"rtol": 2e-5, "atol": 2e-6}


def batch_norm(x, rm, rv, w, b, training=False, momentum=0.1, eps=1e-5):
    """The result and, in training, the running statistics after it."""
    rm, rv = (None if t is None else t.clone() for t in (rm, rv))
    y = F.batch_norm(x, rm, rv, w, b, training, momentum, eps)
    return (y, rm, rv) if training and rm is not None else y


def norms(f):
    r = f.rng("norms")
    x = r.normal(4, 6, scale=2.0)
    x3, w, b = r.normal(2, 3, 4), r.normal(6), r.normal(6)
    w34, b34 = r.normal(3, 4), r.normal(3, 4)
    for dt, n in ((f32, "f32"), (f64, "f64")):
        k = LOOSE if dt == f32 else {}
        t = lambda *xs: [None if v is None else v.to(dt) for v in xs]
        f.add("layer_norm", t(x, w, b), {"normalized_shape": [6]}, fn=layer_norm,
              name="layer_norm_" + n, **k)
        f.add("layer_norm", t(x, None, None), {"normalized_shape": [6], "eps": 1e-3},
              fn=layer_norm, name="layer_norm_plain_" + n, **k)
        f.add("layer_norm", t(x3, w34, b34), {"normalized_shape": [3, 4]}, fn=layer_norm,
              name="layer_norm_2d_" + n, **k)
        f.add("layer_norm", t(x, w, None), {"normalized_shape": [6]}, fn=layer_norm,
              name="layer_norm_no_bias_" + n, **k)
        f.add("rms_norm", t(x, w), {"normalized_shape": [6], "eps": 1e-6}, fn=rms_norm,
              name="rms_norm_" + n, **k)
        img, c, d = r.normal(3, 4, 3, 2, scale=2), r.normal(4), r.normal(4)
        rm, rv = r.normal(4), r.uniform(.5, 2, 4)
        skip = {"no_grad_inputs": (1, 2)}
        for a in ({"training": True}, {"training": True, "momentum": 0.3, "eps": 1e-3},
                  {"training": False}):
            f.add("batch_norm", t(img, rm, rv, c, d), a, fn=batch_norm, name="batch_norm_" + n,
                  **skip, **k)
        f.add("batch_norm", t(img, None, None, c, d), {"training": True}, fn=batch_norm,
              name="batch_norm_no_stats_" + n, **k)
        f.add("batch_norm", t(img[:, :, 0, 0].contiguous(), rm, rv, None, None),
              {"training": True}, fn=batch_norm, name="batch_norm_2d_" + n, **skip, **k)
        f.add("batch_norm", t(img[:, :, 0].contiguous(), rm, rv, c, d), {"training": False},
              fn=batch_norm, name="batch_norm_3d_" + n, **skip, **k)
        f.add("group_norm", t(img, c, d), {"num_groups": 2}, fn=group_norm,
              name="group_norm_" + n, **k)
        f.add("group_norm", t(img, None, None), {"num_groups": 4}, fn=group_norm,
              name="group_norm_plain_" + n, **k)
        f.add("instance_norm", t(img), {}, name="instance_norm_" + n, **k)
    f.add("layer_norm", [x + 1000, w, b], {"normalized_shape": [6]}, fn=layer_norm,
          name="layer_norm_shifted", rtol=1e-3, atol=1e-4)
    f.add("layer_norm", [x.to(bf16), w.to(bf16), b.to(bf16)], {"normalized_shape": [6]},
          fn=layer_norm, name="layer_norm_bf16", rtol=2e-2, atol=2e-2)
    for a in ({}, {"p": 1.0, "dim": 0}, {"p": 2.0, "dim": -1}):
        f.add("normalize", [x], a)
    for op in ("softmax", "log_softmax", "softmin"):
        for d in (0, 1, -1):
            f.add(op, [x3], {"dim": d}, **LOOSE)
        f.add(op, [x3.double()], {"dim": 2}, name=op + "_f64")
        f.add(op, [x3.to(bf16)], {"dim": 2}, name=op + "_bf16", rtol=2e-2, atol=2e-2)
    s = torch.tensor([[0.0, -INF, 1.0], [1000.0, 1001.0, 999.0], [-1e30, 0.0, 5.0]])
    f.add("softmax", [s], {"dim": 1}, name="softmax_extreme", grad=False)
    f.add("log_softmax", [s], {"dim": 1}, name="log_softmax_extreme", grad=False)
    f.add("softmax", [torch.full((1, 3), -INF)], {"dim": 1}, name="softmax_all_masked", grad=False)
    f.add("softmax", [x3.to(f16)], {"dim": 1, "dtype": f32}, name="softmax_f16_to_f32")


def layer_norm(x, w=None, b=None, normalized_shape=None, eps=1e-5):
    return F.layer_norm(x, normalized_shape, w, b, eps)


def rms_norm(x, w, normalized_shape, eps):
    return F.rms_norm(x, normalized_shape, w, eps)


def group_norm(x, w, b, num_groups):
    return F.group_norm(x, num_groups, w, b)


def weighted(fn):
    """fn(input, target, weight) with the weight by name."""
    return lambda x, y, w=None, **k: fn(x, y, weight=w, **k)


def class_losses(f):
    r = f.rng("classes")
    x, y = r.normal(5, 4), torch.tensor([1, 0, 3, 3, 2])
    w = r.uniform(.2, 2, 4)
    p = torch.softmax(r.normal(5, 4, dtype=f64), 1).float()
    img, yi = r.normal(2, 4, 3, 2), r.ints(0, 4, 2, 3, 2)
    ign = torch.tensor([1, -100, 3, -100, 2])
    for red in REDUCTIONS:
        k = {"reduction": red}
        for op in ("cross_entropy", "nll_loss"):
            fn = weighted(getattr(F, op))
            lx = x if op == "cross_entropy" else torch.log_softmax(x.double(), 1).float()
            li = img if op == "cross_entropy" else torch.log_softmax(img.double(), 1).float()
            f.add(op, [lx, y], k, **LOOSE)
            f.add(op, [lx.double(), y], k, name=op + "_f64")
            f.add(op, [lx, y, w], k, fn=fn, name=op + "_weight", no_grad_inputs=(2,), **LOOSE)
            f.add(op, [lx, ign], k, name=op + "_ignored", **LOOSE)
            f.add(op, [lx, ign, w], k, fn=fn, name=op + "_weight_ignored", no_grad_inputs=(2,),
                  **LOOSE)
            f.add(op, [lx, y], dict(k, ignore_index=3), name=op + "_ignore_index", **LOOSE)
            f.add(op, [li, yi], k, name=op + "_2d", **LOOSE)
            f.add(op, [li, yi, w], k, fn=fn, name=op + "_2d_weight", no_grad_inputs=(2,), **LOOSE)
        s = dict(k, label_smoothing=0.1)
        f.add("cross_entropy", [x, y], s, name="cross_entropy_smooth", **LOOSE)
        f.add("cross_entropy", [x, ign, w], s, fn=weighted(F.cross_entropy),
              name="cross_entropy_smooth_weight_ignored", no_grad_inputs=(2,), **LOOSE)
        f.add("cross_entropy", [x, p], k, name="cross_entropy_prob", **LOOSE)
        f.add("cross_entropy", [x, p, w], s, fn=weighted(F.cross_entropy),
              name="cross_entropy_prob_smooth_weight", no_grad_inputs=(2,), **LOOSE)
    f.add("cross_entropy", [x[0], y[0]], name="cross_entropy_unbatched", **LOOSE)
    f.add("cross_entropy", [x * 1000, y], name="cross_entropy_large", **LOOSE)
    f.add("cross_entropy", [x.to(bf16), y], name="cross_entropy_bf16", rtol=2e-2, atol=2e-2)
    f.add("cross_entropy", [x, torch.full((5,), -100)], {"reduction": "sum"},
          name="cross_entropy_all_ignored")


def value_losses(f):
    r = f.rng("values")
    x, y, z = r.normal(3, 4), r.normal(3, 4), r.normal(3, 4)
    y[0, 0] = x[0, 0]
    w, pw = r.uniform(.2, 2, 3, 4), r.uniform(.5, 3, 4)
    t, prob = r.uniform(0, 1, 3, 4), r.uniform(.05, .95, 3, 4)
    sign = torch.where(r.bools(3, 4), 1.0, -1.0)
    logq = torch.log_softmax(x.double(), 1).float()
    pair = [r.normal(3, 4) for _ in range(3)]
    for red in REDUCTIONS:
        k = {"reduction": red}
        for op in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            f.add(op, [x, y], k)
            f.add(op, [x.double(), y.double()], k, name=op + "_f64")
        f.add("smooth_l1_loss", [x, y], dict(k, beta=0.4), name="smooth_l1_loss_beta")
        f.add("huber_loss", [x, y], dict(k, delta=0.4), name="huber_loss_delta")
        bce = "binary_cross_entropy_with_logits"
        fn = lambda a, b, c=None, d=None, **o: F.binary_cross_entropy_with_logits(
            a, b, weight=c, pos_weight=d, **o)
        f.add(bce, [x, t], k, fn=fn)
        f.add(bce, [x, t, w], k, fn=fn, name=bce + "_weight", no_grad_inputs=(2,))
        f.add(bce, [x, t, None, pw], k, fn=fn, name=bce + "_pos_weight", no_grad_inputs=(3,))
        f.add("binary_cross_entropy", [prob, t], k)
        f.add("binary_cross_entropy", [prob, t, w], k, fn=weighted(F.binary_cross_entropy),
              name="binary_cross_entropy_weight", no_grad_inputs=(2,))
        f.add("kl_div", [logq, t], k)
        f.add("kl_div", [logq, torch.log(t)], dict(k, log_target=True), name="kl_div_log_target")
        f.add("poisson_nll_loss", [x, t * 5], k, no_grad_inputs=(1,))
        f.add("gaussian_nll_loss", [x, y, w], k)
        f.add("hinge_embedding_loss", [x, sign], k, no_grad_inputs=(1,))
        f.add("soft_margin_loss", [x, sign], k, no_grad_inputs=(1,))
        f.add("margin_ranking_loss", [x, y, sign], dict(k, margin=0.3), no_grad_inputs=(2,))
        f.add("cosine_embedding_loss", [pair[0], pair[1], sign[:, 0].contiguous()],
              dict(k, margin=0.2), no_grad_inputs=(2,))
        f.add("triplet_margin_loss", pair, k, **LOOSE)
    more_losses(f, x, y, prob, t, sign)
    f.add("kl_div", [logq, t], {"reduction": "batchmean"})
    big = torch.tensor([-200.0, -50, 0, 50, 200])
    f.add("binary_cross_entropy_with_logits", [big, torch.tensor([0.0, 1, 0.5, 0, 1])],
          {"reduction": "none"}, name="bce_with_logits_large")
    f.add("binary_cross_entropy", [torch.tensor([0.0, 1.0, 0.0, 1.0]),
                                   torch.tensor([0.0, 0.0, 1.0, 1.0])], {"reduction": "none"},
          name="binary_cross_entropy_edges", grad=False)
    f.add("mse_loss", [x.to(bf16), y.to(bf16)], name="mse_loss_bf16")
    f.add("cosine_similarity", [x, z], {"dim": 1})
    f.add("cosine_similarity", [x, z[:1]], {"dim": -1}, name="cosine_similarity_broadcast")
    f.add("pairwise_distance", [x, z])
    f.add("dropout", [x], {"p": 0.4, "training": False})


def log_cosh(a, b, reduction="mean"):
    return reduced(torch.log(torch.cosh(a - b)), reduction)


def reduced(v, reduction):
    return v if reduction == "none" else v.mean() if reduction == "mean" else v.sum()


def focal(a, b, alpha=0.25, gamma=2.0, reduction="mean"):
    p = torch.sigmoid(a)
    pt = p * b + (1 - p) * (1 - b)
    ce = F.binary_cross_entropy_with_logits(a, b, reduction="none")
    w = alpha * b + (1 - alpha) * (1 - b) if alpha >= 0 else 1.0
    return reduced(w * ce * (1 - pt) ** gamma, reduction)


def tversky(a, b, alpha=0.5, beta=0.5, smooth=1.0, reduction="mean"):
    tp, fp, fn = (a * b).sum(1), (a * (1 - b)).sum(1), ((1 - a) * b).sum(1)
    return reduced(1 - (tp + smooth) / (tp + alpha * fp + beta * fn + smooth), reduction)


def dice(a, b, smooth=1.0, reduction="mean"):
    return reduced(1 - (2 * (a * b).sum(1) + smooth) / (a.sum(1) + b.sum(1) + smooth), reduction)


def more_losses(f, x, y, prob, t, sign):
    """Margins, several labels, overlap, CTC (from logits: log_probs alone has two conventions)."""
    r = f.rng("more_losses")
    label, w = r.ints(0, 4, 3), r.uniform(.5, 2, 4)
    labels = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [0, 1, 2, 3]])
    two = (t > 0.5).float()
    logits, targets = r.normal(7, 3, 5), r.ints(1, 5, 3, 3)
    il, tl = torch.tensor([7, 5, 4]), torch.tensor([3, 2, 0])
    hard = torch.tensor([[1, 1, 1], [2, 3, 4], [2, 2, 2]])

    def ctc(a, *rest, **o):
        return F.ctc_loss(torch.log_softmax(a, -1), *rest, **o)
    for red in REDUCTIONS:
        k = {"reduction": red}
        f.add("multi_margin_loss", [x, label], k)
        f.add("multi_margin_loss", [x, label, w], dict(k, p=2, margin=0.7), no_grad_inputs=(2,),
              fn=lambda a, b, c, **o: F.multi_margin_loss(a, b, weight=c, **o))
        f.add("multilabel_margin_loss", [x, labels], k)
        f.add("multilabel_soft_margin_loss", [x, two], k)
        f.add("multilabel_soft_margin_loss", [x, two, w], k, no_grad_inputs=(2,),
              fn=lambda a, b, c, **o: F.multilabel_soft_margin_loss(a, b, weight=c, **o))
        f.add("triplet_margin_with_distance_loss", [x, y, x.flip(0) + 0.4],
              dict(k, swap=True, margin=0.8), **LOOSE)
        f.add("sigmoid_focal_loss", [x, two], k, fn=focal, no_grad_inputs=(1,))
        f.add("sigmoid_focal_loss", [x, two], dict(k, alpha=-1.0, gamma=1.5), fn=focal,
              no_grad_inputs=(1,))
        f.add("dice_loss", [prob, two], k, fn=dice)
        f.add("tversky_loss", [prob, two], dict(k, alpha=0.3, beta=0.7, smooth=0.5), fn=tversky)
        f.add("log_cosh_loss", [x * 3, y], k, fn=log_cosh)
        f.add("ctc_loss", [logits, targets, il, tl], k, fn=ctc)
        f.add("ctc_loss", [logits, hard, il, torch.tensor([3, 3, 2])], dict(k, blank=0), fn=ctc)
    f.add("multi_margin_loss", [x[0], label[0]])
    f.add("multilabel_margin_loss", [x[0], labels[0]])
    f.add("ctc_loss", [logits, torch.tensor([1, 2, 3, 4, 4]), il, torch.tensor([3, 0, 2])],
          fn=ctc, name="ctc_loss_concatenated")
    f.add("ctc_loss", [logits[:, 0], targets[0], il[0], tl[0]], fn=ctc, name="ctc_loss_single")
    f.add("ctc_loss", [logits, hard, torch.tensor([7, 7, 4]), torch.tensor([3, 3, 3])],
          {"zero_infinity": True}, fn=ctc, name="ctc_loss_unreachable")
    f.add("ctc_loss", [logits, hard, torch.tensor([7, 7, 4]), torch.tensor([3, 3, 3])],
          {"reduction": "none"}, fn=ctc, name="ctc_loss_infinite", grad=False)


def make():
    f = Family("norm_loss", prefer=F)
    norms(f)
    class_losses(f)
    value_losses(f)
    f.save()
