# SPDX-License-Identifier: Apache-2.0
"""tritonclient's texts as BYTES, outputs as classes and shared memory, for tests/peers/serving.

usage: serving_bytes.py HOST:PORT [grpc]"""
import os
import queue
import sys

import numpy as np
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

host, clients = sys.argv[1], [tritonclient.http]
if len(sys.argv) > 2 and sys.argv[2]:
    import tritonclient.grpc

    clients.append(tritonclient.grpc)


def bytes_of(*texts):
    return np.array(texts, dtype=np.object_)


texts = bytes_of(b"Where is this book ?", b"Who wrote the river ?", b"Where ?")
x = np.float32([[1, 5, 10, 4, 0, 0, 0, 0], [0, 0, 0, 0, 3, 2, 1, -1]])
answers = []


def refused(call, says):
    try:
        call()
    except InferenceServerException as e:
        assert says in e.message(), e.message()
        return
    raise SystemExit("an error was wanted")


def field(message, name):
    return message[name] if isinstance(message, dict) else getattr(message, name)


class Client:
    """One of the two; forms are the ways in which it sends and asks for tensors."""

    def __init__(self, triton):
        self.triton, self.http = triton, triton is tritonclient.http
        self.c = triton.InferenceServerClient(host)
        self.forms = [{"binary_data": True}, {"binary_data": False}] if self.http else [{}]

    def input_of(self, values, **form):
        text = values.dtype == np.object_
        i = self.triton.InferInput("text" if text else "x", list(values.shape), "BYTES" if text else "FP32")
        i.set_data_from_numpy(values, **form)
        return i

    def ask(self, model, values, outputs=None):
        return self.c.infer(model, [self.input_of(values)], outputs=outputs)

    def metadata(self):
        inputs = {field(i, "name"): field(i, "datatype") for i in field(self.c.get_model_metadata("questions"), "inputs")}
        assert inputs["text"] == "BYTES", inputs
        config = self.c.get_model_config("questions")
        config = config if self.http else config.config
        kinds = [field(i, "data_type") for i in field(config, "input") if field(i, "name") == "text"]
        assert kinds == (["TYPE_STRING"] if self.http else [13]), kinds
        assert "system_shared_memory" in field(self.c.get_server_metadata(), "extensions")

    def texts(self):
        for form in self.forms:
            for shape in ((3,), (3, 1)):
                r = self.c.infer("questions", [self.input_of(texts.reshape(shape), **form)])
                answers.append(r.as_numpy("output"))
        refused(lambda: self.ask("bert", bytes_of(b"\xff")), "UTF-8")
        refused(lambda: self.ask("questions", bytes_of(b"")), "no words")
        refused(lambda: self.ask("linear", texts), "no input 'text'")

    def classes(self):
        for model, name, values, labels in (
            ("questions", "output", texts, {b"place", b"person"}),
            ("bert", "logits", bytes_of(b"w1 w2", b"w3", b"w4 w5 w6"), {b"LABEL_0", b"LABEL_1", b"LABEL_2"}),
        ):
            numbers = self.ask(model, values).as_numpy(name)
            for k in (1, 2, 100):
                for form in self.forms:
                    out = self.triton.InferRequestedOutput(name, class_count=k, **form)
                    got = self.ask(model, values, [out]).as_numpy(name)
                    assert got.shape == (3, min(k, len(labels))), got.shape
                    for row, scores in zip(got, numbers):
                        for text, at in zip(row, np.argsort(-scores, kind="stable")):
                            value, index, label = (text if isinstance(text, bytes) else text.encode()).split(b":")
                            assert value.decode() == "%f" % scores[at] and int(index) == at and label in labels, text
            out = self.triton.InferRequestedOutput(name, class_count=-1)
            refused(lambda: self.ask(model, values, [out]), "'classification' is -1")

    def regions(self, key):
        c = self.c
        c.unregister_system_shared_memory()
        c.register_system_shared_memory("tensors", key, 4096)
        status = c.get_system_shared_memory_status()
        one = status[0] if self.http else status.regions["tensors"]
        assert field(one, "name") == "tensors" and field(one, "key") == key and field(one, "byte_size") == 4096
        refused(lambda: c.register_system_shared_memory("tensors", key, 4096), "registered already")
        refused(lambda: c.register_system_shared_memory("other", "/../etc/passwd", 16), "plain name")
        refused(lambda: c.register_system_shared_memory("other", key, 4097), "has 4096")
        assert not (c.get_cuda_shared_memory_status() if self.http else c.get_cuda_shared_memory_status().regions)
        refused(lambda: c.register_cuda_shared_memory("cuda", b"aGFuZGxl", 0, 16), "not taken")
        c.unregister_cuda_shared_memory()

    def shared_memory(self):
        key = f"/tandem_peer_{os.getpid()}"
        memory = shm.create_shared_memory_region("tensors", key, 4096)
        try:
            self.regions(key)
            shm.set_shared_memory_region(memory, [x], offset=64)
            i = self.triton.InferInput("x", [2, 8], "FP32")
            i.set_shared_memory("tensors", x.nbytes, offset=64)
            o = self.triton.InferRequestedOutput("y")
            o.set_shared_memory("tensors", 24, offset=1024)
            size = field(self.c.infer("linear", [i], outputs=[o]).get_output("y"), "parameters")["shared_memory_byte_size"]
            assert (size if self.http else size.int64_param) == 24, size
            got = shm.get_contents_as_numpy(memory, np.float32, [2, 3], offset=1024)
            want = self.ask("linear", x).as_numpy("y")
            assert got.tobytes() == want.tobytes(), (got, want)
            words = serialize_byte_tensor(texts)
            shm.set_shared_memory_region(memory, [words], offset=2048)
            i = self.triton.InferInput("text", [3], "BYTES")
            i.set_shared_memory("tensors", len(words.item()), offset=2048)
            o = self.triton.InferRequestedOutput("output")
            o.set_shared_memory("tensors", 24, offset=3000)
            self.c.infer("questions", [i], outputs=[o])
            answers.append(shm.get_contents_as_numpy(memory, np.float32, [3, 2], offset=3000).copy())
            i.set_shared_memory("tensors", 4096, offset=1)
            refused(lambda: self.c.infer("questions", [i]), "which has 4096")
            self.c.unregister_system_shared_memory("tensors")
            refused(lambda: self.c.infer("questions", [i]), "no region 'tensors'")
            del got
        finally:
            shm.destroy_shared_memory_region(memory)

    def stream(self):
        done = queue.Queue()
        self.c.start_stream(lambda result, error: done.put((result, error)))
        for k in range(20):
            self.c.async_stream_infer("questions", [self.input_of(texts)], request_id=str(k))
        for k in range(20):
            result, error = done.get(timeout=20)
            assert error is None and result.get_response().id == str(k), error
            answers.append(result.as_numpy("output"))
        self.c.stop_stream()


for triton in clients:
    client = Client(triton)
    client.metadata()
    client.texts()
    client.classes()
    client.shared_memory()
    if not client.http:
        client.stream()
for y in answers:
    assert y.tobytes() == answers[0].tobytes(), (y, answers[0])
print(f"tritonclient: {len(answers)} forms of three texts give equal bits; classes, and tensors in shared memory, by {len(clients)} of its clients")
