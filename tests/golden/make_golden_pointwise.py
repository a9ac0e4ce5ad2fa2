# SPDX-License-Identifier: Apache-2.0
"""Golden cases of the pointwise ops: unary, binary, ternary, casts. Called by make_golden.py."""
import torch
import torch.nn.functional as F

from golden_lib import (DTYPES, INF, NAN, Family, Scalar, bf16, f16, f32, f64, i8, i16, i32, i64,
                        u8)

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-8, -1e-8, 1e-40, 88.0, -88.0, 100.0,
           -100.0, 3.0e38, -3.0e38, INF, -INF, NAN]
# op: (low, high) of its smooth domain
UNARY = {
    "abs": (-3, 3), "neg": (-3, 3), "exp": (-4, 4), "exp2": (-4, 4), "expm1": (-4, 4),
    "log": (.05, 9), "log2": (.05, 9), "log10": (.05, 9), "log1p": (-.9, 9), "sqrt": (.05, 9),
    "rsqrt": (.05, 9), "reciprocal": (.1, 4), "square": (-3, 3), "sin": (-9, 9), "cos": (-9, 9),
    "tan": (-1.4, 1.4), "asin": (-.95, .95), "acos": (-.95, .95), "atan": (-5, 5),
    "sinh": (-4, 4), "cosh": (-4, 4), "tanh": (-4, 4), "asinh": (-5, 5), "acosh": (1.05, 6),
    "atanh": (-.95, .95), "erf": (-3, 3), "erfc": (-3, 3), "erfinv": (-.95, .95),
    "lgamma": (.1, 8), "digamma": (.2, 8), "sigmoid": (-6, 6), "relu": (-3, 3), "relu6": (-3, 9),
    "silu": (-6, 6), "selu": (-4, 4), "mish": (-6, 6), "softsign": (-4, 4), "tanhshrink": (-4, 4),
    "hardswish": (-5, 5), "hardsigmoid": (-5, 5), "logsigmoid": (-6, 6), "sinc": (-3, 3),
    "floor": (-5, 5), "ceil": (-5, 5), "trunc": (-5, 5), "round": (-5, 5), "frac": (-5, 5),
    "sign": (-3, 3),
}
UNARY_ATTRS = [
    ("gelu", {}), ("gelu", {"approximate": "tanh"}), ("elu", {}), ("elu", {"alpha": 0.7}),
    ("celu", {"alpha": 1.3}), ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.2}),
    ("softplus", {}), ("softplus", {"beta": 2.0, "threshold": 3.0}), ("hardtanh", {}),
    ("hardtanh", {"min_val": -2.0, "max_val": 0.5}), ("hardshrink", {"lambd": 0.5}),
    ("softshrink", {"lambd": 0.5}), ("threshold", {"threshold": 0.125, "value": -7.0}),
    ("clamp", {"min": -1.0, "max": 0.5}), ("clamp", {"min": 0.25}), ("clamp", {"max": -0.25}),
    ("round", {"decimals": 2}), ("nan_to_num", {}),
    ("nan_to_num", {"nan": 2.0, "posinf": 3.0, "neginf": -4.0}),
]
KINKS = {"abs", "relu", "relu6", "hardswish", "hardsigmoid", "sign", "leaky_relu", "hardtanh",
         "clamp", "threshold", "elu", "softshrink", "hardshrink", "sqrt"}
PREDICATES = ["isnan", "isinf", "isfinite", "signbit", "logical_not"]


