# SPDX-License-Identifier: Apache-2.0
"""Golden cases of optimizers, schedules and gradient clipping. Called by make_golden.py."""
import torch

from golden_lib import Family, f32, f64, plain

STEPS = (1, 5, 20)
OPTIMIZERS = [
    ("SGD", [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "weight_decay": 0.05},
             {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
             {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}, {"lr": 0.1, "maximize": True}]),
    ("Adam", [{}, {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-6}, {"lr": 0.01,
              "weight_decay": 0.1}, {"lr": 0.01, "amsgrad": True}, {"lr": 0.01,
              "maximize": True}]),
    ("AdamW", [{}, {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-6}, {"lr": 0.01,
               "weight_decay": 0.1}, {"lr": 0.01, "weight_decay": 0.0},
               {"lr": 0.01, "amsgrad": True}, {"lr": 0.01, "maximize": True}]),
    ("RMSprop", [{}, {"lr": 0.02, "momentum": 0.9, "alpha": 0.9}, {"lr": 0.02, "centered": True},
                 {"lr": 0.02, "weight_decay": 0.1, "eps": 1e-5}]),
    ("Adagrad", [{}, {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1},
                 {"lr": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-6}]),
    ("Adadelta", [{}, {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}]),
    ("Adamax", [{}, {"lr": 0.02, "weight_decay": 0.1}]),
    ("NAdam", [{}, {"lr": 0.02, "weight_decay": 0.1, "momentum_decay": 0.01},
               {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}]),
    ("RAdam", [{}, {"lr": 0.02, "weight_decay": 0.1}]),
]
OPTIMIZERS += [
    ("Adadelta", [{"lr": 0.5, "eps": 1e-4, "maximize": True}]),
    ("Adamax", [{"lr": 0.02, "betas": [0.7, 0.9], "eps": 1e-4}]),
    ("RAdam", [{"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True},
               {"lr": 0.05, "betas": [0.8, 0.9]}]),
    ("Adagrad", [{"lr": 0.1, "maximize": True}]),
    ("RMSprop", [{"lr": 0.02, "centered": True, "momentum": 0.8, "weight_decay": 0.05}]),
    ("Rprop", [{}, {"lr": 0.05, "etas": [0.4, 1.3], "step_sizes": [1e-3, 0.2]},
               {"lr": 0.02, "maximize": True}]),
    ("ASGD", [{}, {"lr": 0.1, "lambd": 0.01, "alpha": 0.6, "weight_decay": 0.05},
              {"lr": 0.1, "t0": 4.0}]),
    ("SparseAdam", [{}, {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-6},
                    {"lr": 0.01, "maximize": True}]),
    ("Adafactor", [{}, {"lr": 0.1, "weight_decay": 0.05}, {"lr": 0.05, "beta2_decay": -0.5,
                    "d": 1.5, "eps": [1e-6, 1e-2]}]),
    ("Muon", [{}, {"lr": 0.02, "momentum": 0.8, "nesterov": False},
              {"lr": 0.02, "weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw"}]),
    ("Lion", [{}, {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.01, "betas": [0.8, 0.9]}]),
    ("LAMB", [{}, {"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.02, "betas": [0.8, 0.9],
              "eps": 1e-3}]),
    ("LARS", [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.05, "trust_coefficient": 0.02},
              {"lr": 0.1, "momentum": 0.8, "nesterov": True, "trust_coefficient": 0.1}]),
]
OPTIMIZERS += [
    ("AdamW", [{"lr": 0.02, "amsgrad": True, "betas": [0.7, 0.9]}]),
    ("RMSprop", [{"lr": 0.01, "centered": True, "momentum": 0.5, "alpha": 0.8}]),
]
# The second parameter gets its first gradient at step 4.
LATE = [("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}), ("Adam", {"lr": 0.05}),
        ("AdamW", {"lr": 0.05}), ("NAdam", {"lr": 0.05}), ("RAdam", {"lr": 0.05}),
        ("ASGD", {"lr": 0.05, "t0": 2.0}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.1})]
