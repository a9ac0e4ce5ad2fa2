# SPDX-License-Identifier: Apache-2.0
"""MLServer's runtime for ONNX, which PyPI has none of: onnxruntime behind the class that its documentation asks for."""
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from peers_serve import open_session


class OnnxModel(MLModel):
    async def load(self) -> bool:
        self.session, _, outputs = open_session(self.settings.parameters.uri)
        self.names = [p["name"] for p in outputs]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feed = {t.name: NumpyCodec.decode_input(t) for t in payload.inputs}
        values = self.session.run(None, feed)
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output(n, v) for n, v in zip(self.names, values)])
