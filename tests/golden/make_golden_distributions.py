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


def families(f):
    """Distributions of families.h: values, moments and divergences by the constructor's arguments."""
    r = f.rng("families")
    real = lambda *s: r.normal(*s, dtype=f64)
    pos = lambda *s: r.uniform(0.3, 3, *s, dtype=f64)
    unit = lambda *s: r.uniform(0.1, 0.9, *s, dtype=f64)
    above = lambda low: lambda *s: r.uniform(low + 0.2, low + 3, *s, dtype=f64)
    whole = lambda *s: r.ints(0, 6, *s).double()
    small = lambda *s: r.uniform(-0.6, 0.4, *s, dtype=f64)
    table = {  # parameters, values, has cdf, has entropy
        "HalfNormal": ([pos], pos, True, True), "HalfCauchy": ([pos], pos, True, True),
        "Chi2": ([pos], pos, False, True), "FisherSnedecor": ([pos, above(4)], pos, False, False),
        "InverseGamma": ([above(2), pos], pos, False, True), "Pareto": ([unit, above(2)], above(1), True, True),
        "GeneralizedPareto": ([real, pos, small], lambda *s: r.uniform(2.5, 2.9, *s, dtype=f64), True, True),
        "Weibull": ([pos, pos], pos, True, True), "Kumaraswamy": ([pos, pos], unit, True, True),
        "ContinuousBernoulli": ([unit], unit, True, True), "NegativeBinomial": ([pos, unit], whole, False, False),
        "VonMises": ([real, pos], real, False, False),
    }
    for name, (params, value, has_cdf, has_entropy) in table.items():
        cls = getattr(D, name)
        p = [make_one(3) for make_one in params]
        if name == "GeneralizedPareto":  # PyTorch's takes float32 only
            p = [v.float() for v in (p[0].clamp(-1, 1), p[1] + 2, p[2])]
            narrow = {"wide": False, "rtol": 1e-4, "atol": 1e-5}
            v = value(2, 3).float()
            f.add(name + ".log_prob", [v] + p, fn=lambda v, *p: D.GeneralizedPareto(*p).log_prob(v), **narrow)
            f.add(name + ".cdf", [v] + p, fn=lambda v, *p: D.GeneralizedPareto(*p).cdf(v), **narrow)
            f.add(name + ".icdf", [unit(3).float()] + p, fn=lambda v, *p: D.GeneralizedPareto(*p).icdf(v), **narrow)
            for what in ("mean", "variance"):
                f.add(f"{name}.{what}", p, fn=lambda *p, what=what: getattr(D.GeneralizedPareto(*p), what), grad=False, **narrow)
            f.add(name + ".entropy", p, fn=lambda *p: D.GeneralizedPareto(*p).entropy(), **narrow)
            continue
        tight = {"rtol": 1e-6, "atol": 1e-6} if name == "VonMises" else LOOSE
        f.add(name + ".log_prob", [value(2, 3)] + p, fn=lambda v, *p, cls=cls: cls(*p).log_prob(v),
              no_grad_inputs=(0,) if name == "NegativeBinomial" else (), **tight)
        if has_cdf:
            f.add(name + ".cdf", [value(3)] + p, fn=lambda v, *p, cls=cls: cls(*p).cdf(v), **LOOSE)
            f.add(name + ".icdf", [unit(3)] + p, fn=lambda v, *p, cls=cls: cls(*p).icdf(v), **LOOSE)
        for what in ("mean", "variance"):
            f.add(f"{name}.{what}", p, fn=lambda *p, cls=cls, what=what: getattr(cls(*p), what), grad=False, **tight)
        if has_entropy:
            f.add(name + ".entropy", p, fn=lambda *p, cls=cls: cls(*p).entropy(), **LOOSE)
    f.add("NegativeBinomial.log_prob", [whole(3), pos(3), real(3)], {"logits": True}, no_grad_inputs=(0,), **LOOSE,
          fn=lambda v, n, p, logits: D.NegativeBinomial(n, logits=p).log_prob(v))
    f.add("ContinuousBernoulli.log_prob", [unit(4), torch.tensor([.5, .4995, .01, .999], dtype=f64)], **LOOSE,
          fn=lambda v, p: D.ContinuousBernoulli(p).log_prob(v))
    for name, make_one in (("HalfNormal", (pos,)), ("Pareto", (unit, pos))):
        p, q = [m(3) for m in make_one], [m(3) for m in make_one]
        k, cls = len(p), getattr(D, name)
        f.add(name + ".kl", p + q, fn=lambda *a, cls=cls, k=k: D.kl_divergence(cls(*a[:k]), cls(*a[k:])), grad=False, **LOOSE)
    probs, one = pos(3, 4), torch.eye(4, dtype=f64)[torch.tensor([1, 3, 0])]
    f.add("OneHotCategorical.log_prob", [one, probs], no_grad_inputs=(0,), fn=lambda v, p: D.OneHotCategorical(p).log_prob(v), **LOOSE)
    for what in ("mean", "variance"):
        f.add("OneHotCategorical." + what, [probs], fn=lambda p, what=what: getattr(D.OneHotCategorical(p), what), **LOOSE)
    f.add("OneHotCategorical.entropy", [probs], fn=lambda p: D.OneHotCategorical(p).entropy(), **LOOSE)
    f.add("OneHotCategorical.kl", [probs, pos(3, 4)], **LOOSE,
          fn=lambda p, q: D.kl_divergence(D.OneHotCategorical(p), D.OneHotCategorical(q)))
    heat = torch.tensor(0.7, dtype=f64)
    f.add("RelaxedBernoulli.log_prob", [unit(3), heat, unit(3)], fn=lambda v, t, p: D.RelaxedBernoulli(t, p).log_prob(v), **LOOSE)
    simplex = torch.softmax(real(3, 4), -1)
    f.add("RelaxedOneHotCategorical.log_prob", [simplex, heat, probs], **LOOSE,
          fn=lambda v, t, p: D.RelaxedOneHotCategorical(t, p).log_prob(v))
    f.add("LogisticNormal.log_prob", [simplex, real(3, 3), pos(3, 3)], no_grad_inputs=(0,), **LOOSE,
          fn=lambda v, l, s: D.LogisticNormal(l, s).log_prob(v))
    low = [real(2, 4), real(2, 4, 2), pos(2, 4)]
    f.add("LowRankMultivariateNormal.log_prob", [real(3, 2, 4)] + low, fn=lambda v, *p: D.LowRankMultivariateNormal(*p).log_prob(v), **LOOSE)
    f.add("LowRankMultivariateNormal.variance", low, fn=lambda *p: D.LowRankMultivariateNormal(*p).variance, **LOOSE)
    f.add("LowRankMultivariateNormal.entropy", low, fn=lambda *p: D.LowRankMultivariateNormal(*p).entropy(), grad=False, **LOOSE)
    df, cov = above(3)(2), covariance(real(2, 3, 3))
    wishart = lambda d, c: D.Wishart(d, covariance_matrix=c)
    f.add("Wishart.log_prob", [covariance(real(2, 3, 3)), df, cov], no_grad_inputs=(0,), **LOOSE, fn=lambda v, d, c: wishart(d, c).log_prob(v))
    f.add("Wishart.entropy", [df, cov], fn=lambda d, c: wishart(d, c).entropy(), grad=False, **LOOSE)
    for what in ("mean", "variance"):
        f.add("Wishart." + what, [df, cov], fn=lambda d, c, what=what: getattr(wishart(d, c), what), **LOOSE)
    factor = torch.linalg.cholesky(torch.tensor([[1, .3, -.2], [.3, 1, .5], [-.2, .5, 1]], dtype=f64)).expand(2, 3, 3).contiguous()
    f.add("LKJCholesky.log_prob", [factor, pos(2)], no_grad_inputs=(0,), **LOOSE, fn=lambda v, c: D.LKJCholesky(3, c).log_prob(v))
    mixture = lambda w, l, s: D.MixtureSameFamily(D.Categorical(w), D.Normal(l, s))
    parts = [pos(2, 3), real(2, 3), pos(2, 3)]
    f.add("MixtureSameFamily.log_prob", [real(4, 2)] + parts, fn=lambda v, *p: mixture(*p).log_prob(v), **LOOSE)
    f.add("MixtureSameFamily.cdf", [real(4, 2)] + parts, fn=lambda v, *p: mixture(*p).cdf(v), **LOOSE)
    for what in ("mean", "variance"):
        f.add("MixtureSameFamily." + what, parts, fn=lambda *p, what=what: getattr(mixture(*p), what), **LOOSE)
    flow = lambda l, s: D.TransformedDistribution(D.Normal(l, s), [D.AffineTransform(0.5, -2.0), D.ExpTransform()])
    f.add("TransformedDistribution.log_prob", [pos(2, 3), real(3), pos(3)], fn=lambda v, *p: flow(*p).log_prob(v), **LOOSE)
    f.add("TransformedDistribution.cdf", [pos(3), real(3), pos(3)], fn=lambda v, *p: flow(*p).cdf(v), **LOOSE)
    f.add("TransformedDistribution.icdf", [unit(3), real(3), pos(3)], fn=lambda v, *p: flow(*p).icdf(v), **LOOSE)


