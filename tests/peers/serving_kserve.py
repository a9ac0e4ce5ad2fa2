# SPDX-License-Identifier: Apache-2.0
"""KServe's inference clients, for tests/peers/serving: REST by protocols v1 and v2, gRPC where the build has it.

usage: serving_kserve.py HOST:PORT WEIGHTS.npy [grpc]"""
import asyncio
import logging
import sys

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

logging.disable(logging.CRITICAL)  # refusals that are wanted
host, w = sys.argv[1], np.load(sys.argv[2])
x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
want = x @ (2 * w)


def near(y):
    np.testing.assert_allclose(np.asarray(y).reshape(want.shape), want, rtol=1e-5, atol=1e-6)


def request(binary, model="linear"):
    i = InferInput("x", list(x.shape), "FP32")
    i.set_data_from_numpy(x, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[i], request_id="a")


async def rest():
    url = f"http://{host}"
    v2 = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    assert await v2.is_server_live(url) and await v2.is_server_ready(url) and await v2.is_model_ready(url, "linear")
    for binary in (False, True):
        r = await v2.infer(url, request(binary), model_name="linear")
        assert r.id == "a" and r.model_name == "linear", r
        near(r.outputs[0].as_numpy())
    try:
        await v2.infer(url, request(True, "none"), model_name="none")
        raise SystemExit("an error was wanted")
    except httpx.HTTPStatusError as e:
        assert e.response.status_code == 404, e.response
    v1 = InferenceRESTClient(RESTConfig(protocol="v1", retries=0))
    r = await v1.infer(url, {"instances": x.tolist()}, model_name="linear")
    near(r["predictions"])
    assert await v1.is_model_ready(url, "linear") is True


async def by_grpc():
    c = InferenceGRPCClient(host, retries=0)
    assert await c.is_server_live() and await c.is_server_ready() and await c.is_model_ready("linear")
    for binary in (False, True):
        r = await c.infer(request(binary))
        assert r.id == "a" and r.model_name == "linear", r
        near(r.outputs[0].as_numpy())
    try:
        await c.infer(request(True, "none"))
        raise SystemExit("an error was wanted")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.NOT_FOUND, e
    await c.close()


asyncio.run(rest())
if sys.argv[3:] == ["grpc"]:
    asyncio.run(by_grpc())
print("kserve: REST v1 and v2" + (", gRPC" if sys.argv[3:] == ["grpc"] else ""))
