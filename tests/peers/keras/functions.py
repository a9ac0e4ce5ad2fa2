# SPDX-License-Identifier: Apache-2.0
# The functions of tests/peers/tensorflow: a SavedModel for each, on numbers of a fixed seed.
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(2)
X = rng.uniform(0.1, 1, (4, 5)).astype("float32")
SQUARE = (rng.uniform(-1, 1, (2, 4, 4)) + 3 * np.eye(4)).astype("float32")
POSITIVE = (SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(4)).astype("float32")
RIGHT = rng.uniform(-1, 1, (2, 4, 3)).astype("float32")
WAVE = rng.uniform(-1, 1, (2, 3, 16)).astype("float32")
corner = rng.uniform(0, 0.6, (12, 2))
BOXES = np.concatenate([corner, corner + rng.uniform(0.2, 0.4, (12, 2))], 1).astype("float32")
SCORES = rng.permutation(np.linspace(0.05, 0.95, 12)).astype("float32")
IDS = np.array([0, 0, 1, 3], "int32")
ANY_IDS = np.array([2, 0, -1, 2], "int32")
REPEATED = np.array([5, 2, 5, 7, 2, 9, 2], "int32")
I = tf.image
M = tf.math
R = tf.raw_ops
combined = (np.stack([BOXES, BOXES[::-1]])[:, :, None], np.stack([SCORES, SCORES[::-1]])[:, :, None] * np.array([1.0, 0.7], "float32"))

IMAGES = rng.uniform(0, 1, (2, 5, 6, 3)).astype("float32")
CROPS = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [0.9, 0.8, 0.15, 0.1], [-0.3, 0.2, 0.6, 1.4], [0.3, 0.3, 0.3, 0.3]], "float32")


def composed(x, full):
    """A matrix from its factors, whose signs are free, their sizes and the singular values."""
    s, u, v = tf.linalg.svd(x, full_matrices=full)
    k = tf.shape(s)[-1]
    return [s, tf.matmul(u[..., :k] * s[:, None], v[..., :k], transpose_b=True), tf.abs(u[..., :k]), tf.abs(v[..., :k]), tf.shape(u), tf.shape(v),
            tf.matmul(u, u, transpose_a=True)]


def checked(x):
    """Checks and lines of a log, with texts that are made for them alone."""
    tf.print("x is", x, summarize=2)
    tf.debugging.assert_greater(x, 0.0, tf.strings.format("x is {}", x))
    tf.debugging.assert_equal(tf.shape(x)[0], 4, tf.strings.join(["not ", tf.strings.as_string(tf.shape(x)[0])]))
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x < 2.0), [tf.strings.format("{} of {}", (x[0], tf.reduce_sum(x)))])]):
        return [x * 2.0]


def as_numpy(y):
    """NumPy has no bfloat16."""
    return tf.cast(y, tf.float32) if y.dtype == tf.bfloat16 else y