def transforms(f):
    """y, the inverse of y, and the log-determinant, by name (`transform.NAME`)."""
    r = f.rng("transforms")
    real = lambda *s: r.normal(*s, dtype=f64)
    T = D.transforms
    table = {
        "Exp": (T.ExpTransform(), real(2, 3)), "Power": (T.PowerTransform(torch.tensor(2.5, dtype=f64)), real(2, 3).abs() + 0.1),
        "Sigmoid": (T.SigmoidTransform(), real(2, 3)), "Softplus": (T.SoftplusTransform(), real(2, 3)),
        "Tanh": (T.TanhTransform(), real(2, 3)), "Affine": (T.AffineTransform(0.5, -2.0, event_dim=1), real(2, 3)),
        "StickBreaking": (T.StickBreakingTransform(), real(2, 3)), "CorrCholesky": (T.CorrCholeskyTransform(), real(2, 6)),
        "Reshape": (T.ReshapeTransform((2, 3), (6,)), real(4, 2, 3)),
        "CumulativeDistribution": (T.CumulativeDistributionTransform(D.Normal(0.5, 2.0)), real(2, 3)),
        "Independent": (T.IndependentTransform(T.ExpTransform(), 1), real(2, 3)),
        "Compose": (T.ComposeTransform([T.ExpTransform(), T.AffineTransform(1.0, 3.0)]), real(2, 3)),
        "Cat": (T.CatTransform([T.ExpTransform(), T.TanhTransform()], 1, [2, 1]), real(2, 3)),
        "Stack": (T.StackTransform([T.ExpTransform(), T.TanhTransform()], 0), real(2, 3)),
        "biject_to_interval": (D.biject_to(D.constraints.interval(-1.0, 3.0)), real(2, 3)),
        "biject_to_greater_than": (D.biject_to(D.constraints.greater_than(2.0)), real(2, 3)),
        "biject_to_simplex": (D.biject_to(D.constraints.simplex), real(2, 3)),
    }
    for name, (t, x) in table.items():
        f.add("transform." + name, [x], fn=lambda x, t=t: [t(x), t.inv(t(x)), t.log_abs_det_jacobian(x, t(x))], grad=False,
              rtol=1e-7, atol=1e-9)
    for name, t, x in (("Softmax", T.SoftmaxTransform(), real(2, 3)), ("LowerCholesky", T.LowerCholeskyTransform(), real(2, 3, 3)),
                       ("PositiveDefinite", T.PositiveDefiniteTransform(), real(2, 3, 3)), ("Abs", T.AbsTransform(), real(2, 3))):
        f.add("transform." + name, [x], fn=lambda x, t=t: [t(x), t.inv(t(x))], grad=False, **LOOSE)


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
    families(f)
    transforms(f)
    f.save()
