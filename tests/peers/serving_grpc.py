# SPDX-License-Identifier: Apache-2.0
"""The clients of gRPC, for tests/peers/serving: tritonclient, ovmsclient, grpcio with health checks and reflection.

usage: serving_grpc.py HOST:PORT WEIGHTS.npy"""
import queue
import sys

import grpc
import numpy as np
import tritonclient.grpc as triton
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from ovmsclient import make_grpc_client
from ovmsclient.tfs_compat.base.errors import InvalidInputError, ModelNotFoundError
from tritonclient.utils import InferenceServerException

host = sys.argv[1]
w = np.load(sys.argv[2])
x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
want = x @ (2 * w)


def near(y):
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def code_of(call):
    try:
        call()
    except InferenceServerException as e:
        return e.status()
    except grpc.RpcError as e:
        return e.code().name
    raise SystemExit("an error was wanted")


def infer_input(values=x):
    i = triton.InferInput("x", list(values.shape), "FP32")
    i.set_data_from_numpy(values)
    return i


# ---- tritonclient
c = triton.InferenceServerClient(host)
assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("linear")
assert c.get_server_metadata().name == "tandem"
m = c.get_model_metadata("linear")
assert list(m.inputs[0].shape) == [-1, 8] and m.inputs[0].datatype == "FP32" and "2" in m.versions
config = c.get_model_config("linear").config
assert config.name == "linear" and config.input[0].name == "x" and list(config.input[0].dims)[-1] == 8
answers = []
for coding in (None, "gzip", "deflate"):
    for outputs in (None, [triton.InferRequestedOutput("y")]):
        r = c.infer("linear", [infer_input()], outputs=outputs, request_id="a", compression_algorithm=coding)
        assert r.get_response().id == "a" and r.get_response().model_version == "2"
        answers.append(r.as_numpy("y"))
for y in answers:
    near(y)
    assert y.tobytes() == answers[0].tobytes()
assert "UNAVAILABLE" not in code_of(lambda: c.infer("none", [infer_input()]))
assert code_of(lambda: c.infer("none", [infer_input()])) == "StatusCode.NOT_FOUND"
wrong = triton.InferInput("q", [1], "FP32")
wrong.set_data_from_numpy(np.zeros(1, np.float32))
assert code_of(lambda: c.infer("linear", [wrong])) == "StatusCode.INVALID_ARGUMENT"
assert code_of(lambda: c.infer("linear", [infer_input(np.zeros((1, 7), np.float32))])) == "StatusCode.INVALID_ARGUMENT"
big = np.zeros((400000, 8), np.float32)  # 12 MB: many frames, and windows that must be opened again
assert c.infer("linear", [infer_input(big)]).as_numpy("y").shape == (400000, 3)
near(c.infer("linear", [infer_input()], client_timeout=10).as_numpy("y"))
done = queue.Queue()
for k in range(50):
    c.async_infer("linear", [infer_input()], lambda result, error: done.put((result, error)))
for k in range(50):
    result, error = done.get(timeout=20)
    assert error is None, error
    near(result.as_numpy("y"))
c.start_stream(lambda result, error: done.put((result, error)))
for k in range(200):
    c.async_stream_infer("none" if k == 100 else "linear", [infer_input()], request_id=str(k))
for k in range(200):
    result, error = done.get(timeout=20)
    assert (error is not None) == (k == 100), (k, error)
    if error is None:
        assert result.get_response().id == str(k)
        near(result.as_numpy("y"))
c.stop_stream()
stats = c.get_inference_statistics("linear").model_stats[0]
assert stats.inference_count > 0 and stats.inference_stats.success.count > 0
assert all(m.state == "READY" for m in c.get_model_repository_index().models)
c.unload_model("linear")
assert not c.is_model_ready("linear")
assert code_of(lambda: c.infer("linear", [infer_input()])) == "StatusCode.NOT_FOUND"
c.load_model("linear")
assert c.is_model_ready("linear")

# ---- sequences, alone and in a stream
def step_input(values):
    i = triton.InferInput("x", [1, 4], "FP32")
    i.set_data_from_numpy(np.float32([values]))
    return i


def step(id, values, **flags):
    return c.infer("adds", [step_input(values)], sequence_id=id, **flags).as_numpy("y")[0].tolist()


for id in (7, "seven"):
    assert step(id, [1, 2, 3, 4], sequence_start=True) == [1, 2, 3, 4]
for id in (7, "seven"):
    assert step(id, [1, 1, 1, 1]) == [2, 3, 4, 5] and step(id, [0, 0, 0, 1], sequence_end=True) == [2, 3, 4, 6]
    assert code_of(lambda: step(id, [0, 0, 0, 0])) == "StatusCode.INVALID_ARGUMENT"
