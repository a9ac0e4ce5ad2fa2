# SPDX-License-Identifier: Apache-2.0
"""tensorflow-serving-api with TensorFlow itself, for tests/peers/serving: predict, classify, regress, metadata and status over gRPC.

usage: serving_tensorflow.py HOST:PORT WEIGHTS.npy"""
import os
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import grpc  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow_serving.apis import (classification_pb2, get_model_metadata_pb2, get_model_status_pb2, model_service_pb2_grpc,  # noqa: E402
                                     predict_pb2, prediction_service_pb2_grpc, regression_pb2)

w = np.load(sys.argv[2])
x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
channel = grpc.insecure_channel(sys.argv[1])
stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)


def predict(name="linear", **spec):
    r = predict_pb2.PredictRequest()
    r.model_spec.name = name
    if "version" in spec:
        r.model_spec.version.value = spec["version"]
    r.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    return stub.Predict(r, timeout=10)


for version in (2,):
    answer = predict(version=version)
    assert answer.model_spec.version.value == version
    np.testing.assert_allclose(tf.make_ndarray(answer.outputs["y"]), x @ (version * w), rtol=1e-5, atol=1e-6)
assert predict().model_spec.version.value == 2
try:
    predict("none")
    raise SystemExit("an error was wanted")
except grpc.RpcError as e:
    assert e.code() == grpc.StatusCode.NOT_FOUND, e


def examples(request):
    request.model_spec.name = "sums"
    for row in ([1.0, 2.5, 0.5, 0.25], [4.0, 0.0, -8.0, 0.0]):
        one = request.input.example_list.examples.add()
        one.features.feature["x"].float_list.value.extend(row)
    return request


regressed = stub.Regress(examples(regression_pb2.RegressionRequest()), timeout=10)
assert [r.value for r in regressed.result.regressions] == [4.25, -4.0], regressed
classified = stub.Classify(examples(classification_pb2.ClassificationRequest()), timeout=10)
scores = [c.classes[0].score for c in classified.result.classifications]
assert scores == [4.25, -4.0], classified

asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
asked.model_spec.name = "linear"
metadata = stub.GetModelMetadata(asked, timeout=10)
signatures = get_model_metadata_pb2.SignatureDefMap()
metadata.metadata["signature_def"].Unpack(signatures)
port = signatures.signature_def["serving_default"].inputs["x"]
assert port.dtype == tf.float32.as_datatype_enum and [d.size for d in port.tensor_shape.dim] == [-1, 8], port
status = get_model_status_pb2.GetModelStatusRequest()
status.model_spec.name = "linear"
states = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=10).model_version_status
assert {s.version for s in states if s.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE} >= {2}, states
print(f"tensorflow-serving-api, TensorFlow {tf.__version__}: predict, classify, regress, metadata, status")
