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
SCHEDULES = [
    ("StepLR", {"step_size": 4, "gamma": 0.5}), ("MultiStepLR", {"milestones": [3, 8],
     "gamma": 0.1}), ("ExponentialLR", {"gamma": 0.9}), ("CosineAnnealingLR", {"T_max": 10,
     "eta_min": 0.01}), ("LinearLR", {"start_factor": 0.25, "total_iters": 6}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}), ("PolynomialLR", {"total_iters": 10,
     "power": 2.0}), ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20}),
]


def problem(f, dt):
    """Two parameters and the gradients of 20 steps, one of them with zeros in it."""
    r = f.rng("problem")
    shapes = [(3, 4), (5,)]
    params = [r.normal(*s, dtype=dt) for s in shapes]
    grads = [r.normal(max(STEPS), *s, dtype=dt, scale=0.5) for s in shapes]
    grads[1][:, 0] = 0
    return params, grads


def optimizers(f):
    for op, options in OPTIMIZERS:
        for o in options:
            for dt in (f32, f64):
                params, grads = problem(f, dt)
                ps = [p.double().clone().requires_grad_() for p in params]
                opt = getattr(torch.optim, op)(ps, foreach=False, **o)
                after = {}
                for step in range(1, max(STEPS) + 1):
                    for p, g in zip(ps, grads):
                        p.grad = g[step - 1].double().clone()
                    opt.step()
                    if step in STEPS:
                        after[str(step)] = [f.put(p.detach().to(dt)) for p in ps]
                f.cases.append({
                    "name": f.unique(op + ("_f64" if dt == f64 else "")), "op": op,
                    "attrs": plain(o), "params": [f.put(p) for p in params],
                    "step_grads": [f.put(g) for g in grads], "after": after,
                    "rtol": 1e-5 if dt == f32 else 1e-11, "atol": 2e-6 if dt == f32 else 1e-13})


def schedules(f):
    for op, o in SCHEDULES:
        p = torch.zeros(1, requires_grad=True)
        opt = torch.optim.SGD([p], lr=0.2)
        s = getattr(torch.optim.lr_scheduler, op)(opt, **o)
        lrs = []
        for _ in range(15):
            lrs.append(opt.param_groups[0]["lr"])
            opt.step()
            s.step()
        f.cases.append({"name": op, "op": op, "attrs": plain(o), "base_lr": 0.2,
                        "lr": f.put(torch.tensor(lrs, dtype=f64)), "rtol": 1e-12, "atol": 1e-15})


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
    schedules(f)
    clipping(f)
    f.save()