# One group for each parameter.
GROUPED = [("SGD", {"lr": 0.1, "momentum": 0.9}, [{"lr": 0.02}, {"weight_decay": 0.1}]),
           ("AdamW", {"lr": 0.05}, [{"betas": [0.8, 0.9]}, {"lr": 0.01, "weight_decay": 0.0}]),
           ("Adam", {"lr": 0.05, "weight_decay": 0.1}, [{"amsgrad": True}, {"eps": 1e-3}]),
           ("RMSprop", {"lr": 0.02}, [{"momentum": 0.8}, {"centered": True, "alpha": 0.8}])]


class Own(torch.optim.Optimizer):
    """Optimizers that PyTorch does not have, straight from their papers."""

    def __init__(self, params, **defaults):
        super().__init__(params, {**self.options, **defaults})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                s["t"] = s.get("t", 0) + 1
                self.update(p, p.grad, s, g)


class Lion(Own):
    options = dict(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0)

    def update(self, p, g, s, o):
        m = s.setdefault("m", torch.zeros_like(p))
        b1, b2 = o["betas"]
        sign = (b1 * m + (1 - b1) * g).sign()
        p.copy_(p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * sign)
        m.copy_(b2 * m + (1 - b2) * g)


class LAMB(Own):
    options = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)

    def update(self, p, g, s, o):
        m, v = (s.setdefault(k, torch.zeros_like(p)) for k in "mv")
        b1, b2 = o["betas"]
        m.copy_(b1 * m + (1 - b1) * g)
        v.copy_(b2 * v + (1 - b2) * g * g)
        mh, vh = m / (1 - b1 ** s["t"]), v / (1 - b2 ** s["t"])
        r = mh / (vh.sqrt() + o["eps"]) + o["weight_decay"] * p
        ratio = float(p.norm() / r.norm()) if p.norm() > 0 and r.norm() > 0 else 1.0
        p.sub_(o["lr"] * ratio * r)


class LARS(Own):
    options = dict(lr=1e-3, momentum=0.9, weight_decay=0.0, trust_coefficient=1e-3, eps=1e-8,
                   nesterov=False)

    def update(self, p, g, s, o):
        pn, gn = float(p.norm()), float(g.norm())
        trust = 1.0
        if pn > 0 and gn > 0:
            trust = o["trust_coefficient"] * pn / (gn + o["weight_decay"] * pn + o["eps"])
        d = (g + o["weight_decay"] * p) * trust
        buf = s["buf"] = d.clone() if s["t"] == 1 else s["buf"] * o["momentum"] + d
        p.sub_(o["lr"] * (d + o["momentum"] * buf if o["nesterov"] else buf))


def make_optimizer(op, params, o):
    if op in ("Lion", "LAMB", "LARS"):
        return globals()[op](params, **o)
    if op in ("SparseAdam", "Muon"):
        return getattr(torch.optim, op)(params, **o)
    return getattr(torch.optim, op)(params, foreach=False, **o)


SCHEDULES = [
    ("StepLR", {"step_size": 4, "gamma": 0.5}), ("MultiStepLR", {"milestones": [3, 8],
     "gamma": 0.1}), ("ExponentialLR", {"gamma": 0.9}), ("CosineAnnealingLR", {"T_max": 10,
     "eta_min": 0.01}), ("LinearLR", {"start_factor": 0.25, "total_iters": 6}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}), ("PolynomialLR", {"total_iters": 10,
     "power": 2.0}), ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2}),
    ("CosineAnnealingWarmRestarts", {"T_0": 5, "eta_min": 0.02}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 4, "steps_per_epoch": 6, "pct_start": 0.4,
                    "anneal_strategy": "linear", "three_phase": True, "max_momentum": 0.9}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "step_size_down": 5,
                  "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4, "mode": "exp_range",
                  "gamma": 0.95, "cycle_momentum": False}),
    ("LambdaLR", {"power": 0.8}), ("MultiplicativeLR", {"power": 0.8}),
    ("ReduceLROnPlateau", {"factor": 0.5, "patience": 2, "cooldown": 1, "min_lr": 0.03}),
    ("ReduceLROnPlateau", {"mode": "max", "factor": 0.3, "patience": 1,
                           "threshold_mode": "abs", "threshold": 0.05}),
    ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 8}),
    ("SWALR", {"swa_lr": 0.4, "anneal_epochs": 5, "anneal_strategy": "linear"}),
    ("SequentialLR", {"parts": [["LinearLR", {"start_factor": 0.1, "total_iters": 5}],
                                ["CosineAnnealingLR", {"T_max": 10}],
                                ["ExponentialLR", {"gamma": 0.8}]], "milestones": [5, 12]}),
    ("SequentialLR", {"parts": [["ConstantLR", {"factor": 0.3, "total_iters": 3}],
                                ["StepLR", {"step_size": 3, "gamma": 0.5}]], "milestones": [4]}),
    ("ChainedScheduler", {"parts": [["ConstantLR", {"factor": 0.1, "total_iters": 4}],
                                    ["ExponentialLR", {"gamma": 0.9}]]}),
    ("WarmupLR", {"warmup_steps": 6, "start_factor": 0.05, "parts": [["PolynomialLR",
                  {"total_iters": 12, "power": 1.0}]]}),
    ("NoamLR", {"model_size": 64, "warmup_steps": 7, "factor": 0.5}),
]


