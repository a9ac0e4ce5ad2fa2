# SPDX-License-Identifier: Apache-2.0
"""Models of one operator each, made with the schema of the wheel ai-edge-litert; used by tests/peers/tflite."""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

TYPES = {"f32": np.float32, "i32": np.int32, "i64": np.int64, "b8": np.bool_, "i8": np.int8, "u8": np.uint8,
         "i16": np.int16}
NUMBERS = {"f32": 0, "i32": 2, "u8": 3, "i64": 4, "b8": 6, "i16": 7, "i8": 9}
CODES = ("i8", "u8", "i16")
# What each type's sigmoid, softmax and tanh have for a scale.
SHARES = {"i8": (1 / 256, -128), "u8": (1 / 256, 0), "i16": (1 / 32768, 0)}
SIGNED = {"i8": (1 / 128, 0), "u8": (1 / 128, 128), "i16": (1 / 32768, 0)}


class Model:
    """One subgraph of one operator."""

    def __init__(self, random):
        self.random, self.feeds, self.inputs = random, [], []
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs = 3, [self.graph]
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.graph.tensors, self.graph.operators, self.graph.name = [], [], b"main"

    def tensor(self, kind, shape, scale=None, value=None, axis=0):
        """Scale: (scales, zero points) of codes. Value: of a constant."""
        t = schema.TensorT()
        t.shape, t.type, t.name = list(shape), NUMBERS[kind], f"t{len(self.graph.tensors)}".encode()
        t.hasRank, t.buffer = True, 0
        if value is not None:
            b = schema.BufferT()
            b.data = np.frombuffer(np.ascontiguousarray(value, TYPES[kind]).tobytes(), np.uint8)
            self.model.buffers.append(b)
            t.buffer = len(self.model.buffers) - 1
        if scale is not None:
            t.quantization = schema.QuantizationParametersT()
            t.quantization.scale = np.atleast_1d(np.float32(scale[0]))
            t.quantization.zeroPoint = np.atleast_1d(np.int64(scale[1]))
            t.quantization.quantizedDimension = axis
        self.graph.tensors.append(t)
        return len(self.graph.tensors) - 1

    def input(self, kind, shape, scale=None):
        i = self.tensor(kind, shape, scale)
        self.inputs.append(i)
        self.feeds.append(self.values(kind, shape))
        return i

    def values(self, kind, shape):
        if kind in CODES:
            limits = np.iinfo(TYPES[kind])
            return self.random.integers(limits.min, limits.max, shape, endpoint=True).astype(TYPES[kind])
        if kind == "b8":
            return self.random.integers(0, 2, shape).astype(bool)
        if kind in ("i32", "i64"):
            return self.random.integers(-9, 9, shape).astype(TYPES[kind])
        return self.random.normal(size=shape).astype(np.float32)

    def scale(self, kind, size=None):
        if kind not in CODES:
            return None
        zero = 0 if kind == "i16" else int(self.random.integers(-30, 30)) + (128 if kind == "u8" else 0)
        return (self.random.uniform(0.01, 0.1) if size is None else size, zero)

    def op(self, code, inputs, outputs, name=None, **fields):
        o, c = schema.OperatorT(), schema.OperatorCodeT()
        c.builtinCode, c.deprecatedBuiltinCode, c.version = code, min(code, 127), 1
        o.opcodeIndex, o.inputs, o.outputs, o.builtinOptionsType = 0, inputs, outputs, 0
        if name:
            o.builtinOptions = getattr(schema, name + "OptionsT")()
            o.builtinOptionsType = getattr(schema.BuiltinOptions, name + "Options")
            for field, value in fields.items():
                assert hasattr(o.builtinOptions, field), (name, field)
                setattr(o.builtinOptions, field, value)
        self.model.operatorCodes.append(c)
        self.graph.operators.append(o)
        self.graph.inputs, self.graph.outputs = self.inputs, outputs

    def bytes(self, version):
        self.model.operatorCodes[0].version = version
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def window(random, kind, depthwise, same, stride, dilation, activation, multiplier=1):
    m, channels, k, h = Model(random), 6, 3, 9
    out = channels * multiplier if depthwise else 5
    scale = m.scale(kind)
    x = m.input(kind, [2, h, h, channels], scale)
    shape = [1, k, k, out] if depthwise else [out, k, k, channels]
    if kind == "f32":
        w = m.tensor(kind, shape, value=m.values(kind, shape))
        bias = m.tensor(kind, [out], value=m.values(kind, [out]))
    else:
        wide, stored = ("i64" if kind == "i16" else "i32"), ("u8" if kind == "u8" else "i8")
        n = 1 if kind == "u8" else out
        steps = random.uniform(0.002, 0.02, n)
        codes = m.values(stored, shape)
        w = m.tensor(stored, shape, (steps, [130] if kind == "u8" else [0] * n),
                     codes if kind == "u8" else np.maximum(codes, -127), 3 if depthwise else 0)
        bias = m.tensor(wide, [out], (np.float32(scale[0]) * np.float32(steps), [0] * n),
                        random.integers(-3000, 3000, out))
    extent = (k - 1) * dilation + 1
    size = -(-h // stride) if same else (h - extent) // stride + 1
    y = m.tensor(kind, [2, size, size, out], m.scale(kind, 0.02 if kind == "i16" else 0.4))
    fields = dict(padding=0 if same else 1, strideW=stride, strideH=stride, fusedActivationFunction=activation,
                  dilationWFactor=dilation, dilationHFactor=dilation)
    if depthwise:
        fields["depthMultiplier"] = multiplier
    m.op(4 if depthwise else 3, [x, w, bias], [y], "DepthwiseConv2D" if depthwise else "Conv2D", **fields)
    return m


def matrix(random, kind, activation, by_row, bias):
    m = Model(random)
    scale, n = m.scale(kind), 32 if by_row else 1
    x = m.input(kind, [64, 32], scale)
    if kind == "f32":
        w = m.tensor(kind, [32, 32], value=m.values(kind, [32, 32]))
        b = m.tensor(kind, [32], value=m.values(kind, [32])) if bias else -1
    else:
        stored, steps = ("u8" if kind == "u8" else "i8"), random.uniform(0.002, 0.02, n)
        w = m.tensor(stored, [32, 32], (steps, [128 if kind == "u8" else 0] * n), m.values(stored, [32, 32]))
        b = m.tensor("i64" if kind == "i16" else "i32", [32], (np.float32(scale[0]) * np.float32(steps), [0] * n),
                     random.integers(-3000, 3000, 32)) if bias else -1
    y = m.tensor(kind, [64, 32], m.scale(kind, 0.02 if kind == "i16" else 0.5))
    m.op(9, [x, w, b], [y], "FullyConnected", fusedActivationFunction=activation)
    return m


def transposed(random, kind, same, stride):
    m, h = Model(random), 5
    size = h * stride if same else (h - 1) * stride + 3
    sizes = m.tensor("i32", [4], value=[2, size, size, 4])
    scale, steps = m.scale(kind), random.uniform(0.002, 0.02, 4 if kind == "i8" else 1)
    w = m.tensor(kind, [4, 3, 3, 6], None if kind == "f32" else (steps, [127 if kind == "u8" else 0] * len(steps)),
                 m.values(kind, [4, 3, 3, 6]))
    x = m.input(kind, [2, h, h, 6], scale)
    if kind == "f32":
        b = m.tensor(kind, [4], value=m.values(kind, [4]))
    else:
        b = m.tensor("i32", [4], (np.float32(scale[0]) * np.float32(steps), [0] * len(steps)),
                     random.integers(-900, 900, 4))
    y = m.tensor(kind, [2, size, size, 4], m.scale(kind, 0.3))
    m.op(67, [sizes, w, x, b], [y], "TransposeConv", padding=0 if same else 1, strideW=stride, strideH=stride)
    return m


def two(random, kind, code, name=None, shape=(1, 4, 5, 3), equal=False, result=None, **fields):
    m = Model(random)
    a, c = m.scale(kind), m.scale(kind)
    x, z = m.input(kind, [1, 4, 5, 3], a), m.input(kind, shape, a if equal else c)
    y = m.tensor(result or kind, [1, 4, 5, 3], None if result else a if equal else m.scale(kind))
    if kind == "i16" and name in ("Add", "Sub"):
        fields["potScaleInt16"] = False
    m.op(code, [x, z], [y], name, **fields)
    return m


def one(random, kind, code, name=None, scale=None, equal=False, shape=(2, 4, 5, 3), to=None, more=(), result=None,
        results=1, positive=False, start=None, **fields):
    """More: constants after the input, (type, values)."""
    m = Model(random)
    a = start if start and kind in CODES else m.scale(kind)
    x = m.input(kind, shape, a)
    if positive:
        m.feeds[0] = np.abs(m.feeds[0]) + np.float32(0.1)
    rest = [m.tensor(t, np.shape(v), value=v) for t, v in more]
    b = None if (result or kind) not in CODES else a if equal else scale or m.scale(kind)
    y = [m.tensor(result or kind, to or shape, b) for _ in range(results)]
    m.op(code, [x] + rest, y, name, **fields)
    return m


def layers(random):
    """(label, model, how far from equal: of floats relative, of codes in codes)"""
    for kind in ("f32",) + CODES:
        for depthwise in (False, True):
            for same, stride, dilation, activation in ((1, 1, 1, 0), (0, 2, 1, 1), (1, 1, 2, 3), (1, 2, 1, 2)):
                yield (f"{'DEPTHWISE_' if depthwise else ''}CONV_2D {kind}",
                       window(random, kind, depthwise, same, stride, dilation, activation, 2 if stride == 2 else 1), 0)
        for activation, by_row, bias in ((0, False, True), (1, False, False), (3, True, True)):
            if not by_row or kind in ("i8", "i16"):
                yield f"FULLY_CONNECTED {kind}", matrix(random, kind, activation, by_row, bias), 0
        if kind != "i16":
            for same, stride in ((True, 2), (False, 2), (True, 1)):
                yield f"TRANSPOSE_CONV {kind}", transposed(random, kind, same, stride), 0
        if kind in ("f32", "i8"):
            m = Model(random)
            x, z = m.input(kind, [2, 3, 4], m.scale(kind)), m.input(kind, [2, 5, 4], m.scale(kind))
            m.op(126, [x, z], [m.tensor(kind, [2, 3, 5], m.scale(kind, 0.3))], "BatchMatMul", adjX=False, adjY=True)
            yield f"BATCH_MATMUL {kind}", m, 0
        for code, name in ((1, "AVERAGE_POOL_2D"), (17, "MAX_POOL_2D")):
            for same in (0, 1):
                size = 4 if same else 3
                yield f"{name} {kind}", one(random, kind, code, "Pool2D", equal=True, shape=(1, 7, 7, 3),
                                            to=(1, size, size, 3), padding=1 - same, strideW=2, strideH=2,
                                            filterWidth=3, filterHeight=3, fusedActivationFunction=1), 0


def numbers(random):
    pads = ("i32", np.array([[0, 0], [1, 2], [0, 1], [0, 0]]))
    for kind in ("f32", "i32") + CODES:
        for code, name in ((0, "Add"), (41, "Sub"), (18, "Mul")):
            yield f"{name.upper()} {kind}", two(random, kind, code, name), 0
            yield f"{name.upper()} {kind}", two(random, kind, code, name, (3,),
                                                fusedActivationFunction=0 if kind == "i32" else 1), 0
        yield f"MAXIMUM {kind}", two(random, kind, 55, equal=True), 0
        if kind != "i16":
            yield f"LESS {kind}", two(random, kind, 58, result="b8"), 0
    for code, name in ((42, "DIV"), (90, "FLOOR_DIV"), (95, "FLOOR_MOD"), (99, "SQUARED_DIFFERENCE")):
        yield name, two(random, "f32", code), 0
    for kind in ("f32",) + CODES:
        for code, name, scale in ((14, "LOGISTIC", SHARES), (28, "TANH", SIGNED), (19, "RELU", {}), (21, "RELU6", {}),
                                  (117, "HARD_SWISH", {})):
            for start in (None, (1 / 4096, 0), (1 / 2048, 0), (0.0007, 0)) if kind == "i16" and code in (14, 28) else (None,):
                if kind != "i16" or code != 117:
                    yield f"{name} {kind}", one(random, kind, code, scale=scale.get(kind), shape=(900,), start=start), 0
        yield f"LEAKY_RELU {kind}", one(random, kind, 98, "LeakyRelu", alpha=0.2), 0
        for start in (None, (1 / 4096, 0), (0.0003, 0)) if kind == "i16" else (None,):
            yield (f"SOFTMAX {kind}",
                   one(random, kind, 25, "Softmax", scale=SHARES.get(kind), shape=(50, 30), beta=1.0, start=start), 0)
        yield (f"MEAN {kind}", one(random, kind, 40, "Reducer", to=(2, 1, 1, 3), more=[("i32", [1, 2])], keepDims=True),
               0)
        yield f"PAD {kind}", one(random, kind, 34, "Pad", equal=True, to=(2, 7, 6, 3), more=[pads]), 0
        yield f"MIRROR_PAD {kind}", one(random, kind, 100, "MirrorPad", equal=True, to=(2, 7, 6, 3), more=[pads]), 0
        yield f"TRANSPOSE {kind}", one(random, kind, 39, equal=True, to=(2, 3, 4, 5), more=[("i32", [0, 3, 1, 2])]), 0
        yield (f"STRIDED_SLICE {kind}",
               one(random, kind, 45, "StridedSlice", equal=True, to=(2, 2, 2),
                   more=[("i32", [0, 1, 2, 0]), ("i32", [2, 3, 3, 3]), ("i32", [1, 2, 1, 2])], beginMask=1, endMask=2,
                   shrinkAxisMask=4), 0)
        for corners, half in ((0, 0), (1, 0), (0, 1)):
            yield (f"RESIZE_BILINEAR {kind}",
                   one(random, kind, 23, "ResizeBilinear", equal=True, to=(2, 7, 9, 3), more=[("i32", [7, 9])],
                       alignCorners=bool(corners), halfPixelCenters=bool(half)), 1 if kind == "u8" else 0)
        yield (f"RESIZE_NEAREST_NEIGHBOR {kind}",
               one(random, kind, 97, "ResizeNearestNeighbor", equal=True, to=(2, 7, 9, 3), more=[("i32", [7, 9])],
                   halfPixelCenters=True), 0)
        yield (f"GATHER {kind}", one(random, kind, 36, "Gather", equal=True, to=(2, 3, 5, 3),
                                     more=[("i32", [2, 0, 3])], axis=1), 0)
        yield f"UNPACK {kind}", one(random, kind, 88, "Unpack", equal=True, to=(4, 5, 3), results=2, num=2, axis=0), 0
    for code, name, positive in ((101, "ABS", 0), (59, "NEG", 0), (8, "FLOOR", 0), (116, "ROUND", 0), (75, "SQRT", 1),
                                 (76, "RSQRT", 1), (47, "EXP", 0), (73, "LOG", 1), (66, "SIN", 0), (111, "ELU", 0),
                                 (50, "LOG_SOFTMAX", 0)):
        yield name, one(random, "f32", code, positive=bool(positive)), 0
    for kind in ("i8", "i16"):
        yield f"ABS {kind}", one(random, kind, 101), 0
    for kind in CODES:
        yield f"QUANTIZE {kind}", one(random, kind, 114, shape=(900,)), 0
        yield f"DEQUANTIZE {kind}", one(random, kind, 6, result="f32"), 0
    for tanh in (False, True):
        yield "GELU", one(random, "f32", 150, "Gelu", approximate=tanh), 0
    yield "SVDF", remembered(random), 0
    yield "LSTM", recurrent(random, False, False), 0
    yield "LSTM with peepholes", recurrent(random, True, True), 0
    for peepholes in (False, True):
        for coupled in (False, True):
            for projection in (0, 5 if peepholes else 4):
                yield (f"LSTM i8{' coupled' * coupled}{' with peepholes' * peepholes}"
                       f"{' projected' * bool(projection)}",
                       integer_recurrent(random, time_major=coupled, peepholes=peepholes, coupled=coupled,
                                         projection=projection, clip=3.0 * peepholes, power=-11 - coupled), 0)
    for relu in (False, True):
        yield "RNN", plain_recurrent(random, 24, relu), 0
        yield "RNN of a sequence", plain_recurrent(random, 35, relu, relu), 0
        for merge in (False, True):
            yield "RNN both ways", plain_recurrent(random, 46, relu, relu, merge), 0
            # The interpreter mixes up the states of two samples where results are merged and the batch comes first.
            yield "LSTM both ways", recurrent(random, relu, relu, 1 if merge else 2, merge=merge, both=True), 0


def codes(random):
    """Operators on codes as the reference kernels round them. Left out is what these leave undefined or have wrong:
    SUM and PRELU of 16 bits, SUM of int8, quotients far below a code, exponentials beyond f32."""
    reduced = (([1, 2], True), ([2, 1], False), ([1], True), ([-1], False), ([0, 1, 2, 3], True), ([0], False))
    for kind in CODES:
        for dims, keep in reduced:
            gone = [d % 4 for d in dims]
            to = [1 if d in gone else n for d, n in enumerate((2, 5, 6, 3)) if keep or d not in gone]
            for code, name in ((40, "MEAN"), (74, "SUM"), (81, "REDUCE_PROD")):
                if code == 74 and kind != "u8" or code == 81 and (kind == "u8" or len(dims) == 4):
                    continue
                for equal in (False, True) if code == 40 else (False,):
                    m = one(random, kind, code, "Reducer", shape=(2, 5, 6, 3), to=to, more=[("i32", dims)], equal=equal,
                            scale=(0.3, middle(kind)), keepDims=keep)
                    if code == 81:
                        m.feeds[0] = (m.feeds[0] // (2 if kind == "i8" else 512)).astype(TYPES[kind])
                    yield f"{name} {kind}", m, 0
        yield f"MEAN of two {kind}", one(random, kind, 40, "Reducer", shape=(300, 2), to=(300,), more=[("i32", [1])],
                                         equal=True, start=(0.1, middle(kind)), keepDims=False), 0
        for code, name in ((55, "MAXIMUM"), (57, "MINIMUM")):
            yield f"{name} {kind}", two(random, kind, code), 0
        for code, name in ((71, "EQUAL"), (72, "NOT_EQUAL"), (58, "LESS"), (63, "LESS_EQUAL"), (61, "GREATER"),
                           (62, "GREATER_EQUAL")):
            yield f"{name} {kind}", two(random, kind, code, result="b8"), 0
        for alpha in (-0.3, 0.0, 1.5):
            yield f"LEAKY_RELU {kind}", one(random, kind, 98, "LeakyRelu", shape=(900,), alpha=alpha), 0
        for tanh in (False, True):
            yield f"GELU {kind}", one(random, kind, 150, "Gelu", shape=(900,), approximate=tanh), 0
        for beta, size in ((1.0, 2), (0.5, 30), (1.0, 1001)):
            yield f"SOFTMAX {kind}", one(random, kind, 25, "Softmax", scale=SHARES[kind], shape=(20, size), beta=beta), 0
        yield f"RELU {kind}", one(random, kind, 19, shape=(3000,)), 0
        yield f"MAX_POOL_2D {kind}", one(random, kind, 17, "Pool2D", shape=(1, 7, 7, 3), to=(1, 4, 4, 3), padding=0,
                                         strideW=2, strideH=2, filterWidth=3, filterHeight=3), 0
        if kind != "u8":
            for code, name, start in ((75, "SQRT", 0), (76, "RSQRT", 0), (73, "LOG", 0), (47, "EXP", 0.001)):
                m = one(random, kind, code, shape=(900,), start=(0.001, 3 * (kind == "i8")) if start else None)
                if code in (75, 76):  # of what is not negative
                    m.feeds[0] = np.maximum(m.feeds[0], 30).astype(TYPES[kind])
                yield f"{name} {kind}", m, 0
            yield f"NEG {kind}", one(random, kind, 59, "Neg", shape=(900,)), 0
            for code, name in ((90, "FLOOR_DIV"), (95, "FLOOR_MOD")):
                m = two(random, kind, code)
                m.feeds[1] = np.where(m.feeds[1] == 0, 7, m.feeds[1]).astype(TYPES[kind])
                yield f"{name} {kind}", m, 0
        if kind != "i16":
            for alpha in ((1, 4, 5, 3), (1, 1, 3), (3,)):
                yield f"PRELU {kind}", two(random, kind, 54, shape=alpha), 0
            yield f"RELU_0_TO_1 {kind}", one(random, kind, 152, shape=(900,)), 0
            yield f"SOFTMAX {kind} to i16", one(random, kind, 25, "Softmax", scale=SHARES["i16"], shape=(50, 30),
                                                result="i16", beta=1.0), 0
            yield (f"L2_NORMALIZATION {kind}", one(random, kind, 11, "L2Norm", scale=(1 / 128, 128 * (kind == "u8")),
                                                   shape=(50, 30)), 0)
            m = two(random, kind, 42, "Div")
            m.feeds[1] = random.integers(60, 100, m.feeds[1].shape).astype(TYPES[kind])
            m.graph.tensors[2].quantization.scale = np.float32([0.01])
            yield f"DIV {kind}", m, 0
    for shape in ((1, 4, 5, 3), (3,)):
        yield "SQUARED_DIFFERENCE i8", two(random, "i8", 99, shape=shape), 0
    yield "SVDF i8", remembered_codes(random), 0


def middle(kind):
    """The zero point of codes around 0."""
    return 128 if kind == "u8" else 0


def boxes(random):
    for most, each in ((10, 1), (40, 1), (6, 2)):
        yield "TFLite_Detection_PostProcess", detections(random, most=most, each=each), 0
    for most, per_class in ((10, 100), (40, 4), (7, 2)):
        yield ("TFLite_Detection_PostProcess by class", detections(random, most=most, per_class=per_class, regular=True),
               0)
    for version in (4, 5):
        for n, most in ((60, 10), (20, 30)):
            m = Model(random)
            corners = random.random((n, 2, 2)) * 0.6
            x = m.input("f32", [n, 4])
            m.feeds[0] = np.concatenate([corners[:, 0], corners[:, 0] + 0.1 + corners[:, 1]], 1).astype(np.float32)
            scores = m.input("f32", [n])
            rest = [m.tensor("i32", [], value=most), m.tensor("f32", [], value=0.4), m.tensor("f32", [], value=0.1)]
            out = [m.tensor("i32", [most])] + [m.tensor("f32", [most])] * (version == 5) + [m.tensor("i32", [])]
            if version == 5:
                rest.append(m.tensor("f32", [], value=0.0))
            m.op(116 + version, [x, scores] + rest, out)
            yield f"NON_MAX_SUPPRESSION_V{version}", m, 0
    for shape in ((7,), (7, 3)):
        m = Model(random)
        asked, keys = m.input("i32", [5]), m.tensor("i32", [7], value=[-4, 0, 3, 5, 8, 11, 20])
        m.feeds[0] = np.array([5, 1, -4, 20, 6], np.int32)
        rows = m.tensor("f32", shape, value=m.values("f32", shape))
        m.op(10, [asked, keys, rows], [m.tensor("f32", [5, *shape[1:]]), m.tensor("u8", [5])])
        yield "HASHTABLE_LOOKUP", m, 0


def detections(random, anchors=60, classes=5, each=1, most=10, per_class=100, regular=False):
    from flatbuffers import flexbuffers

    m = Model(random)
    boxes, scores = m.input("f32", [1, anchors, 4]), m.input("f32", [1, anchors, classes + 1])
    m.feeds[1] = random.random((1, anchors, classes + 1)).astype(np.float32)
    places = random.random((anchors, 4)).astype(np.float32)
    outputs = [m.tensor("f32", s) for s in ([1, most * each, 4], [1, most * each], [1, most * each], [1])]
    m.op(32, [boxes, scores, m.tensor("f32", [anchors, 4], value=places)], outputs)
    m.model.operatorCodes[0].customCode = b"TFLite_Detection_PostProcess"
    options = flexbuffers.Dumps(dict(max_detections=most, max_classes_per_detection=each,
                                     detections_per_class=per_class, use_regular_nms=regular, nms_score_threshold=0.3, nms_iou_threshold=0.5,
                                     num_classes=classes, y_scale=10.0, x_scale=10.0, h_scale=5.0, w_scale=5.0))
    m.graph.operators[0].customOptions = np.frombuffer(options, np.uint8)
    return m


def remembered(random, batch=2, size=4, units=3, rank=2, steps=5):
    m = Model(random)
    x, memory = m.input("f32", [batch, size]), m.tensor("f32", [batch, units * rank * steps])
    m.graph.tensors[memory].isVariable = True
    w = [m.tensor("f32", s, value=m.values("f32", s)) for s in ([units * rank, size], [units * rank, steps], [units])]
    m.op(27, [x] + w + [memory], [m.tensor("f32", [batch, units])], "SVDF", rank=rank, fusedActivationFunction=1)
    return m


def remembered_codes(random, batch=2, size=4, units=3, rank=2, steps=5):
    m, filters = Model(random), units * rank
    x, memory = m.input("i8", [batch, size], (0.03, 3)), m.tensor("i16", [batch, filters * steps], (5e-4, 0))
    m.graph.tensors[memory].isVariable = True
    w = [m.tensor("i8", [filters, size], (0.01, 0), m.values("i8", [filters, size])),
         m.tensor("i16", [filters, steps], (3e-4, 0), random.integers(-9000, 9000, [filters, steps])),
         m.tensor("i32", [units], (1.5e-7, 0), random.integers(-90000, 90000, units))]
    m.op(27, [x] + w + [memory], [m.tensor("i8", [batch, units], (0.02, -4))], "SVDF", rank=rank,
         fusedActivationFunction=1)
    return m


def plain_recurrent(random, code, relu, time_major=False, merge=False, batch=2, steps=4, size=3, units=5):
    m, both = Model(random), code == 46
    shape = [batch] if code == 24 else [steps, batch] if time_major else [batch, steps]
    inputs = [m.input("f32", shape + [size])]
    for _ in range(1 + both):
        inputs += [m.tensor("f32", s, value=m.values("f32", s) * np.float32(0.4))
                   for s in ([units, size], [units, units], [units])]
        inputs.append(m.tensor("f32", [batch, units]))
        m.graph.tensors[inputs[-1]].isVariable = True
    fields = dict(fusedActivationFunction=1 if relu else 4)
    if code != 24:
        fields["timeMajor"] = time_major
    if both:
        fields["mergeOutputs"] = merge
        inputs += [-1] * 3
    outputs = [m.tensor("f32", shape + [units * (1 + merge)]) for _ in range(1 + (both and not merge))]
    m.op(code, inputs, outputs, {24: "RNN", 35: "SequenceRNN", 46: "BidirectionalSequenceRNN"}[code], **fields)
    return m


def recurrent(random, time_major, peepholes, batch=2, steps=4, size=3, units=5, merge=False, both=False):
    m = Model(random)
    shape = [steps, batch] if time_major else [batch, steps]
    x = m.input("f32", shape + [size])

    def weight(*s):
        return m.tensor("f32", s, value=m.values("f32", list(s)) * np.float32(0.5))

    inputs = [x]
    for _ in range(1 + both):
        inputs += [weight(units, size) for _ in range(4)] + [weight(units, units) for _ in range(4)]
        inputs += [weight(units) if peepholes else -1 for _ in range(3)] + [weight(units) for _ in range(4)] + [-1, -1]
    for _ in range(2 + 2 * both):
        i = m.tensor("f32", [batch, units])
        m.graph.tensors[i].isVariable = True
        inputs.append(i)
    fields = dict(fusedActivationFunction=4, timeMajor=time_major)
    if both:
        outputs = [m.tensor("f32", shape + [units * (1 + merge)]) for _ in range(2 - merge)]
        m.op(52, inputs + [-1] * 9, outputs, "BidirectionalSequenceLSTM", mergeOutputs=merge, **fields)
    else:
        m.op(44, inputs + [-1] * 4, [m.tensor("f32", shape + [units])], "UnidirectionalSequenceLSTM", **fields)
    return m


def integer_recurrent(random, time_major=False, peepholes=False, coupled=False, projection=0, clip=0.0, power=-11,
                      batch=2, steps=7, size=6, cells=5):
    """An LSTM of 8-bit codes with cells of 16 bits."""
    m = Model(random)
    shape, results = [steps, batch] if time_major else [batch, steps], projection or cells
    x = m.input("i8", shape + [size], (0.03, int(random.integers(-20, 20))))

    def weight(*s):
        scale = random.uniform(0.004, 0.012), 0
        return m.tensor("i8", s, scale, random.integers(-127, 128, s))

    def bias(n):
        return m.tensor("i32", [n], (1e-4, 0), random.integers(-9000, 9000, n))

    def gates(make):
        return [-1] * coupled + [make() for _ in range(4 - coupled)]

    inputs = [x] + gates(lambda: weight(cells, size)) + gates(lambda: weight(cells, results))
    for k in range(3):
        there = peepholes and not (coupled and k == 0)
        inputs.append(m.tensor("i16", [cells], (2e-5, 0), random.integers(-32767, 32767, cells)) if there else -1)
    inputs += gates(lambda: bias(cells))
    inputs += [weight(projection, cells), bias(projection)] if projection else [-1, -1]
    state = (0.01, int(random.integers(-20, 20)))
    for kind, n, scale in (("i8", results, state), ("i16", cells, (2.0**power, 0))):
        inputs.append(m.tensor(kind, [batch, n], scale))
        m.graph.tensors[inputs[-1]].isVariable = True
    m.op(44, inputs + [-1] * 4, [m.tensor("i8", shape + [results], state)], "UnidirectionalSequenceLSTM",
         fusedActivationFunction=4, timeMajor=time_major, cellClip=clip)
    hidden = (random.uniform(0.004, 0.008), int(random.integers(-9, 9))) if projection else state
    m.graph.operators[0].intermediates = [m.tensor("i8", [], (1.0, 0)) for _ in range(4)] + [
        m.tensor("i8", [batch, cells], hidden)]
    return m
