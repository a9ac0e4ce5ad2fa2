#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chebyshev coefficients of the Bessel and Airy functions, for tandem/ops/special/coefficients_internal.h.

usage: fit_special.py > tandem/ops/special/coefficients_internal.h      (needs mpmath)
Each function is split as in Abramowitz and Stegun (9.2, 9.6, 9.7, 10.4): where it is entire, or up to a known
logarithm, a series in x^2 on the inner interval; outside, the amplitudes of its asymptotic form as series in 1/x.
Every series is evaluated by Clenshaw's recurrence in double precision; coefficients below 2e-17 are cut off.
"""
import mpmath as mp

mp.mp.dps = 40


def chebyshev(f, low, high, most=64):
    """Coefficients c with f(x) = c0/2 + sum c_k T_k(t), t = x scaled from low..high to -1..1."""
    nodes = [mp.cos(mp.pi * (j + mp.mpf(1) / 2) / most) for j in range(most)]
    values = [f((high - low) / 2 * t + (high + low) / 2) for t in nodes]
    c = [2 * sum(v * mp.cos(mp.pi * k * (j + mp.mpf(1) / 2) / most) for j, v in enumerate(values)) / most
         for k in range(most)]
    scale = max(abs(v) for v in c)
    while len(c) > 1 and abs(c[-1]) < 2e-17 * scale:
        c.pop()
    return c


def amplitudes(n):
    """P and Q of J_n and Y_n for x > 8 as functions of u = (8 / x)^2: J + iY = sqrt(2 / (pi x)) (P + i 8/x Q) e^(i chi)."""
    def both(u):
        x = 8 / mp.sqrt(u)
        chi = x - (2 * n + 1) * mp.pi / 4
        size = mp.sqrt(mp.pi * x / 2)
        j, y = size * mp.besselj(n, x), size * mp.bessely(n, x)
        p = j * mp.cos(chi) + y * mp.sin(chi)
        q = (y * mp.cos(chi) - j * mp.sin(chi)) * x / 8
        return p, q
    tiny = mp.mpf(10) ** -9
    return lambda u: both(max(u, tiny))[0], lambda u: both(max(u, tiny))[1]


def airy_amplitudes():
    """Ai(-x) = x^(-1/4) / sqrt(pi) (P cos(zeta - pi/4) + Q / zeta sin(zeta - pi/4)) as functions of u = (zeta0 / zeta)^2."""
    zeta0 = mp.mpf(2) / 3 * mp.mpf(4) ** mp.mpf(1.5)

    def both(u):
        u = max(u, mp.mpf(10) ** -9)
        zeta = zeta0 / mp.sqrt(u)
        x = (zeta * 3 / 2) ** (mp.mpf(2) / 3)
        a = zeta - mp.pi / 4
        size = mp.sqrt(mp.pi) * x ** mp.mpf(0.25)
        ai, bi = size * mp.airyai(-x), size * mp.airybi(-x)
        # Bi(-x) has -sin and cos in place of cos and sin.
        p = ai * mp.cos(a) - bi * mp.sin(a)
        q = (ai * mp.sin(a) + bi * mp.cos(a)) * zeta
        return p, q
    return lambda u: both(u)[0], lambda u: both(u)[1]


def main():
    half = mp.mpf(1) / 2
    p0, q0 = amplitudes(0)
    p1, q1 = amplitudes(1)
    ap, aq = airy_amplitudes()
    log_part = lambda x: mp.log(x / 2)
    small = lambda f: (lambda v: f(mp.sqrt(v) if v > 0 else mp.mpf(10) ** -15))
    tables = [
        # J_n(x) / x^n of v = x^2 in 0..64, Y_n without its logarithm and pole.
        ("kJ0", chebyshev(small(lambda x: mp.besselj(0, x)), 0, 64)),
        ("kJ1", chebyshev(small(lambda x: mp.besselj(1, x) / x), 0, 64)),
        ("kY0", chebyshev(small(lambda x: mp.bessely(0, x) - 2 / mp.pi * log_part(x) * mp.besselj(0, x)), 0, 64)),
        ("kY1", chebyshev(small(lambda x: (mp.bessely(1, x) - 2 / mp.pi * (log_part(x) * mp.besselj(1, x) - 1 / x)) / x),
                          0, 64)),
        # Amplitudes of u = (8 / x)^2 in 0..1.
        ("kP0", chebyshev(p0, mp.mpf(0), mp.mpf(1))), ("kQ0", chebyshev(q0, mp.mpf(0), mp.mpf(1))),
        ("kP1", chebyshev(p1, mp.mpf(0), mp.mpf(1))), ("kQ1", chebyshev(q1, mp.mpf(0), mp.mpf(1))),
        # K_n without its logarithm (and pole) of v = x^2 in 0..4; sqrt(x) e^x K_n(x) of w = 2 / x in 0..1.
        ("kK0Low", chebyshev(small(lambda x: mp.besselk(0, x) + log_part(x) * mp.besseli(0, x)), 0, 4)),
        ("kK1Low", chebyshev(small(lambda x: (mp.besselk(1, x) - log_part(x) * mp.besseli(1, x) - 1 / x) / x), 0, 4)),
    ]
    large = lambda n: (lambda w: mp.sqrt(half * mp.pi) if w < mp.mpf(10) ** -12 else
                       mp.sqrt(2 / w) * mp.exp(2 / w) * mp.besselk(n, 2 / w))
    tables += [("kK0High", chebyshev(large(0), mp.mpf(0), mp.mpf(1))), ("kK1High", chebyshev(large(1), mp.mpf(0), mp.mpf(1)))]
    # Ai on -4..0 and 0..4; beyond 4, 2 sqrt(pi) x^(1/4) e^zeta Ai(x) of w = zeta(4) / zeta in 0..1.
    zeta0 = mp.mpf(16) / 3

    def ai_high(w):
        if w < mp.mpf(10) ** -9:
            return mp.mpf(1) - mp.mpf(5) / 72 * w / zeta0
        zeta = zeta0 / w
        x = (zeta * 3 / 2) ** (mp.mpf(2) / 3)
        return 2 * mp.sqrt(mp.pi) * x ** mp.mpf(0.25) * mp.exp(zeta) * mp.airyai(x)
    # Between 0 and 4 Ai falls by a factor of 400: the factor e^zeta keeps the relative error small.
    tables += [("kAiryBelow", chebyshev(lambda x: mp.airyai(x), -4, 0)),
               ("kAiryAbove", chebyshev(lambda x: mp.airyai(x) * mp.exp(x * x / 4 + x / 2), 0, 4)),
               ("kAiryHigh", chebyshev(ai_high, mp.mpf(0), mp.mpf(1))),
               ("kAiryP", chebyshev(ap, mp.mpf(0), mp.mpf(1))), ("kAiryQ", chebyshev(aq, mp.mpf(0), mp.mpf(1)))]
    print("// SPDX-License-Identifier: Apache-2.0\n// Chebyshev coefficients, written by scripts/fit_special.py; the first "
          "one counts half.\n// Not installed.\n#pragma once\n\nnamespace tandem::special {\n")
    for name, c in tables:
        print(f"inline constexpr double {name}[] = {{")
        for i in range(0, len(c), 4):
            print("    " + " ".join(mp.nstr(v, 20, min_fixed=0, max_fixed=0) + "," for v in c[i:i + 4]))
        print("};")
    print("\n}  // namespace tandem::special")


if __name__ == "__main__":
    main()