def problem(f, dt):
    """Two parameters and the gradients of 20 steps, one of them with zeros in it."""
    r = f.rng("problem")
    shapes = [(3, 4), (5,)]
    params = [r.normal(*s, dtype=dt) for s in shapes]
    grads = [r.normal(max(STEPS), *s, dtype=dt, scale=0.5) for s in shapes]
    grads[1][:, 0] = 0
    return params, grads


def run_steps(f, op, o, dt, late=0, groups=None):
    params, grads = problem(f, dt)
    if op == "Muon":  # matrices only
        params, grads = [params[0], params[0].T.contiguous()], [grads[0], grads[0].mT.contiguous()]
    ps = [p.double().clone().requires_grad_() for p in params]
    own = [dict(g, params=[p]) for g, p in zip(groups, ps)] if groups else ps
    opt = make_optimizer(op, own, o)
    after = {}
    for step in range(1, max(STEPS) + 1):
        for k, (p, g) in enumerate(zip(ps, grads)):
            if k == 1 and step <= late:
                continue
            g = g[step - 1].double().clone()
            p.grad = g.to_sparse() if op == "SparseAdam" else g
        opt.step()
        if step in STEPS:
            after[str(step)] = [f.put(p.detach().to(dt)) for p in ps]
    extra = {"groups": plain(groups)} if groups else {}
    loose = op == "Muon"  # its products are in bfloat16
    f.cases.append({
        "name": f.unique(op + ("_f64" if dt == f64 else "")), "op": op, "late": late,
        "attrs": plain(o), "params": [f.put(p) for p in params],
        "step_grads": [f.put(g) for g in grads], "after": after, **extra,
        "rtol": 1e-2 if loose else 1e-5 if dt == f32 else 1e-11,
        "atol": 2e-2 if loose else 2e-6 if dt == f32 else 1e-13})


def optimizers(f):
    for op, options in OPTIMIZERS:
        for o in options:
            for dt in (f32, f64):
                run_steps(f, op, o, dt)
    for op, o in LATE:
        run_steps(f, op, o, f64, late=3)
    for op, o, groups in GROUPED:
        run_steps(f, op, o, f64, groups=groups)


def lbfgs(f):
    """Rosenbrock's function of several variables; x after each of five steps."""
    for o in ({"lr": 0.001, "max_iter": 4}, {"lr": 1.0, "line_search_fn": "strong_wolfe",
              "max_iter": 6}, {"lr": 0.8, "line_search_fn": "strong_wolfe", "history_size": 3,
              "max_iter": 10}):
        start = f.rng("lbfgs").normal(5, dtype=f64, scale=0.5)
        x = start.clone().requires_grad_()
        opt = torch.optim.LBFGS([x], **o)

        def closure():
            opt.zero_grad()
            y = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            y.backward()
            return y
        steps = []
        for _ in range(5):
            opt.step(closure)
            steps.append(x.detach().clone())
        f.cases.append({"name": f.unique("LBFGS"), "op": "LBFGS", "attrs": plain(o),
                        "params": [f.put(start)], "outputs": [f.put(torch.stack(steps))],
                        "rtol": 1e-6, "atol": 1e-8})