def unary(f):
    for op, (lo, hi) in UNARY.items():
        for dt in (f32, f64):
            x = f.rng(f"{lo},{hi}").uniform(lo, hi, 3, 5, dtype=dt)
            f.add(op, [x], name=f"{op}_{'f32' if dt == f32 else 'f64'}", seed="go35")
    for op, attrs in UNARY_ATTRS:
        x = f.rng("-5,5").uniform(-5, 5, 3, 5)
        f.add(op, [x], attrs, seed="go35", wide="decimals" not in attrs)
    f.add("gelu", [x.double()], {"approximate": "tanh"}, name="gelu_f64", seed="go35")
    f.add("logit", [f.rng("0,1").uniform(.02, .98, 3, 5)])
    f.add("logit", [f.rng("-.2,1.2").uniform(-.2, 1.2, 3, 5)], {"eps": 0.05}, wide=False)
    special = torch.tensor(SPECIAL)
    skip = {"lgamma", "digamma", "tan", "sin", "cos", "sinc", "frac", "hardswish"}
    for op in UNARY:
        if op not in skip:
            f.add(op, [special], name=op + "_special", grad=False, wide=False, rtol=4e-6,
                  atol=1e-38)
    for op in PREDICATES:
        f.add(op, [special], name=op, grad=False, wide=False)
    kink = torch.tensor([0.0, -0.0, 3.0, -3.0, 6.0, 1.0, -1.0, 0.5, -0.5, 0.125, NAN])
    for op in sorted(KINKS):
        attrs = next((a for o, a in reversed(UNARY_ATTRS) if o == op), {})
        attrs = {"min": -1.0, "max": 0.5} if op == "clamp" else attrs
        f.add(op, [kink], attrs, name=op + "_kink", seed="go_kink")
    x = f.rng("half").uniform(-4, 4, 3, 5)
    for dt, n in ((f16, "f16"), (bf16, "bf16")):
        for op in ("exp", "tanh", "sigmoid", "silu", "gelu", "relu", "abs", "neg", "floor", "erf"):
            f.add(op, [x.to(dt)], name=f"{op}_{n}", seed="go35")
        for op in ("sqrt", "rsqrt", "log"):
            f.add(op, [x.abs().to(dt) + 0.1], name=f"{op}_{n}", seed="go35")
    for dt, n in ((i64, "i64"), (i32, "i32"), (i16, "i16"), (i8, "i8")):
        v = torch.tensor([0, 1, -1, 2, -3, 7, 100, torch.iinfo(dt).min, torch.iinfo(dt).max]).to(dt)
        for op in ("abs", "neg", "sign", "square", "bitwise_not", "logical_not"):
            f.add(op, [v], name=f"{op}_{n}")
        f.add("relu", [v], name="relu_" + n)
        f.add("clamp", [v], {"min": -2, "max": 5}, name="clamp_" + n)
    small = torch.tensor([0, 1, 2, 5])
    for dt, n in ((i64, "i64"), (i32, "i32"), (u8, "u8"), (torch.bool, "bool")):
        for op in ("exp", "sqrt", "sigmoid", "sin", "tanh"):
            f.add(op, [small.to(dt)], name=f"{op}_{n}", wide=False)
        f.add("logical_not", [small.to(dt)], name="logical_not2_" + n)
    f.add("bitwise_not", [small.to(u8)], name="bitwise_not_u8")
    f.add("bitwise_not", [torch.tensor([True, False])], name="bitwise_not_bool")


BINARY = ["add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "fmax", "fmin",
          "hypot", "copysign", "logaddexp", "remainder", "fmod", "floor_divide"]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
INTS = ((i64, "i64"), (i32, "i32"), (i16, "i16"), (i8, "i8"), (u8, "u8"))


def binary(f):
    r = f.rng("binary")
    a, b = r.uniform(-4, 4, 3, 1, 4), r.uniform(0.3, 3, 2, 1)
    b = b * torch.tensor([[1.0], [-1.0]])
    for op in BINARY:
        x, y = (a.abs() + 0.1, b) if op == "pow" else (a, b)
        exact = op in ("remainder", "fmod", "floor_divide")
        for dt, n in ((f32, "f32"), (f64, "f64")):
            f.add(op, [x.to(dt), y.to(dt)], name=f"{op}_{n}", seed="go324", wide=not exact,
                  grad=op != "floor_divide")
        if op not in ("hypot", "logaddexp"):
            for s in (2.5, 3) if op in ("add", "mul", "pow", "remainder") else (2.5,):
                f.add(op, [x, Scalar(s)], name=f"{op}_scalar", wide=not exact,
                      grad=op != "floor_divide",
                      fn=scalar_form(op))
        if op in ("add", "sub", "mul", "div", "pow"):
            f.add(op, [Scalar(2.5), x], name=f"{op}_rscalar", fn=scalar_form(op))
        for dt, n in ((f16, "f16"), (bf16, "bf16")):
            if op in ("add", "sub", "mul", "div", "maximum"):
                f.add(op, [x.to(dt), y.to(dt)], name=f"{op}_{n}", seed="go324")
    f.add("sub", [a, b], {"alpha": 0.5}, name="sub_alpha")
    f.add("add", [a, b], {"alpha": -2}, name="add_alpha")
    for mode in ("floor", "trunc"):
        f.add("div", [a, b], {"rounding_mode": mode}, name="div_" + mode, wide=False, grad=False)
    v = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, INF, -INF, NAN])
    p, q = v[:, None].expand(10, 10).contiguous(), v[None, :].expand(10, 10).contiguous()
    special = [*BINARY, "true_divide", *COMPARE, "logical_and", "logical_or", "logical_xor",
               "xlogy", "heaviside"]
    for op in special:
        f.add(op, [p, q], name=op + "_special", grad=False, wide=False)
    t1, t2 = torch.tensor([1.0, 2, 2, -1, 0]), torch.tensor([1.0, 2, 3, -1, -0.0])
    for op in ("maximum", "minimum", "fmax", "fmin"):
        f.add(op, [t1, t2], name=op + "_ties", seed="go_ties")
    n1, n2 = torch.tensor([1.0, NAN, 1, NAN, INF]), torch.tensor([2.0, 1, NAN, NAN, INF])
    for op in ("maximum", "minimum", "fmax", "fmin"):
        f.add(op, [n1, n2], name=op + "_nan", seed="go_ties")
    f.add("pow", [torch.tensor([0.0, -2.0, 2.0]), Scalar(0.0)], name="pow_zero_exponent",
          fn=torch.pow)
    f.add("pow", [torch.tensor([0.0, -2.0, 2.0, 0.5]), Scalar(2)], name="pow_square", fn=torch.pow)
    f.add("pow", [torch.tensor([-2.0, 2.0, 0.5]), Scalar(-1)], name="pow_inverse", fn=torch.pow)
    f.add("pow", [torch.tensor([0.0, 2.0, 0.5]), torch.tensor([0.0, 0.0, 3.0])], name="pow_zero")
    f.add("logaddexp2", [a, b])
    f.add("xlogy", [a, b.abs()])
    ints(f)


