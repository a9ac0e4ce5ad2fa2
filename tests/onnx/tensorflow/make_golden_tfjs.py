#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the models of TensorFlow.js beside this file, and what TensorFlow gives for them (tfjs_expected.json).

usage: tests/onnx/tensorflow/make_golden_tfjs.py
Needs tensorflow, tf_keras and tensorflowjs (`pip install --no-deps tensorflowjs`); of what the converter would like to import
besides, empty modules do. Inputs are (37 i mod 101) / 100, and for indices i mod 11.
"""
import builtins
import json
import os
import shutil
import sys
import tempfile
import types

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="")
import numpy as np

for name in ("object", "bool"):
    if name not in np.__dict__:
        setattr(np, name, getattr(builtins, name))
for name in ("tensorflow_hub", "tensorflow_decision_forests", "jax", "jax.experimental", "jax.experimental.jax2tf", "flax", "flax.core",
             "importlib_resources"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["tensorflow_decision_forests"].keras = types.SimpleNamespace()
import tensorflow as tf
import tf_keras as keras
from tensorflowjs.converters import converter
from tensorflowjs.converters import tf_saved_model_conversion_v2 as graphs

HERE = os.path.dirname(os.path.abspath(__file__))
layers = keras.layers


def conv_net():
    """Its graph has fused convolutions: with a bias that is another image, with PReLU, relu6 and elu."""
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="conv_a")(image)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.DepthwiseConv2D(3, strides=2, padding="same", activation="relu6", name="depth")(x)
    x = layers.Add()([layers.Conv2D(4, 1, strides=2, name="skip")(x), layers.MaxPool2D(2)(x)])
    x = layers.Flatten()(layers.PReLU(shared_axes=[1, 2], name="slope")(x))
    x = layers.Dense(5, activation="elu", name="dense_1")(x)
    return keras.Model(image, layers.Dense(3, activation="softmax", name="classes")(x))


def recurrent_net():
    return keras.Sequential([keras.Input((6,), dtype="int32", name="ids"), layers.Embedding(11, 4, name="table"),
                             layers.Bidirectional(layers.LSTM(3), name="both"), layers.Dense(2, name="out")])


def main():
    keras.utils.set_random_seed(7)
    work = tempfile.mkdtemp()
    os.chdir(work)
    net, recurrent = conv_net(), recurrent_net()
    for w in net.weights:
        if "norm" in w.name or "slope" in w.name:
            w.assign(tf.random.uniform(w.shape, 0.5, 1.5, seed=3))
    image = ((np.arange(128) * 37 % 101) / 100).astype("float32").reshape(2, 8, 8, 1)
    ids = (np.arange(12) % 11).astype("int32").reshape(2, 6)
    net.save("net.h5")
    recurrent.save("recurrent.h5")
    net.export("saved")
    converter.dispatch_keras_h5_to_tfjs_layers_model_conversion("net.h5", "tfjs_layers")
    converter.dispatch_keras_h5_to_tfjs_layers_model_conversion("recurrent.h5", "tfjs_recurrent")
    graphs.convert_tf_saved_model("saved", "tfjs_graph")
    graphs.convert_tf_saved_model("saved", "tfjs_graph_u8", quantization_dtype_map={"uint8": True})
    graphs.convert_tf_saved_model("saved", "tfjs_graph_f16", quantization_dtype_map={"float16": True})
    for folder in ("tfjs_layers", "tfjs_recurrent", "tfjs_graph", "tfjs_graph_u8", "tfjs_graph_f16"):
        shutil.rmtree(os.path.join(HERE, folder), ignore_errors=True)
        shutil.copytree(folder, os.path.join(HERE, folder))
    with open(os.path.join(HERE, "tfjs_expected.json"), "w") as f:
        json.dump({"conv": net.predict(image, verbose=0).ravel().tolist(),
                   "recurrent": recurrent.predict(ids, verbose=0).ravel().tolist()}, f)
        f.write("\n")
    shutil.rmtree(work)


main()
