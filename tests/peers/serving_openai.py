# SPDX-License-Identifier: Apache-2.0
"""OpenAI's client, for tests/peers/serving: models, completions, chat, both as streams, embeddings, errors.

usage: serving_openai.py HOST:PORT"""
import math
import sys

import openai

client = openai.OpenAI(base_url=f"http://{sys.argv[1]}/v1", api_key="none", max_retries=0)
names = {m.id for m in client.models.list()}
assert {"llama", "sentence"} <= names, names

# ---- completions: whole, as a stream, several at once
whole = client.completions.create(model="llama", prompt="w1 w2 w3", max_tokens=6, temperature=0)
assert whole.choices[0].finish_reason in ("length", "stop") and whole.usage.completion_tokens <= 6
assert whole.usage.prompt_tokens == 3, whole.usage
events = list(client.completions.create(model="llama", prompt="w1 w2 w3", max_tokens=6, temperature=0, stream=True,
                                        stream_options={"include_usage": True}))
assert "".join(e.choices[0].text for e in events if e.choices) == whole.choices[0].text
assert events[-1].usage.completion_tokens == whole.usage.completion_tokens and not events[-1].choices
assert len({e.id for e in events}) == 1
many = client.completions.create(model="llama", prompt=["w1 w2 w3", "w4"], n=2, max_tokens=3, seed=1, logprobs=2)
assert [c.index for c in many.choices] == [0, 1, 2, 3]
assert all(len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) > 0 for c in many.choices)
again = client.completions.create(model="llama", prompt=["w1 w2 w3", "w4"], n=2, max_tokens=3, seed=1)
assert [c.text for c in again.choices] == [c.text for c in many.choices]

# ---- chat
messages = [{"role": "system", "content": "w8"}, {"role": "user", "content": "w1 w2"}]
answer = client.chat.completions.create(model="llama", messages=messages, max_tokens=5, temperature=0)
assert answer.choices[0].message.role == "assistant" and answer.object == "chat.completion"
chunks = list(client.chat.completions.create(model="llama", messages=messages, max_tokens=5, temperature=0, stream=True))
assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason
assert "".join(c.choices[0].delta.content or "" for c in chunks) == answer.choices[0].message.content
with client.chat.completions.stream(model="llama", messages=messages, max_tokens=5, temperature=0) as stream:
    assert "".join(e.delta for e in stream if e.type == "content.delta") == answer.choices[0].message.content
with client.chat.completions.create(model="llama", messages=messages, max_tokens=16, stream=True) as broken_off:
    next(iter(broken_off))

# ---- embeddings: the client asks for base64 unless it is told otherwise
coded = client.embeddings.create(model="sentence", input=["w1 w2", "w3"])
plain = client.embeddings.create(model="sentence", input=["w1 w2", "w3"], encoding_format="float")
assert [d.index for d in coded.data] == [0, 1]
for a, b in zip(coded.data, plain.data):
    assert len(a.embedding) == len(b.embedding) > 0
    assert all(math.isclose(p, q, rel_tol=1e-5, abs_tol=1e-7) for p, q in zip(a.embedding, b.embedding))
tokens = client.embeddings.create(model="sentence", input=[[1, 2], [3]], encoding_format="float")
assert tokens.usage.prompt_tokens == 3

# ---- errors are the client's own classes
for kind, call in (
        (openai.NotFoundError, lambda: client.completions.create(model="none", prompt="w1")),
        (openai.BadRequestError, lambda: client.completions.create(model="llama", prompt="w1", temperature=-1)),
        (openai.BadRequestError, lambda: client.chat.completions.create(model="llama", messages=messages, n=10**6)),
        (openai.BadRequestError, lambda: client.embeddings.create(model="sentence", input=[]))):
    try:
        call()
        raise SystemExit("an error was wanted")
    except kind as e:
        assert e.body["message"], e.body
print(f"openai {openai.__version__}: completions, chat, streams of {len(events)} and {len(chunks)} events, embeddings")