def scalar_form(op):
    if op == "pow":
        return torch.pow
    if op == "div":
        return lambda x, y: x / y
    if op == "sub":
        return lambda x, y: x - y
    if op == "add":
        return lambda x, y: x + y
    if op == "mul":
        return lambda x, y: x * y

    def g(x, y):
        fn = getattr(torch, op)
        try:
            return fn(x, y)
        except TypeError:
            return fn(x, torch.tensor(y))
    return g


def ints(f):
    for dt, n in INTS:
        big = torch.iinfo(dt)
        p = torch.tensor([7, -7, 7, -7, 0, 5, big.max, big.min, 100, 6]).to(dt)
        q = torch.tensor([3, 3, -3, -3, 4, 1, 2, 3, 100, 2]).to(dt)
        for op in ("add", "sub", "mul", "floor_divide", "remainder", "fmod", "maximum", "minimum",
                   "bitwise_and", "bitwise_or", "bitwise_xor", *COMPARE, "div", "atan2"):
            f.add(op, [p, q], name=f"{op}_{n}")
        f.add("div", [p, q], {"rounding_mode": "trunc"}, name="div_trunc_" + n)
        f.add("div", [p, q], {"rounding_mode": "floor"}, name="div_floor_" + n)
        e = torch.tensor([0, 1, 2, 3, 2, 1]).to(dt)
        f.add("pow", [torch.tensor([2, 3, 5, 2, 0, 7]).to(dt), e], name="pow_" + n)
        f.add("bitwise_left_shift", [torch.tensor([1, 2, 3, 5, 7, 1]).to(dt), e], name="shl_" + n)
        f.add("bitwise_right_shift", [torch.tensor([64, 99, 3, 5, 7, 1]).to(dt), e],
              name="shr_" + n)
    t = torch.tensor([True, True, False, False])
    u = torch.tensor([True, False, True, False])
    for op in ("add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
               "logical_and", "logical_or", "logical_xor", *COMPARE):
        f.add(op, [t, u], name=op + "_bool")
    i, x = torch.tensor([1, -2, 3], dtype=i32), torch.tensor([0.5, 1.5, -2.0])
    for op in ("add", "mul", "div", "lt", "maximum", "pow"):
        f.add(op, [i, x], name=op + "_i32_f32")
        f.add(op, [x, i], name=op + "_f32_i32")
    f.add("add", [i, Scalar(0.5)], name="add_i32_float", fn=lambda p, q: p + q)
    f.add("mul", [t, Scalar(3)], name="mul_bool_int", fn=lambda p, q: p * q)
    f.add("add", [torch.tensor([250, 3], dtype=u8), Scalar(10)], name="add_u8_int",
          fn=lambda p, q: p + q)
    f.add("add", [torch.tensor([1.5], dtype=f16), torch.tensor(2.0, dtype=f64)], name="add_f16_0d")
    f.add("add", [torch.tensor([1.5], dtype=f16), torch.tensor([2.0], dtype=bf16)],
          name="add_f16_bf16")


