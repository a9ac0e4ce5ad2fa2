# SPDX-License-Identifier: Apache-2.0
"""SageMaker's own client of a container on this machine (local mode), for tests/peers/serving: it waits for /ping as it does for a
container, then predicts through /invocations with its serializers.

usage: serving_sagemaker.py HOST:PORT WEIGHTS.npy"""
import os
import sys

os.environ.update(SAGEMAKER_SUPPRESS_V2_WARNING="1", AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none",
                  AWS_DEFAULT_REGION="us-east-1")
import numpy as np  # noqa: E402
import sagemaker  # noqa: E402
from sagemaker.deserializers import JSONDeserializer, NumpyDeserializer  # noqa: E402
from sagemaker.local import LocalSession  # noqa: E402
from sagemaker.local.entities import _wait_for_serving_container  # noqa: E402
from sagemaker.predictor import Predictor  # noqa: E402
from sagemaker.serializers import JSONSerializer, NumpySerializer  # noqa: E402

port, w = int(sys.argv[1].rsplit(":", 1)[1]), np.load(sys.argv[2])
x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
session = LocalSession()
session.sagemaker_runtime_client.config = {"local": {"serving_port": port}}
_wait_for_serving_container(port)


def predict(serializer, deserializer, data):
    return Predictor("tandem", session, serializer, deserializer).predict(data)


def near(y):
    np.testing.assert_allclose(np.asarray(y, np.float32), x @ (2 * w), rtol=1e-4, atol=1e-5)


near(predict(NumpySerializer(), NumpyDeserializer(), x))
near(predict(JSONSerializer(), JSONDeserializer(), {"instances": x.tolist()})["predictions"])
print(f"sagemaker {sagemaker.__version__}, local mode: /ping, NumPy and JSON through /invocations")
