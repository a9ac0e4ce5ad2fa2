#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the files of tensorflow_test.cpp: a SavedModel with two signatures, state and control flow,
# Keras models as .keras and .h5, a checkpoint, a frozen graph, and what TensorFlow gives for them.
# Run once; TensorFlow 2.21, Keras 3.15.
import json
import os
import shutil

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")
import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

here = os.path.dirname(os.path.abspath(__file__))
keras.utils.set_random_seed(0)
L = keras.layers


class Running(tf.Module):
    def __init__(self):
        super().__init__()
        self.mean = tf.Variable([0.5, -0.5], name="mean")
        self.steps = tf.Variable(2, name="steps")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "rows")])
    def feed(self, rows):
        for i in tf.range(tf.shape(rows)[0]):
            if rows[i, 0] > 0.0:
                self.steps.assign_add(1)
                self.mean.assign_add((rows[i] - self.mean) / tf.cast(self.steps, tf.float32))
        return {"mean": self.mean.read_value(), "centred": rows - self.mean}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "which")])
    def pick(self, which):
        return {"y": tf.switch_case(which, [lambda: self.mean + 1.0, lambda: self.mean * 2.0])}


def values(d):
    return {k: {"shape": list(np.shape(v)), "values": [float(x) for x in np.ravel(v)]} for k, v in d.items()}


out = {}
module = Running()
path = os.path.join(here, "running")
shutil.rmtree(path, ignore_errors=True)
tf.saved_model.save(module, path, {"feed": module.feed, "pick": module.pick})
os.remove(os.path.join(path, "fingerprint.pb"))
os.rmdir(os.path.join(path, "assets"))
rows = np.array([[1, 2], [-1, 3], [0.5, 0.25], [2, -1]], "float32")
out["pick"] = values({"y": module.pick(1)["y"]})
out["feed"] = values(module.feed(rows))
out["feed_again"] = values(module.feed(rows[::-1] * 0.5))
tf.train.Checkpoint(module=module).write(os.path.join(here, "running_checkpoint"))

rng = np.random.default_rng(0)


def save(net, name):
    for w in net.weights:
        sign = 1 if "gamma" in w.name or "variance" in w.name else rng.choice([-1, 1], w.shape)
        w.assign(rng.uniform(0.1, 1, w.shape) * sign)
    net.save(os.path.join(here, name))


image = np.arange(144, dtype="float32").reshape(2, 6, 6, 2) / 144
a = keras.Input((6, 6, 2), name="image")
x = L.Conv2D(3, 3, strides=2, padding="same", activation="relu")(a)
x = keras.Sequential([L.BatchNormalization()], name="inner")(x)
y = L.Bidirectional(L.LSTM(2))(L.Reshape((-1, 3))(x))
net = keras.Model(a, L.Dense(2, activation="gelu")(L.Concatenate()([L.GlobalAveragePooling2D()(x), y])))
save(net, "net.keras")
out["net"] = values({"y": net(image)})
line = keras.Sequential([keras.Input((9, 8)), L.Conv1D(3, 3), keras.Sequential([L.GRU(2)], name="inner")])
save(line, "line.h5")
out["line"] = values({"y": line(image.reshape(2, 9, 8))})

# Masks of steps, slices and functions between layers, layers whose work depends on sizes.
ids = keras.Input((5,), dtype="int32", name="ids")
e = L.Embedding(7, 3, mask_zero=True)(ids)
steps = L.Bidirectional(L.GRU(2, return_sequences=True))(e)
y = L.LSTM(2)(L.Dropout(0.5)(steps))
z = L.GroupQueryAttention(2, 4, 2)(e, e)[:, 1:4, ::2]
net = keras.Model(ids, [y, L.RMSNormalization()(z), keras.ops.mean(e * 2, axis=1), L.GlobalAveragePooling1D()(e)])
save(net, "masked.keras")
net.save(os.path.join(here, "masked.h5"))
words = np.array([[3, 0, 5, 0, 1], [0, 0, 2, 6, 4]], "int32")
out["masked"] = values(dict(zip("abcd", net(words))))
a = keras.Input((3, 6, 6, 2), name="images")
x = L.TimeDistributed(keras.Sequential([L.CenterCrop(5, 4), L.RandomFlip(), L.Rescaling([2.0, 1.0], [0.0, 0.5])]))(a)
net = keras.Model(a, [L.ConvLSTM2D(2, 2)(x), L.Dot(1)([L.Flatten()(x), L.Flatten()(x)])])
save(net, "images.keras")
out["images"] = values(dict(zip("ab", net(np.stack([image, image[::-1], image * 2], 1), training=False))))