def ternary(f):
    r = f.rng("ternary")
    a, b, c = r.normal(3, 1, 4), r.normal(2, 1), r.uniform(.2, 2, 2, 4)
    m = r.bools(3, 2, 4)
    for dt, n in ((f32, "f32"), (f64, "f64"), (bf16, "bf16")):
        A, B, C = a.to(dt), b.to(dt), c.to(dt)
        f.add("where", [m, A, B], name="where_" + n)
        f.add("lerp", [A, B.expand(3, 2, 4).contiguous(), C], name="lerp_" + n)
        f.add("lerp", [A, B], {"weight": 0.3}, name="lerp_scalar_" + n)
        f.add("addcmul", [A, B, C], {"value": 0.5}, name="addcmul_" + n)
        f.add("addcdiv", [A, B, C], {"value": -0.5}, name="addcdiv_" + n)
        f.add("clamp", [A, B, B + C], name="clamp_tensor_" + n)
        f.add("masked_fill", [A.expand(3, 2, 4).contiguous(), m], {"value": -7.0},
              name="masked_fill_" + n)
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0, NAN])
    f.add("clamp", [x, torch.tensor(0.0), torch.tensor(1.0)], name="clamp_tensor_ties")
    f.add("clamp", [x, torch.tensor(1.0), torch.tensor(0.0)], name="clamp_crossed")
    f.add("clamp", [x, torch.tensor(1.0), torch.tensor(1.0)], name="clamp_one_value")
    f.add("clamp", [x, torch.full((5,), NAN), torch.ones(5)], name="clamp_nan_min")
    f.add("clamp", [x, torch.zeros(5), torch.full((5,), NAN)], name="clamp_nan_max")
    f.add("clamp_min", [x, torch.zeros(5)], name="clamp_min_tensor")
    f.add("clamp_max", [x, torch.ones(5)], name="clamp_max_tensor")
    f.add("clamp", [x], {"min": 0.0}, name="clamp_min_kink")
    f.add("clamp", [x], {"max": 1.0}, name="clamp_max_kink")
    f.add("clamp", [x], {"min": 1.0, "max": 0.0}, name="clamp_crossed_numbers")
    f.add("logit", [torch.tensor([0.25, 0.1, 0.5, 0.75, 0.9])], {"eps": 0.25}, name="logit_kink")
    f.add("where", [m[0], Scalar(1.5), b], name="where_scalar", fn=torch.where)
    f.add("where", [m[0], torch.ones(2, 4, dtype=i32), torch.zeros(2, 4, dtype=i64)],
          name="where_ints")
    f.add("where", [m[0], Scalar(0), Scalar(1)], name="where_two_scalars", fn=torch.where)
    nan_side = torch.tensor([0.0, 4.0])
    f.add("where", [nan_side > 0, nan_side.sqrt(), nan_side], name="where_grad_sides")
    f.add("prelu", [a.expand(3, 2, 4).contiguous(), torch.tensor([0.25, -0.5])])
    f.add("prelu", [a.expand(3, 2, 4).contiguous(), torch.tensor([0.1])])
    f.add("glu", [r.normal(3, 6)], {"dim": -1})


def casts(f):
    src = {"float32": [0.0, -0.0, 1.0, 2.7, -1.2, 100.5, -100.5, 0.1],
           "float64": [0.0, 1.0, 2.7, -1.2, 1 / 3, 70000.0, 1e-9, -0.49],
           "float16": [0.0, 1.0, 2.7, -1.2, 100.5, 6e-5], "bfloat16": [0.0, 1.0, 2.7, -1.2, 100.5],
           "int64": [0, 1, -1, 300, 70000, 16777217], "int32": [0, 1, -1, 300, 16777217],
           "int16": [0, 1, -1, 300], "int8": [0, 1, -1, 100], "uint8": [0, 1, 200],
           "bool": [True, False]}
    for a, values in src.items():
        for b, dt in DTYPES.items():
            v = torch.tensor(values, dtype=DTYPES[a])
            if not dt.is_floating_point and DTYPES[a].is_floating_point:
                top = 255 if dt == u8 else 127 if dt == i8 else 32767
                low = 0 if dt == u8 else -top
                v = v[(v >= low) & (v <= top)] if dt != torch.bool else v
            f.add("to", [v], {"dtype": dt}, fn=lambda x, dtype: x.to(dtype), name=f"to_{a}_{b}",
                  grad=DTYPES[a] in (f32, f64, bf16), rtol=0, atol=0)
    s = torch.tensor([INF, -INF, NAN, 65504.0, 65520.0, 65519.0, 1e-8, 5.96e-8, 3.0e-8, 1.00390625,
                      1.01171875, 3.4e38, 2.0 ** -133, -1e-40])
    for dt in (f16, bf16, f64, torch.bool):
        f.add("to", [s], {"dtype": dt}, fn=lambda x, dtype: x.to(dtype), grad=False, rtol=0, atol=0,
              name="to_special_" + str(dt)[6:])


def make():
    f = Family("pointwise")
    unary(f)
    binary(f)
    ternary(f)
    casts(f)
    f.save()
