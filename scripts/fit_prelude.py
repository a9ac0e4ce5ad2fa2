#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the polynomials of tandem/base/math_prelude.h (needs mpmath; runs for a minute).

Each is a minimax fit by Remez' exchange on a grid, with the leading coefficients rounded one after
the other, so that the later ones make up for the rounding. The exchange is nearly degenerate then:
with other working digits the last coefficients come out different and equally good. Whether the
functions built on them are good is what bench/prelude_check measures.
"""
import mpmath as m
from mpmath import mp, mpf

mp.dps = 50


def rounded(x, bits):
    """x to the nearest number with `bits` significant bits."""
    if x == 0:
        return mpf(0)
    scale = mpf(2) ** (bits - 1 - m.floor(m.log(abs(x), 2)))
    return m.nint(x * scale) / scale


def horner(c, t):
    p = mpf(0)
    for a in reversed(c):
        p = p * t + a
    return p


def extrema(err):
    """Index of the largest |err| in each run of one sign."""
    out, i = [], 0
    while i < len(err):
        sign, best = err[i] > 0, i
        while i < len(err) and (err[i] > 0) == sign:
            if abs(err[i]) > abs(err[best]):
                best = i
            i += 1
        out.append(best)
    return out


def thin(ext, err, want):
    """Drops extrema until `want` alternating ones are left."""
    while len(ext) > want:
        if len(ext) == want + 1:
            ext.pop(0 if abs(err[ext[0]]) < abs(err[ext[-1]]) else -1)
            continue
        k = min(range(len(ext) - 1), key=lambda k: max(abs(err[ext[k]]), abs(err[ext[k + 1]])))
        if k == 0:
            ext.pop(0)
        elif k == len(ext) - 2:
            ext.pop()
        else:
            del ext[k:k + 2]
    return ext


def remez(ts, gs, ws, degree):
    """Coefficients that make max |w (P - g)| least on the grid."""
    n, last = degree, len(ts) - 1
    idx = [int(m.nint(last * (1 - m.cos(m.pi * i / (n + 1))) / 2)) for i in range(n + 2)]
    for _ in range(30):
        a, b = m.matrix(n + 2, n + 2), m.matrix(n + 2, 1)
        for row, i in enumerate(idx):
            power = mpf(1)
            for col in range(n + 1):
                a[row, col] = power * ws[i]
                power *= ts[i]
            a[row, n + 1] = (-1) ** row
            b[row] = gs[i] * ws[i]
        x = m.lu_solve(a, b)
        c, level = [x[k] for k in range(n + 1)], abs(x[n + 1])
        err = [(horner(c, t) - g) * w for t, g, w in zip(ts, gs, ws)]
        ext = extrema(err)
        if len(ext) < n + 2:
            break  # rounding noise: as good as it gets
        ext = thin(ext, err, n + 2)
        if ext == idx or max(map(abs, err)) <= level * mpf('1.0005'):
            break
        idx = ext
    return c


def fit(name, g, w, lo, hi, degree, bits, steps):
    """Prints P with g ~ P on [lo, hi] under weight w, rounded to `bits`."""
    lo, hi = mpf(lo), mpf(hi)
    n = 24 * (degree + 2)
    ts = [(lo + hi) / 2 - (hi - lo) / 2 * m.cos(m.pi * (i + mpf(1) / 2) / n) for i in range(n)]
    ts[0], ts[-1] = lo or ts[0], hi or ts[-1]
    gs, ws = [g(t) for t in ts], [abs(w(t)) for t in ts]
    rest, rg, rw, out = remez(ts, gs, ws, degree), list(gs), list(ws), []
    for k in range(degree + 1):
        out.append(rounded(rest[0], bits))
        rest = rest[1:]
        rg = [(v - out[-1]) / t for v, t in zip(rg, ts)]
        rw = [abs(v * t) for v, t in zip(rw, ts)]
        if k < min(degree, steps):
            rest = remez(ts, rg, rw, degree - k - 1)
    worst = max(abs((horner(out, t) - v) * u) for t, v, u in zip(ts, gs, ws))
    print(f'{name}: degree {degree}, error 2^{float(m.log(worst, 2)):.1f}')
    for c in out:
        print('  ' + literal(c, bits))


def literal(c, bits):
    mantissa, exponent = float(c).hex().split('p')
    return f"{mantissa.rstrip('0').rstrip('.')}p{int(exponent)}" + ('f' if bits == 24 else '')


def erfinv_ratio(w):
    """erfinv(x) / x at w = -log(1 - x^2)."""
    w = max(w, mpf(10) ** -25)
    rest = m.exp(-w)
    x = m.sqrt(1 - rest)
    if w < mpf('0.5'):
        return m.erfinv(x) / x
    c, y = rest / (1 + x), m.sqrt(w) * mpf('0.9')
    if w > 35:
        y = m.sqrt(w) - m.log(m.pi * w) / (4 * m.sqrt(w))
    for _ in range(60):
        step = (m.erfc(y) - c) * m.exp(y * y) * -m.sqrt(m.pi) / 2
        step /= 1 + y * step
        y -= step
        if abs(step) < mpf(10) ** -45 * y:
            break
    return y / x


def even(f):
    """f as a function of the square of its argument."""
    return lambda z: f(m.sqrt(z))


def main():
    half_ln2 = m.log(2) / 2 * mpf('1.0002')
    f_lo, f_hi = m.sqrt(mpf(1) / 2) - 1, m.sqrt(2) - 1
    s2 = (f_hi / (m.sqrt(2) + 1)) ** 2 * mpf('1.0005')
    tiny, tiny8 = mpf(10) ** -12, mpf(10) ** -8
    root = m.findroot(m.digamma, mpf('1.4616'))

    def exp_q(r): return (m.exp(r) - 1 - r) / r ** 2
    def exp2_p(r): return (mpf(2) ** r - 1) / r
    def log_r(f): return (m.log1p(f) - f + f * f / 2) / f ** 3
    def sin_p(r): return (m.sin(r) / r - 1) / r ** 2
    def sin_w(r): return r ** 3 / m.sin(r)
    def cos_p(r): return (m.cos(r) - 1 + r * r / 2) / r ** 4
    def cos_w(r): return r ** 4 / m.cos(r)
    def atanh_r(s): return (m.log((1 + s) / (1 - s)) / s - 2) / s ** 2
    def pow_q(s): return (atanh_r(s) - mpf(2) / 3) / s ** 2
    def erf_p(x): return m.erf(x) / x - 1
    def erf_w(x): return x / m.erf(x)

    def erfcx(t):
        x = 3 * (1 + t) / (1 - t)
        return (1 + 2 * x) * m.exp(x * x) * m.erfc(x) - mpf(float.fromhex('0x1.40c522d7e4987p+0'))

    def lgamma_r(t):
        x = t + mpf(7) / 4
        x += mpf(10) ** -20 if x in (1, 2) else 0
        return m.loggamma(x) / ((x - 1) * (x - 2))

    def digamma_r(t):
        x = t + mpf(7) / 4
        return m.digamma(x) / (x - root)

    def bessel_rest(n):  # sqrt(x) exp(-x) I_n(x) in t = 16 / x - 1
        def f(t):
            x = 16 / (t + 1)
            return m.sqrt(x) * m.exp(-x) * m.besseli(n, x)
        return f

    def bessel_near(n):  # (2 / x)^n I_n(x) in z = x^2 / 4
        return lambda z: m.hyp0f1(n + 1, z)

    def erfinv_gap(u):  # s - erfinv(x), s^2 = -log(1 - x^2), u = (s - 12) / (s + 12)
        s = 12 * (1 + u) / (1 - u)
        return s - erfinv_ratio(s * s) * m.sqrt(1 - m.exp(-s * s))

    def inverse(f): return lambda t: 1 / f(t)
    def short_near(t): return erfinv_ratio(t + mpf('3.125'))
    def short_far(s): return erfinv_ratio((s + mpf('3.25')) ** 2)
    def short_tail(s): return erfinv_ratio((s + mpf('7.1')) ** 2)
    def sinpi(r): return (m.sin(m.pi * r) / r - m.pi) / r ** 2
    def sinpi_w(r): return r ** 3 / m.sin(m.pi * r)
    def bessel_w(n): return lambda z: 1 / m.hyp0f1(n + 1, z)

    def gap(x): return (x - 3) / (x + 3)

    def erfcx_whole(t):
        x = 3 * (1 + t) / (1 - t)
        z = 1 / (2 * x * x) if x else mpf(1)
        far = (1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z)))) / (x * m.sqrt(m.pi)) if x else mpf(1)
        return (1 + 2 * x) * (far if x > 200 else m.exp(x * x) * m.erfc(x))

    def near_from(t): return erfinv_ratio(max(t + mpf('0.75'), mpf(0)))
    quarter = [(m.pi / 4 * mpf(s)) ** 2 for s in ('1.001', '1.0001')]
    table = [  # name, function, weight, interval, degree, bits, roundings one by one
        ('expf', exp_q, lambda r: r * r / m.exp(r), -half_ln2, half_ln2, 4, 24, 4),
        ('expm1f', exp_q, lambda r: r * r / m.expm1(r), -half_ln2, half_ln2, 4, 24, 4),
        ('exp2f', exp2_p, lambda r: r, -0.5001, 0.5001, 5, 24, 5),
        ('logf', log_r, lambda f: f ** 3 / m.log1p(f), f_lo, f_hi, 7, 24, 1),
        ('log2f', lambda f: m.log1p(f) / m.log(2) / f - 1, lambda f: f / m.log1p(f), f_lo, f_hi, 9,
         24, 1),
        ('log10f', lambda f: m.log1p(f) / m.log(10) / f - mpf('0.5'),
         lambda f: f / m.log1p(f) * m.log(10), f_lo, f_hi, 9, 24, 1),
        ('sinf', even(sin_p), even(sin_w), tiny, quarter[0], 2, 24, 1),
        ('cosf', even(cos_p), even(cos_w), tiny8, quarter[0], 2, 24, 1),
        ('tanhf', even(lambda x: (m.tanh(x) / x - 1) / x ** 2), even(lambda x: x ** 3 / m.tanh(x)),
         tiny, mpf('0.625') ** 2, 4, 24, 1),
        ('erff small', even(erf_p), even(erf_w), tiny, mpf('0.93') ** 2, 6, 24, 1),
        ('erff large', lambda t: (-m.log(m.erfc(t)) - t) / t, lambda t: m.erfc(t) * t / m.erf(t),
         '0.92', '3.95', 5, 24, 1),
        ('exp', exp_q, lambda r: r * r / m.expm1(r), -half_ln2, half_ln2, 10, 53, 2),
        ('exp of powf', exp_q, lambda r: r * r / m.exp(r), -half_ln2, half_ln2, 6, 53, 1),
        ('exp2', exp2_p, lambda r: r, -0.5001, 0.5001, 10, 53, 2),
        ('log', even(atanh_r), lambda z: z / 2, mpf(10) ** -15, s2, 6, 53, 2),
        ('log of powf', even(atanh_r), lambda z: z / 2, mpf(10) ** -15, s2, 3, 53, 2),
        ('log of pow', even(pow_q), lambda z: z * z / 2, tiny, s2, 6, 53, 2),
        ('sin', even(sin_p), even(sin_w), tiny, quarter[1], 5, 53, 2),
        ('cos', even(cos_p), even(cos_w), tiny8, quarter[1], 5, 53, 2),
        ('sin of tanf', even(sin_p), even(sin_w), tiny, quarter[1], 3, 53, 2),
        ('cos of tanf', even(cos_p), even(cos_w), tiny8, quarter[1], 3, 53, 2),
        ('asin', even(lambda x: (m.asin(x) / x - 1) / x ** 2), lambda z: z, tiny, '0.2505', 12, 53,
         2),
        ('atan', even(lambda x: (m.atan(x) / x - 1) / x ** 2), lambda z: z, tiny,
         mpf('0.4375') ** 2 * mpf('1.001'), 10, 53, 2),
        ('erf', even(erf_p), even(erf_w), tiny, 1, 11, 53, 2),
        ('erfc', erfcx, lambda t: mpf(1), gap(mpf('0.375')), gap(mpf('27.3')), 22, 53, 2),
        ('lgamma', lgamma_r, lambda t: mpf(1), -0.75, 0.75, 24, 53, 2),
        ('digamma', digamma_r, lambda t: 1 / digamma_r(t), -0.75, 0.75, 26, 53, 2),
        ('erfinv', lambda t: erfinv_ratio(t + mpf('3.125')),
         lambda t: 1 / erfinv_ratio(t + mpf('3.125')), -3.125, 3.125, 24, 53, 0),
        ('erfinv, w > 6.25', lambda s: erfinv_ratio((s + mpf('3.25')) ** 2), lambda t: mpf(1),
         -0.75, 0.75, 20, 53, 0),
        ('erfinv, w > 16', lambda s: erfinv_ratio((s + mpf('5.05')) ** 2), lambda t: mpf(1),
         mpf('-1.05'), mpf('1.05'), 19, 53, 0),
        ('erfinv, w > 36', erfinv_gap, lambda u: (1 - u) / (12 * (1 + u)), mpf(-1) / 3, '0.39', 21,
         53, 0),
        ('i0, x < 8', bessel_near(0), lambda z: 1 / m.hyp0f1(1, z), mpf(10) ** -12, 16, 17, 53, 2),
        ('i1, x < 8', bessel_near(1), lambda z: 1 / m.hyp0f1(2, z), mpf(10) ** -12, 16, 17, 53, 2),
        ('i0, x > 8', bessel_rest(0), lambda t: mpf('2.5'), mpf('-0.9999999999'), 1, 22, 53, 0),
        ('i1, x > 8', bessel_rest(1), lambda t: mpf('2.5'), mpf('-0.9999999999'), 1, 22, 53, 0),
        ('ndtrif', short_near, inverse(short_near), -3.125, 3.125, 12, 53, 0),
        ('ndtrif, w > 6.25', short_far, inverse(short_far), -0.75, 0.75, 10, 53, 0),
        ('erfinvf', near_from, inverse(near_from), mpf('-0.75'), mpf('5.5'), 10, 53, 0),
        ('erfinvf, w > 6.25', short_far, inverse(short_far), -0.75, 0.83, 9, 53, 0),
        ('asinf', even(lambda x: (m.asin(x) / x - 1) / x ** 2), even(lambda x: x ** 3 / m.asin(x)),
         tiny, '0.25001', 6, 53, 0),
        ('sinhf', even(lambda x: (m.sinh(x) / x - 1) / x ** 2), even(lambda x: x ** 3 / m.sinh(x)),
         tiny, 1, 3, 53, 0),
        ('digammaf', digamma_r, inverse(digamma_r), -0.75, 0.75, 16, 53, 0),
        ('erfcxf', erfcx_whole, inverse(erfcx_whole), -1, mpf('0.99999999'), 13, 53, 0),
        ('ndtrif, w > 16', short_tail, inverse(short_tail), mpf('-3.1'), mpf('3.1'), 12, 53, 0),
        ('lgammaf', lgamma_r, inverse(lgamma_r), -0.75, 0.75, 13, 53, 0),
        ('sine of lgammaf', even(sinpi), even(sinpi_w), mpf(10) ** -10, '0.2501', 5, 53, 0),
        ('i0f, x < 8', bessel_near(0), bessel_w(0), mpf(10) ** -12, 16, 10, 53, 0),
        ('i1f, x < 8', bessel_near(1), bessel_w(1), mpf(10) ** -12, 16, 10, 53, 0),
        ('i0f, x > 8', bessel_rest(0), lambda t: mpf('2.5'), mpf('-0.9999999999'), 1, 7, 53, 0),
        ('i1f, x > 8', bessel_rest(1), lambda t: mpf('2.5'), mpf('-0.9999999999'), 1, 7, 53, 0),
    ]
    for row in table:
        fit(*row)


if __name__ == '__main__':
    main()
