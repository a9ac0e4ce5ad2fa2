# SPDX-License-Identifier: Apache-2.0
"""The servers beside `tandem serve` that bench/compare_serve starts: one ONNX model in onnxruntime with one thread, behind the V2
protocol, so that the same client asks all of them.

usage: peers_serve.py make FOLDER                 writes the models of bench/compare_serve
       peers_serve.py fastapi NAME FILE PORT      FastAPI under uvicorn (uvloop, httptools)
       peers_serve.py mlserver NAME FILE PORT single|batched
                                                  MLServer, whose ONNX runtime is a class of one's own (peers_mlserver.py)
       peers_serve.py openvino FILE [SECONDS]     no server: rows a second of OpenVINO called directly

FastAPI's handler is a coroutine that calls onnxruntime itself: with one core, one worker and one thread no other form was faster.
Bodies are read by orjson without a schema, or as V2's binary tensors.
"""
import json
import os
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {"FP32": "float32", "INT64": "int64", "FP64": "float64"}


def make(folder):
    """mlp: 784-1024-1024-10; lenet: two convolutions and two layers for 28x28. Open batch, random weights."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    draw = np.random.default_rng(7)

    def write(name, shape, nodes, weights):
        graph = helper.make_graph(
            [helper.make_node(op, inputs, [out], **more) for op, inputs, out, more in nodes], name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
            [numpy_helper.from_array((draw.standard_normal(s) / np.sqrt(np.prod(s[1:]) if len(s) == 4 else s[0]))
                                     .astype(np.float32), k) for k, s in weights.items()])
        os.makedirs(folder, exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
                  os.path.join(folder, name + ".onnx"))

    write("mlp", [784],
          [("MatMul", ["x", "a"], "h1", {}), ("Relu", ["h1"], "r1", {}), ("MatMul", ["r1", "b"], "h2", {}),
           ("Relu", ["h2"], "r2", {}), ("MatMul", ["r2", "c"], "y", {})],
          {"a": (784, 1024), "b": (1024, 1024), "c": (1024, 10)})
    write("lenet", [1, 28, 28],
          [("Conv", ["x", "a"], "h1", {"pads": [2, 2, 2, 2]}), ("Relu", ["h1"], "r1", {}),
           ("MaxPool", ["r1"], "p1", {"kernel_shape": [2, 2], "strides": [2, 2]}),
           ("Conv", ["p1", "b"], "h2", {}), ("Relu", ["h2"], "r2", {}),
           ("MaxPool", ["r2"], "p2", {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Flatten", ["p2"], "f", {}),
           ("MatMul", ["f", "c"], "h3", {}), ("Relu", ["h3"], "r3", {}), ("MatMul", ["r3", "d"], "y", {})],
          {"a": (6, 1, 5, 5), "b": (16, 6, 5, 5), "c": (400, 120), "d": (120, 10)})


def open_session(path):
    """onnxruntime with one thread, the names of its inputs, and the metadata that V2 describes them by."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": "FP32", "tensor(int64)": "INT64", "tensor(double)": "FP64"}

    def port(p):
        return {"name": p.name, "datatype": kinds[p.type], "shape": [d if isinstance(d, int) else -1 for d in p.shape]}
    return session, [port(p) for p in session.get_inputs()], [port(p) for p in session.get_outputs()]


def fastapi_app(name, path):
    import numpy as np
    import orjson
    from fastapi import FastAPI, Request, Response
    session, inputs, outputs = open_session(path)
    names = [p["name"] for p in outputs]
    app = FastAPI()

    @app.get("/v2/models/" + name)
    async def metadata():
        return {"name": name, "platform": "onnxruntime", "inputs": inputs, "outputs": outputs}

    @app.get("/v2/health/ready")
    async def ready():
        return {}

    @app.post(f"/v2/models/{name}/infer")
    async def infer(request: Request):
        body = await request.body()
        length = request.headers.get("inference-header-content-length")
        head = orjson.loads(body[:int(length)] if length else body)
        feed, at = {}, int(length or 0)
        for t in head["inputs"]:
            kind = np.dtype(NAMES[t["datatype"]])
            if length:
                size = t["parameters"]["binary_data_size"]
                value = np.frombuffer(body, kind, size // kind.itemsize, at)
                at += size
            else:
                value = np.array(t["data"], kind)
            feed[t["name"]] = value.reshape(t["shape"])
        values = session.run(None, feed)
        if length:
            answer = orjson.dumps({"model_name": name, "outputs": [
                {**p, "shape": v.shape, "parameters": {"binary_data_size": v.nbytes}} for p, v in zip(outputs, values)]})
            return Response(answer + b"".join(v.tobytes() for v in values), media_type="application/octet-stream",
                            headers={"inference-header-content-length": str(len(answer))})
        return Response(orjson.dumps(
            {"model_name": name, "outputs": [{"name": n, "datatype": p["datatype"], "shape": v.shape, "data": v.ravel()}
                                             for n, p, v in zip(names, outputs, values)]},
            option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")
    return app


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


BATCHES = {"single": {}, "batched": {"max_batch_size": 32, "max_batch_time": 0.002}}


def run_mlserver(name, path, port, batches):
    """MLServer in this process: no parallel workers (they would share the core)."""
    import tempfile
    folder = tempfile.mkdtemp(prefix="mlserver-")
    settings = {"http_port": port, "grpc_port": free_port(), "metrics_endpoint": None, "host": "127.0.0.1",
                "parallel_workers": 0, "debug": False, "use_structured_logging": False}
    _, inputs, outputs = open_session(path)
    model = {"name": name, "implementation": "peers_mlserver.OnnxModel", "parameters": {"uri": os.path.abspath(path)},
             "inputs": inputs, "outputs": outputs, **BATCHES[batches]}
    for file, value in (("settings.json", settings), ("model-settings.json", model)):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            json.dump(value, f)
    os.environ["PYTHONPATH"] = HERE
    tool = os.path.join(os.path.dirname(sys.executable), "mlserver")
    os.execv(tool, [tool, "start", folder])


def openvino_rate(path, seconds):
    """Rows a second, one at a time: what a server around OpenVINO that costs nothing could reach on this core."""
    import numpy as np
    import openvino
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape([1 if d.is_dynamic else d.get_length() for d in model.input(0).partial_shape])
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1,
                                                 "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    request.get_input_tensor(0).data[:] = np.random.default_rng(0).standard_normal(compiled.input(0).shape)
    for _ in range(100):
        request.infer()
    n, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        request.infer()
        n += 1
    print(json.dumps({"rate": n / (time.perf_counter() - begin), "version": openvino.__version__}))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "make":
        make(*rest)
    elif what == "fastapi":
        import uvicorn
        uvicorn.run(fastapi_app(*rest[:2]), host="127.0.0.1", port=int(rest[2]), loop="uvloop", http="httptools",
                    log_level="warning", access_log=False)
    elif what == "mlserver":
        run_mlserver(rest[0], rest[1], int(rest[2]), rest[3])
    else:
        openvino_rate(rest[0], float(rest[1]) if len(rest) > 1 else 3)