c.start_stream(lambda result, error: done.put((result, error)))
for k in range(20):
    for id in (1, 2, 3):
        c.async_stream_infer("adds", [step_input([id, k, 0, 1])], sequence_id=id, sequence_start=k == 0, sequence_end=k == 19)
sums = []
for k in range(60):
    result, error = done.get(timeout=20)
    assert error is None, error
    sums.append(result.as_numpy("y")[0].tolist())
assert sums[-3:] == [[20.0 * id, 190.0, 0.0, 20.0] for id in (1, 2, 3)], sums[-3:]
c.stop_stream()

# ---- ovmsclient: TensorFlow Serving's API
o = make_grpc_client(host)
near(o.predict({"x": x}, "linear"))
near(o.predict({"x": x.tolist()}, "linear", timeout=10))
assert o.get_model_status("linear")[2]["state"] == "AVAILABLE"
assert o.get_model_metadata("linear")["inputs"]["x"]["shape"] == [-1, 8]
for model, error in (("none", ModelNotFoundError), ("linear", InvalidInputError)):
    try:
        o.predict({"x": x[:, :7]}, model)
        raise SystemExit("an error was wanted")
    except error:
        pass

# ---- grpcio: health and reflection
channel = grpc.insecure_channel(host)
health = health_pb2_grpc.HealthStub(channel)
SERVING = health_pb2.HealthCheckResponse.SERVING
for service in ("", "inference.GRPCInferenceService", "linear"):
    assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == SERVING
assert code_of(lambda: health.Check(health_pb2.HealthCheckRequest(service="nobody"))) == "NOT_FOUND"
watch = health.Watch(health_pb2.HealthCheckRequest(service="linear"))
assert next(watch).status == SERVING
c.unload_model("linear")
assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
c.load_model("linear")
assert next(watch).status == SERVING
watch.cancel()
database = ProtoReflectionDescriptorDatabase(channel)
services = database.get_services()
assert {"inference.GRPCInferenceService", "tensorflow.serving.PredictionService", "grpc.health.v1.Health"} <= set(services)
pool = descriptor_pool.DescriptorPool(database)
methods = 0
for name in services:
    methods += len(pool.FindServiceByName(name).methods)
method = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name["ModelInfer"]
Request = message_factory.GetMessageClass(method.input_type)
Response = message_factory.GetMessageClass(method.output_type)
request = Request(model_name="linear", raw_input_contents=[x.tobytes()])
request.inputs.add(name="x", datatype="FP32", shape=[5, 8])
reply = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", Request.SerializeToString, Response.FromString)(request)
near(np.frombuffer(reply.raw_output_contents[0], np.float32).reshape(5, 3))
classify = pool.FindServiceByName("tensorflow.serving.PredictionService").methods_by_name["Classify"]
Examples, Classes = (message_factory.GetMessageClass(m) for m in (classify.input_type, classify.output_type))
asked = Examples()
asked.model_spec.name = "sums"
for values in ([1, 2.5, 0.5, 0.25], [4, 0, -8, 0]):
    asked.input.example_list.examples.add().features.feature["x"].float_list.value.extend(values)
classes = channel.unary_unary("/tensorflow.serving.PredictionService/Classify", Examples.SerializeToString, Classes.FromString)(asked)
assert [[(k.label, k.score) for k in n.classes] for n in classes.result.classifications] == [[("0", 4.25)], [("0", -4.0)]]
Values = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.RegressionResponse"))
values = channel.unary_unary("/tensorflow.serving.PredictionService/Regress", Examples.SerializeToString, Values.FromString)(asked)
assert [v.value for v in values.result.regressions] == [4.25, -4.0]
multi = pool.FindServiceByName("tensorflow.serving.PredictionService").methods_by_name["MultiInference"]
Tasks, Results = (message_factory.GetMessageClass(m) for m in (multi.input_type, multi.output_type))
both = Tasks(input=asked.input)
for method in ("regress", "classify"):
    both.tasks.add(method_name="tensorflow/serving/" + method).model_spec.name = "sums"
both = channel.unary_unary("/tensorflow.serving.PredictionService/MultiInference", Tasks.SerializeToString, Results.FromString)(both)
assert [r.WhichOneof("result") for r in both.results] == ["regression_result", "classification_result"]
assert both.results[0].regression_result == values.result and both.results[1].classification_result == classes.result
slow = Request()
slow.CopyFrom(request)
try:
    channel.unary_unary("/inference.GRPCInferenceService/Nothing", Request.SerializeToString, Response.FromString)(slow)
    raise SystemExit("an error was wanted")
except grpc.RpcError as e:
    assert e.code() == grpc.StatusCode.UNIMPLEMENTED
print(f"tritonclient.grpc, ovmsclient, grpcio: {len(answers)} forms of one tensor give equal bits, reflection shows {methods} methods")
