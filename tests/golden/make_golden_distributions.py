# SPDX-License-Identifier: Apache-2.0
"""Golden cases of probability distributions. Called by make_golden.py.

`op` is the distribution's name, a dot and the function. The first input of log_prob, cdf and icdf
is the value; the others are the parameters in the constructor's order. `logits`: the last one is
logits. `kl`: the parameters of p, then those of q.
"""
import torch
import torch.distributions as D

from golden_lib import Family, f64

LOOSE = {"rtol": 1e-8, "atol": 1e-10}  # PyTorch's trigamma is right to 3e-10


def covariance(x):
    return 0.2 * x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def make():
    f = Family("distributions")
    r = f.rng("x")
    real = lambda *s: r.normal(*s, dtype=f64)
    pos = lambda *s: r.uniform(0.3, 3, *s, dtype=f64)
    unit = lambda *s: r.uniform(0.1, 0.9, *s, dtype=f64)
    table = {  # parameters, values, has cdf, has entropy
        "Normal": ([real, pos], real, True), "LogNormal": ([real, pos], pos, True),
        "Uniform": ([lambda *s: real(*s) - 3, lambda *s: real(*s) + 3], real, True),
        "Exponential": ([pos], pos, True), "Laplace": ([real, pos], real, True),
        "Gumbel": ([real, pos], real, True), "Cauchy": ([real, pos], real, True),
        "Gamma": ([pos, pos], pos, False), "Beta": ([pos, pos], unit, False),
        "StudentT": ([lambda *s: pos(*s) + 2, real, pos], real, False),
        "Bernoulli": ([unit], lambda *s: r.ints(0, 2, *s).double(), False),
        "Geometric": ([unit], lambda *s: r.ints(0, 5, *s).double(), False),
        "Poisson": ([pos], lambda *s: r.ints(0, 6, *s).double(), False),
    }
    for name, (params, value, has_cdf) in table.items():
        cls = getattr(D, name)
        p = [make_one(2, 3) for make_one in params]
        call = lambda what, cls=cls: lambda v, *p: getattr(cls(*p), what)(v)
        get = lambda what, cls=cls: lambda *p: getattr(cls(*p), what)
        fixed = {"no_grad_inputs": (0,)} if name in ("Bernoulli", "Geometric", "Poisson") else {}
        f.add(name + ".log_prob", [value(4, 2, 3)] + p, fn=call("log_prob"), **fixed, **LOOSE)
        if has_cdf:
            f.add(name + ".cdf", [value(2, 3)] + p, fn=call("cdf"), **LOOSE)
            f.add(name + ".icdf", [unit(2, 3)] + p, fn=call("icdf"), rtol=1e-8, atol=1e-9)
        f.add(name + ".mean", p, fn=get("mean"), grad=name != "Cauchy", **LOOSE)
        f.add(name + ".variance", p, fn=get("variance"), grad=name != "Cauchy", **LOOSE)
        if name != "Poisson":
            f.add(name + ".entropy", p, fn=lambda *p, cls=cls: cls(*p).entropy(), **LOOSE)
        if name not in ("Gumbel", "Cauchy", "StudentT", "LogNormal"):
            q = [make_one(2, 3) for make_one in params]
            k = len(p)
            f.add(name + ".kl", p + q, **LOOSE,
                  fn=lambda *a, cls=cls, k=k: D.kl_divergence(cls(*a[:k]), cls(*a[k:])))
    logits = real(3, 4)
    for name in ("Bernoulli", "Geometric", "Categorical"):
        cls = getattr(D, name)
        v = r.ints(0, 2, *(3,) if name == "Categorical" else (3, 4))
        v = v if name == "Categorical" else v.double()
        f.add(name + ".log_prob", [v, logits], {"logits": True}, no_grad_inputs=(0,),
              fn=lambda v, p, logits, cls=cls: cls(logits=p).log_prob(v), **LOOSE)
        f.add(name + ".entropy", [logits], {"logits": True}, **LOOSE,
              fn=lambda p, logits, cls=cls: cls(logits=p).entropy())
    probs = pos(3, 4)
    f.add("Categorical.log_prob", [r.ints(0, 4, 5, 3), probs],
          fn=lambda v, p: D.Categorical(p).log_prob(v), **LOOSE)
    f.add("Categorical.entropy", [probs], fn=lambda p: D.Categorical(p).entropy(), **LOOSE)
    f.add("Categorical.kl", [probs, pos(3, 4)], **LOOSE,
          fn=lambda p, q: D.kl_divergence(D.Categorical(p), D.Categorical(q)))
    f.add("Dirichlet.log_prob", [torch.softmax(real(3, 4), -1), probs],
          fn=lambda v, p: D.Dirichlet(p).log_prob(v / v.sum(-1, True)), no_grad_inputs=(0,), **LOOSE)
    for what in ("mean", "variance"):
        f.add("Dirichlet." + what, [probs], fn=lambda p, what=what: getattr(D.Dirichlet(p), what),
              **LOOSE)
    f.add("Dirichlet.entropy", [probs], fn=lambda p: D.Dirichlet(p).entropy(), **LOOSE)
    f.add("Dirichlet.kl", [probs, pos(3, 4)], **LOOSE,
          fn=lambda p, q: D.kl_divergence(D.Dirichlet(p), D.Dirichlet(q)))
    count = torch.tensor([[2.0, 0, 1, 3]], dtype=f64).expand(3, 4).contiguous()
    f.add("Multinomial.log_prob", [count, probs], no_grad_inputs=(0,), **LOOSE,
          fn=lambda v, p: D.Multinomial(6, p).log_prob(v))
    f.add("Multinomial.variance", [probs], fn=lambda p: D.Multinomial(6, p).variance, **LOOSE)
    n = torch.tensor([6.0, 9, 4, 5], dtype=f64)
    f.add("Binomial.log_prob", [count, n, unit(3, 4)], no_grad_inputs=(0, 1), **LOOSE,
          fn=lambda v, n, p: D.Binomial(n, p).log_prob(v))
    f.add("Binomial.kl", [n, unit(3, 4), n, unit(3, 4)], no_grad_inputs=(0, 2), **LOOSE,
          fn=lambda n, p, m, q: D.kl_divergence(D.Binomial(n, p), D.Binomial(m, q)))
    loc, cov = real(2, 3), covariance(real(2, 3, 3))
    mvn = lambda l, c: D.MultivariateNormal(l, covariance_matrix=c)
    f.add("MultivariateNormal.log_prob", [real(5, 2, 3), loc, cov],
          fn=lambda v, l, c: mvn(l, c).log_prob(v), **LOOSE)
    f.add("MultivariateNormal.entropy", [loc, cov], fn=lambda l, c: mvn(l, c).entropy(), **LOOSE)
    f.add("MultivariateNormal.variance", [loc, cov], fn=lambda l, c: mvn(l, c).variance, **LOOSE)
    f.add("MultivariateNormal.kl", [loc, cov, real(2, 3), covariance(real(2, 3, 3))], **LOOSE,
          fn=lambda l, c, m, d: D.kl_divergence(mvn(l, c), mvn(m, d)))
    # The derivative of a gamma variable at a fixed quantile.
    a = torch.tensor([0.05, 0.3, 1.0, 2.5, 7.0, 30.0, 400.0], dtype=f64)
    z = torch.stack([a * s for s in (0.02, 0.5, 0.97, 1.1, 3.0)])
    f.add("sample_gamma_backward", [a.expand(5, 7).contiguous(), z], grad=False, rtol=2e-3,
          atol=1e-6, fn=lambda a, z: torch._standard_gamma_grad(a, z))
    f.add("Binomial.entropy", [torch.tensor(6.0, dtype=f64), unit(3, 4)], no_grad_inputs=(0,),
          fn=lambda n, p: D.Binomial(6, p).entropy(), **LOOSE)
    f.save()
