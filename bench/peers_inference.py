# SPDX-License-Identifier: Apache-2.0
"""onnxruntime and OpenVINO for bench/compare_inference; prints one JSON line.

usage: peers_inference.py PEER export MODEL PATH         write a model with random weights
       peers_inference.py PEER answer PATH MODEL X Y     an input, and the answer to it
       peers_inference.py PEER difference GOT WANT       of the first array in GOT
       peers_inference.py PEER bench PATH MODEL THREADS SECONDS
       peers_inference.py PEER files                     the names in bench/wheel_models.py
       peers_inference.py PEER fetch MODEL FOLDER        a file of theirs, and inputs for it
       peers_inference.py PEER outputs PATH NPZ OUT      all outputs for the inputs in a file
       peers_inference.py PEER turns PATH NPZ THREADS SECONDS   measures for each line of stdin
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


def runtime(path, threads):
    import onnxruntime as o
    o.set_default_logger_severity(3)
    options = o.SessionOptions()
    options.intra_op_num_threads = threads
    return o.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def session(peer, path, threads):
    if peer == "onnxruntime":
        import onnxruntime as o
        t = time.perf_counter()
        s = runtime(path, threads)
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


def times_of(f, seconds):
    """Of clock and of all threads' CPU, each sorted."""
    times, cpu, begin = [], [], time.perf_counter()
    while not times or time.perf_counter() - begin < seconds:
        c, t = time.process_time(), time.perf_counter()
        f()
        times.append(time.perf_counter() - t)
        cpu.append(time.process_time() - c)
    return sorted(times), sorted(cpu)


def turns(path, inputs, threads, seconds):
    s, x = runtime(path, threads), dict(np.load(inputs))
    for _ in range(4):
        s.run(None, x)
    for _ in sys.stdin:
        times, cpu = times_of(lambda: s.run(None, x), seconds)
        print(json.dumps({"median_ms": times[len(times) // 2] * 1e3, "min_ms": times[0] * 1e3,
                          "min_cpu_ms": cpu[0] * 1e3, "runs": len(times)}), flush=True)


def largest_gap(got, want):
    """Of all outputs, relative to the largest value of each; infinite where shapes differ."""
    worst = 0.0
    for name in want:
        a, b = got[name].astype(np.float64), want[name].astype(np.float64)
        if a.shape != b.shape or not np.isfinite(a).all():
            return float("inf")
        worst = max(worst, float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30)))
    return worst


def main():
    peer, verb, *a = sys.argv[1:]
    if verb == "turns":
        return turns(a[0], a[1], int(a[2]), float(a[3]))
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
        if isinstance(want, np.ndarray):
            got, want = {"y": got[list(got.keys())[0]]}, {"y": want}
        line = {"difference": largest_gap(got, want)}
    elif verb == "files":
        import wheel_models
        line = list(wheel_models.FILES)
    elif verb == "fetch":
        import wheel_models
        path, inputs = wheel_models.fetch(*a)
        line = {"path": path, "inputs": inputs}
    elif verb == "outputs":
        s = runtime(a[0], 2)
        np.savez(a[2], **dict(zip([o.name for o in s.get_outputs()],
                                  s.run(None, dict(np.load(a[1]))))))
        line = {}
    else:
        line = bench(peer, a[0], a[1], int(a[2]), float(a[3]))
    print(json.dumps(line))


if __name__ == "__main__":
    main()