CASES = {
    "unique": (lambda x: [*tf.unique(x), *tf.unique_with_counts(x)], REPEATED),
    "segments": (lambda x, i: [M.segment_sum(x, i), M.segment_mean(x, i), M.segment_prod(x, i), M.segment_max(x, i), M.segment_min(x, i)], X, IDS),
    "unsorted_segments": (lambda x, i: [M.unsorted_segment_sum(x, i, 4), M.unsorted_segment_mean(x, i, 4), M.unsorted_segment_prod(x, i, 4),
                                        M.unsorted_segment_max(x, i, 4), M.unsorted_segment_min(x, i, 4), M.unsorted_segment_sqrt_n(x, i, 4)], X, ANY_IDS),
    "empty_segments": (lambda x, i: [as_numpy(f(tf.cast(10 * x, t), i, 4)) for t in (tf.float16, tf.float64, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.int8)
                                     for f in (M.unsorted_segment_max, M.unsorted_segment_min, M.unsorted_segment_sum)], X, ANY_IDS),
    "sparse_segments": (lambda x, i: [tf.sparse.segment_sum(x, [0, 2, 1, 3], i), tf.sparse.segment_mean(x, [0, 2, 1, 3], i),
                                      tf.sparse.segment_sqrt_n(x, [0, 2, 1, 3], i), tf.sparse.segment_sum(x, [0, 2, 1, 3], i, num_segments=6)], X, IDS),
    "boxes": (lambda b, s: [I.non_max_suppression(b, s, 5, 0.3), I.non_max_suppression(b, s, 9, 0.3, 0.4), *I.non_max_suppression_padded(b, s, 9, 0.3, pad_to_max_output_size=True),
                            *R.NonMaxSuppressionV5(boxes=b, scores=s, max_output_size=9, iou_threshold=0.3, score_threshold=0.2, soft_nms_sigma=0.0, pad_to_max_output_size=True)[:3]], BOXES, SCORES),
    "combined_boxes": (lambda b, s: list(I.combined_non_max_suppression(b, s, 4, 6, 0.3, 0.2)) + list(I.combined_non_max_suppression(b, s, 2, 9, 0.3, 0.2, pad_per_class=True)), *combined),
    "fourier": (lambda x: [tf.abs(tf.signal.rfft(x)), M.real(tf.signal.rfft(x, [12])), M.imag(tf.signal.rfft(x, [20])), tf.signal.irfft(tf.signal.rfft(x)),
                           M.angle(tf.signal.rfft(x[..., 1:])), tf.abs(tf.signal.fft(tf.complex(x, 2.0 * x))), M.real(tf.signal.ifft(tf.complex(x, x))),
                           tf.abs(tf.signal.fft2d(tf.complex(x, x))), tf.signal.irfft2d(tf.signal.rfft2d(x)), M.imag(M.conj(tf.signal.rfft(x)))], WAVE),
    "fourier64": (lambda x: [tf.abs(tf.signal.rfft(x)), M.real(tf.signal.rfft(x, [12])), M.imag(tf.signal.fft(tf.complex(x, 2 * x))), tf.signal.irfft(tf.signal.rfft(x)),
                             M.angle(M.conj(tf.signal.rfft(x)))], WAVE.astype("float64")),
    "matrices": (lambda a, p, b: [tf.linalg.inv(a), tf.linalg.inv(a, adjoint=True), tf.linalg.cholesky(p), tf.linalg.solve(a, b), tf.linalg.solve(a, b, adjoint=True),
                                  tf.linalg.triangular_solve(a, b), tf.linalg.triangular_solve(a, b, lower=False), tf.linalg.triangular_solve(a, b, adjoint=True),
                                  tf.linalg.det(a), *tf.linalg.slogdet(a), tf.linalg.diag_part(a), tf.linalg.diag(b), tf.linalg.set_diag(a, a[:, 0]),
                                  tf.linalg.cross(b, b[:, ::-1]), tf.linalg.band_part(a, 1, 0), tf.linalg.trace(a), tf.linalg.matmul(*tf.linalg.qr(a))], SQUARE, POSITIVE, RIGHT),
    "factors": (lambda a, b, p: [*[t for x in (a, b, tf.transpose(b, [0, 2, 1])) for full in (False, True) for t in composed(x, full)], tf.linalg.svd(a, compute_uv=False),
                                 tf.linalg.eigvalsh(p), tf.linalg.eigh(p)[0], tf.abs(tf.linalg.eigh(p)[1])], SQUARE, RIGHT, POSITIVE),
    "crops": (lambda x, b: [I.crop_and_resize(x, b, [0, 1, 1, 0, 1], size, method, fill) for size in ([3, 4], [7, 9], [1, 1], [1, 5]) for method in ("bilinear", "nearest") for fill in (0.0, -2.5)]
              + [I.crop_and_resize(tf.cast(255 * x, tf.uint8), b, [0, 1, 1, 0, 1], [4, 3])], IMAGES, CROPS),
    "checked": (checked, X),
    "cumulative": (lambda x: [M.cumprod(x, 1), M.cumprod(x, 1, exclusive=True), M.cumprod(x, 0, reverse=True), M.cumulative_logsumexp(x, 1), M.cumsum(x, 1, True, True)], X),
    "counts": (lambda x: [M.bincount(x), M.bincount(x, minlength=12), tf.math.bincount(x, minlength=4, maxlength=6), M.bincount(tf.stack([x, x + 1]), axis=-1, minlength=3)], REPEATED),
    "search": (lambda x: [tf.searchsorted([0.2, 0.5, 0.5, 0.8], x[0]), tf.searchsorted([0.2, 0.5, 0.5, 0.8], x[1], side="right"),
                          R.Bucketize(input=x, boundaries=[0.2, 0.5]), M.in_top_k([1, 0, 3, 2], x, 2), *M.top_k(x, 3), tf.argsort(x), tf.sort(x, direction="DESCENDING")], X),
    "places": (lambda x: [tf.reverse_sequence(x, [2, 5, 0, 1], 1), R.SparseToDense(sparse_indices=[1, 3], output_shape=[5], sparse_values=x[0, :2], default_value=0.5),
                          tf.dynamic_stitch([[0, 2], [3, 1]], [x[:2], x[2:]]), *tf.dynamic_partition(x, [0, 1, 1, 0], 2), tf.linspace(0.0, 2.0, 5), tf.sparse.to_dense(
                              tf.SparseTensor([[0, 1], [2, 3]], x[0, :2], [4, 5]))], X),
    "special": (lambda x: [M.igamma(x, x + 1.0), M.igammac(x, x + 1.0), M.zeta(x + 1.5, x + 0.5), M.xlog1py(x, x), M.ndtri(x * 0.9), M.bessel_i0(x), M.bessel_i1(x),
                           M.bessel_i0e(x), M.bessel_i1e(x), M.lgamma(x), M.digamma(x), tf.bitwise.left_shift(tf.cast(x * 9.0, tf.int32), 2)], X),
}


def module_of(name):
    """A module whose call gives {"y0": ..., ...}, and its inputs."""
    f, *xs = CASES[name]
    specs = [tf.TensorSpec(x.shape, x.dtype, "x%d" % i) for i, x in enumerate(xs)]
    module = tf.Module()
    module.call = tf.function(lambda *x: {"y%d" % i: y for i, y in enumerate(f(*x))}, input_signature=specs)
    return module, {"x%d" % i: x for i, x in enumerate(xs)}