def resized(x):
    """Cubic images of each kind of TensorFlow, and rows collected in an array that grows, with gaps."""
    v1 = tf.compat.v1.image.resize_bicubic
    rows = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[6, 6, 2]).write(3, x[1]).write(1, x[0])
    return {"half": tf.image.resize(x, [9, 4], "bicubic"), "legacy": v1(x, [4, 11]),
            "corners": v1(x, [11, 5], align_corners=True), "rows": rows.stack()}


def write_frozen(f, name):
    """A frozen graph whose outputs are `f`'s, by the names of the keys in their order."""
    f = tf.function(f).get_concrete_function(tf.TensorSpec([2, 6, 6, 2], tf.float32, "x"))
    with open(os.path.join(here, name + ".pb"), "wb") as file:
        file.write(convert_variables_to_constants_v2(f).graph.as_graph_def().SerializeToString())
    out[name] = values(f(tf.constant(image)))


write_frozen(resized, "resized")


def counted(x):
    """Segments, unique values, boxes, matrices, Fourier transforms."""
    ids = tf.constant([0, 0, 2, 3, 3, 3])
    rows = x[0, :, :, 0]
    corners = tf.concat([x[0, :, :2, 0], x[0, :, :2, 0] + 0.4], 1)
    square = tf.linalg.band_part(rows, -1, 0) + tf.eye(6)
    best = tf.raw_ops.NonMaxSuppressionV5(boxes=corners, scores=x[1, :, 0, 0], max_output_size=4, iou_threshold=0.6, score_threshold=0.1,
                                          soft_nms_sigma=0.0, pad_to_max_output_size=True)
    return {"a": tf.math.segment_mean(rows, ids), "b": tf.math.unsorted_segment_max(rows, [1, -1, 0, 1, 0, 1], 3),
            "c": tf.unique(tf.cast(rows[0] * 30, tf.int32))[0], "d": best[0], "e": best[1], "f": tf.linalg.inv(square),
            "g": tf.linalg.solve(square, rows[:, :2]), "h": tf.abs(tf.signal.rfft(rows)), "i": tf.signal.irfft(tf.signal.rfft(rows, [8])),
            "j": tf.math.cumprod(rows + 1, 1, exclusive=True, reverse=True), "k": tf.math.bincount(tf.cast(rows[0] * 30, tf.int32), minlength=4, maxlength=9),
            "l": tf.reverse_sequence(rows, [1, 2, 3, 4, 5, 6], 1)}


write_frozen(counted, "counted")


def cropped(x):
    """Boxes of images, some beyond the border, and factors of matrices, whose signs are free; what is only logged."""
    boxes = tf.constant([[0.1, 0.2, 0.7, 0.9], [0.9, 0.8, 0.15, 0.1], [-0.3, 0.2, 0.6, 1.4]])
    crop = lambda size, method: tf.image.crop_and_resize(x, boxes, [0, 1, 0], size, method, 2.5)
    s, u, v = tf.linalg.svd(x[0, :, :4, 0] ** 2, full_matrices=True)
    e, w = tf.linalg.eigh(tf.linalg.band_part(x[0, :, :, 0], -1, 0))
    tf.print("s is", s)
    tf.debugging.assert_less(x, 1.0, tf.strings.format("x is {}", x))
    return {"a": crop([4, 3], "bilinear"), "b": crop([3, 1], "nearest"), "c": s, "d": tf.matmul(u[:, :4] * s, v, transpose_b=True),
            "e": tf.abs(tf.matmul(u, u, transpose_a=True)), "f": e, "g": tf.matmul(w * e, w, transpose_b=True)}


write_frozen(cropped, "cropped")
f = tf.function(lambda x: tf.nn.softmax(tf.nn.max_pool2d(x[:, 1:], 2, 2, "SAME")[:, :, 0] @ tf.transpose(tf.constant([[1.0, 2.0], [0.5, -1.0]]))))
f = f.get_concrete_function(tf.TensorSpec([None, 6, 6, 2], tf.float32))
with open(os.path.join(here, "frozen.pb"), "wb") as file:
    file.write(convert_variables_to_constants_v2(f).graph.as_graph_def().SerializeToString())
out["frozen"] = values({"y": f(tf.constant(image))[0] if isinstance(f(tf.constant(image)), list) else f(tf.constant(image))})
with open(os.path.join(here, "expected.json"), "w") as file:
    json.dump(out, file, indent=0)
    file.write("\n")