def make_schedule(op, o, opt):
    own = dict(o)
    room = torch.optim.lr_scheduler
    parts = [make_schedule(k, v, opt) for k, v in own.pop("parts", [])]
    if op == "WarmupLR":
        n = o["warmup_steps"]
        first = room.LinearLR(opt, start_factor=o["start_factor"], total_iters=n)
        return room.SequentialLR(opt, [first] + parts, [n])
    if op == "NoamLR":
        opt.param_groups[0]["lr"] = 1.0
        size, warm, factor = o["model_size"], o["warmup_steps"], o["factor"]
        return room.LambdaLR(opt, lambda t: factor * size ** -0.5 * min(
            (t + 1) ** -0.5, (t + 1) * warm ** -1.5))
    if op in ("LambdaLR", "MultiplicativeLR"):
        return getattr(room, op)(opt, lambda t: o["power"] ** (t % 3))
    if op == "SWALR":
        return torch.optim.swa_utils.SWALR(opt, **own)
    if op == "ChainedScheduler":
        return room.ChainedScheduler(parts)
    if op == "SequentialLR":
        return room.SequentialLR(opt, parts, own["milestones"])
    return getattr(room, op)(opt, **own)


def schedules(f):
    metrics = f.rng("metrics").uniform(0.0, 1.0, 21, dtype=f64)
    for op, o in SCHEDULES:
        p = torch.zeros(1, requires_grad=True)
        opt = torch.optim.SGD([p], lr=0.2, momentum=0.7)
        s = make_schedule(op, o, opt)
        lrs, momenta = [], []
        for k in range(21):
            lrs.append(opt.param_groups[0]["lr"])
            momenta.append(opt.param_groups[0]["momentum"])
            opt.step()
            if k < 20:
                s.step(metrics[k].item()) if op == "ReduceLROnPlateau" else s.step()
        f.cases.append({"name": f.unique(op), "op": op, "attrs": plain(o), "base_lr": 0.2,
                        "lr": f.put(torch.tensor(lrs, dtype=f64)), "metrics": f.put(metrics),
                        "momentum": f.put(torch.tensor(momenta, dtype=f64)),
                        "rtol": 1e-12, "atol": 1e-15})


def averaging(f):
    """Weights of an averaged model after 1, 2 and 6 updates."""
    r = f.rng("averaging")
    for decay in (None, 0.9, 0.0):
        net = torch.nn.Linear(3, 2).double()
        values = r.normal(6, 2, 3, dtype=f64)
        fn = torch.optim.swa_utils.get_ema_multi_avg_fn(decay) if decay is not None else None
        avg = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=fn)
        after = []
        for v in values:
            with torch.no_grad():
                net.weight.copy_(v)
            avg.update_parameters(net)
            after.append(avg.module.weight.detach().clone())
        f.cases.append({"name": f.unique("AveragedModel"), "op": "AveragedModel",
                        "attrs": {} if decay is None else {"decay": decay},
                        "inputs": [f.put(values)], "outputs": [f.put(torch.stack(after))],
                        "rtol": 1e-12, "atol": 1e-14})


def clipping(f):
    for max_norm, p in ((1.0, 2.0), (100.0, 2.0), (0.5, 1.0), (0.5, float("inf"))):
        _, grads = problem(f, f32)
        ps = [torch.zeros_like(g[0]).requires_grad_() for g in grads]
        for q, g in zip(ps, grads):
            q.grad = g[0].clone()
        total = torch.nn.utils.clip_grad_norm_(ps, max_norm, norm_type=p)
        f.cases.append({"name": f.unique("clip_grad_norm_"), "op": "clip_grad_norm_",
                        "attrs": plain({"max_norm": max_norm, "norm_type": p}),
                        "inputs": [f.put(g[0]) for g in grads],
                        "outputs": [f.put(total), *(f.put(q.grad) for q in ps)],
                        "rtol": 1e-5, "atol": 1e-6})


def make():
    f = Family("optim")
    optimizers(f)
    lbfgs(f)
    schedules(f)
    averaging(f)
    clipping(f)
    f.save()
