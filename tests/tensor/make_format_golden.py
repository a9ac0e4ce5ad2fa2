# SPDX-License-Identifier: Apache-2.0
# Writes format_golden.txt, format_options_golden.txt and grad_golden.txt into the folder given: how
# PyTorch prints tensors, for tests/tensor/format_test.cpp and tests/grad/print_test.cpp. Needs torch.
# A case is `case <dtype> <shape> <kind> <numbers>`, the text, and a line `end`. Kinds: `values` lists
# every element; `ramp a m s f` is ((i * a) % m - s) * f for the flat index i.
import sys
import torch

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16,
          "bfloat16": torch.bfloat16, "int64": torch.int64, "int32": torch.int32,
          "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool}


def cases():
    inf, nan = float("inf"), float("nan")
    lists = [[0.0], [1.0], [1.5], [-1.0, 2.0], [0.1, 0.25, 100.0], [1e-5, 1.0], [1e8, 1.0], [1e9],
             [1.0, 1000.0], [1.0, 1001.0], [0.001, 1.0, 1.1], [inf, 1.0], [nan, 2.0, -3.5],
             [nan, inf, -inf], [-0.0, 1.0], [1e-4], [9e-5], [123456.0, 7.0, 3.0], [1e38, 1e-38],
             [0.0, 0.0], [12345.678], [65504.0, 0.5], [nan, 1e9], [1e10, 2e10, -3.0], [99999.99, 0.1]]
    for values in lists:
        for dtype in ("float32", "float64"):
            yield dtype, [len(values)], "values", values
        if all(abs(v) < 6e4 for v in values if v == v and abs(v) != inf):
            yield "float16", [len(values)], "values", values
            yield "bfloat16", [len(values)], "values", values
    for v in (0.0, 3.0, 2.5, 1e-7, nan, -inf, 1e20):
        yield "float32", [], "values", [v]
    yield "float64", [], "values", [2.5]
    yield "int64", [], "values", [-7]
    yield "bool", [], "values", [1]
    yield "int32", [], "values", [4]
    yield "bool", [4], "values", [1, 0, 0, 1]
    yield "bool", [2, 2], "values", [0, 0, 0, 1]
    for dtype in ("int64", "int32", "int16", "int8", "uint8"):
        yield dtype, [2, 3], "values", [1, 22, 3, 4, 55, 120]
    yield "int64", [3], "values", [-1, 1000000, 5]
    for dtype in DTYPES:
        for shape in ([0], [0, 3], [3, 0], [2, 0, 4]):
            yield dtype, shape, "values", []
    ramps = [(37, 101, 50, 1.0), (37, 101, 50, 0.125), (7, 1009, 0, 0.001), (1, 100000, 0, 1.0),
             (13, 97, 48, 1e-6), (11, 53, 0, 1e7)]
    shapes = [[7], [20], [100], [1000], [1001], [2, 3], [3, 2, 4], [2, 2, 2, 2], [7, 7, 30],
              [1, 1], [30, 40], [2, 600], [600, 2], [8, 8, 8, 8], [4, 5, 60], [1, 1, 1, 1001], [5, 1, 1]]
    for shape in shapes:
        big = shape in ([100], [1000], [7, 7, 30])  # all their elements are printed, or many
        for ramp in ramps[:2] if big else ramps:
            yield "float32", shape, "ramp", ramp
        yield "int64", shape, "ramp", (37, 101, 50, 1)
        yield "float64", shape, "ramp", (37, 101, 50, 0.125)
        yield "float16", shape, "ramp", (37, 101, 50, 0.125)
        yield "int32", shape, "ramp", (37, 1001, 50, 1)


def make(dtype, shape, kind, numbers):
    if kind == "values":
        data = torch.tensor(numbers, dtype=torch.float64)
    else:
        a, m, s, f = numbers
        n = 1
        for d in shape:
            n *= d
        data = ((torch.arange(n) * a) % m - s).to(torch.float64) * f
    return data.to(DTYPES[dtype]).reshape(shape)


def write(out, dtype, shape, kind, numbers):
    text = str(make(dtype, shape, kind, numbers)).replace("dtype=torch.", "dtype=")
    shape_text = "x".join(map(str, shape)) or "-"
    numbers_text = " ".join(repr(float(v)) for v in numbers)
    out.write(f"case {dtype} {shape_text} {kind} {numbers_text}\n{text}\nend\n")


# A line `options precision threshold edgeitems linewidth sci_mode` holds for the cases after it.
OPTIONS = [(2, 1000, 3, 80, None), (0, 1000, 3, 80, None), (8, 1000, 3, 80, None), (4, 5, 3, 80, None),
           (4, 5, 1, 80, None), (4, 5, 0, 80, None), (4, 1000, 3, 40, None), (4, 1000, 3, 200, None),
           (4, 1000, 3, 1, None), (4, 1000, 3, 80, True), (4, 1000, 3, 80, False), (2, 20, 2, 50, True),
           (6, 10, 4, 60, False)]


def option_cases():
    inf, nan = float("inf"), float("nan")
    yield "float32", [6], "values", [1.0, 2.5, -3.25, 1e-6, 1e7, 0.0]
    yield "float32", [4], "values", [1.0, nan, inf, -inf]
    yield "float32", [3], "values", [1.0, 200000.0, -3.0]
    yield "float64", [], "values", [3.14159265358979]
    yield "float16", [2, 3], "values", [1.0, 0.5, 0.25, 2.0, 4.0, 100.0]
    yield "int64", [3, 7], "ramp", (37, 101, 50, 1)
    yield "float32", [4, 3, 9], "ramp", (37, 101, 50, 0.125)
    yield "float32", [30], "ramp", (7, 1009, 0, 0.001)
    yield "bool", [2, 4], "values", [1, 0, 0, 1, 1, 1, 0, 0]
    yield "float32", [0, 2], "values", []


def grad_cases():
    x = torch.tensor([[1.5, -2.0], [0.25, 3.0]], requires_grad=True)
    w = torch.ones(30).requires_grad_()
    yield "leaf", x
    yield "add", x + 1
    yield "mul", x * x
    yield "exp", x.exp()
    yield "sum", x.sum()
    yield "tanh", torch.tanh(x)
    yield "sigmoid", torch.sigmoid(x)
    yield "relu", torch.relu(x)
    yield "div", x / 3
    yield "wide", w * 2
    yield "half", x.to(torch.float64).sin()
    yield "detach", (x * 2).detach()
    yield "permute", x.permute(1, 0)
    with torch.no_grad():
        yield "no_grad", x * 2


folder = sys.argv[1]
with open(folder + "/format_golden.txt", "w") as out:
    for case in cases():
        write(out, *case)
with open(folder + "/format_options_golden.txt", "w") as out:
    for options in OPTIONS:
        precision, threshold, edgeitems, linewidth, sci_mode = options
        torch.set_printoptions(precision, threshold, edgeitems, linewidth, sci_mode=sci_mode)
        out.write("options " + " ".join(map(str, options)) + "\n")
        for case in option_cases():
            write(out, *case)
torch.set_printoptions(profile="default")
with open(folder + "/grad_golden.txt", "w") as out:
    for name, value in grad_cases():
        out.write(f"case {name}\n{str(value)}\nend\n".replace("dtype=torch.", "dtype="))
