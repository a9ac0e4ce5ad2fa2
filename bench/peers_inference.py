# SPDX-License-Identifier: Apache-2.0
"""onnxruntime and OpenVINO for bench/compare_inference; prints one JSON line.

usage: peers_inference.py PEER export MODEL PATH         write a model with random weights
       peers_inference.py PEER answer PATH MODEL X Y     an input, and the answer to it
       peers_inference.py PEER difference GOT WANT       of the first array in GOT
       peers_inference.py PEER bench PATH MODEL THREADS SECONDS
"""
import json
import resource
import sys
import time

import numpy as np


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def held_mb():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 2**20


def input_of(model):
    g = np.random.default_rng(0)
    if model == "bert":
        return g.integers(0, 30000, (1, 128))
    return g.standard_normal((1, 3, 224, 224)).astype("f")


def export(model, path):
    import torch
    torch.manual_seed(0)
    if model == "bert":
        from transformers import BertConfig, BertModel

        class Hidden(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.m = BertModel(BertConfig(attn_implementation="eager")).eval()

            def forward(self, i):
                return self.m(input_ids=i).last_hidden_state
        net, x, axes = Hidden(), torch.randint(0, 30000, (1, 128)), None
    else:
        import torchvision
        net = getattr(torchvision.models, model)(weights=None).eval()
        for w in net.parameters():  # a head of zeros would answer zeros
            if not w.any():
                torch.nn.init.normal_(w, std=0.02)
        x, axes = torch.randn(1, 3, 224, 224), {"x": {0: "n"}, "y": {0: "n"}}
    torch.onnx.export(net, (x,), path, input_names=["x"], output_names=["y"], dynamic_axes=axes,
                      dynamo=False, opset_version=17)


def session(peer, path, threads):
    if peer == "onnxruntime":
        import onnxruntime as o
        options = o.SessionOptions()
        options.intra_op_num_threads = threads
        t = time.perf_counter()
        s = o.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return t, lambda x: s.run(None, {"x": x})[0], o.__version__
    import openvino as ov
    t = time.perf_counter()
    m = ov.Core().compile_model(path, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"})
    return t, lambda x: m(x)[0], ov.__version__


def bench(peer, path, model, threads, seconds):
    x = input_of(model)
    __import__("onnxruntime" if peer == "onnxruntime" else "openvino")
    idle = held_mb()
    t, answer, version = session(peer, path, threads)
    answer(x)
    load = time.perf_counter() - t
    for _ in range(3):
        answer(x)
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 5:
        t = time.perf_counter()
        answer(x)
        times.append(time.perf_counter() - t)
    times.sort()
    return {"ms": times[len(times) // 2] * 1e3, "load_ms": load * 1e3,
            "memory_mb": peak_mb() - idle, "process_mb": peak_mb(), "version": version}


def main():
    peer, verb, *a = sys.argv[1:]
    if verb == "export":
        export(*a)
        line = {}
    elif verb == "answer":
        x = input_of(a[1])
        np.save(a[2], x)
        np.save(a[3], session(peer, a[0], 2)[1](x))
        line = {}
    elif verb == "difference":
        got, want = np.load(a[0]), np.load(a[1])
        got = got[list(got.keys())[0]]
        line = {"difference": float(np.abs(got - want).max() / np.abs(want).max())
                if got.shape == want.shape and np.isfinite(got).all() else float("inf")}
    else:
        line = bench(peer, a[0], a[1], int(a[2]), float(a[3]))
    print(json.dumps(line))


if __name__ == "__main__":
    main()
