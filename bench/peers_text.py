#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer of bench/compare_text: writes texts with random weights, as many at a time as a line of its input says.

usage: peers_text.py llama.cpp|transformers|openvino-genai|onnxruntime-genai CONFIG.json f32|bf16 TOKENS THREADS
Answers each line with the tokens per second of all texts, 16 tokens of prompt not counted as written but read in that time.
The first line says which version it is. Exit code 77: the packages are not installed.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

PROMPT = 16


def prompt_of(i, vocabulary):
    return [(i * 7919 + t * 104729 + 11) % (vocabulary - 1000) for t in range(PROMPT)]


def tensors_of(c, rng, np):
    """Names of GGUF, and the weights."""
    matrix = lambda rows, columns: rng.standard_normal((rows, columns), dtype="f4") * np.float32(0.02)
    ones, zeros = (lambda n: np.ones(n, "f4")), (lambda n: np.zeros(n, "f4"))
    if c["model_type"] == "gpt2":
        h, layers, vocabulary, places = 768, 12, 50257, 1024
        yield "token_embd.weight", matrix(vocabulary, h)
        yield "position_embd.weight", matrix(places, h)
        for i in range(layers):
            for name, rows, columns in (("attn_qkv", 3 * h, h), ("attn_output", h, h), ("ffn_up", 4 * h, h), ("ffn_down", h, 4 * h)):
                yield f"blk.{i}.{name}.weight", matrix(rows, columns)
                yield f"blk.{i}.{name}.bias", zeros(rows)
            for name in ("attn_norm", "ffn_norm"):
                yield f"blk.{i}.{name}.weight", ones(h)
                yield f"blk.{i}.{name}.bias", zeros(h)
        yield "output_norm.weight", ones(h)
        yield "output_norm.bias", zeros(h)
        return
    h, inner, vocabulary = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = h // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "token_embd.weight", matrix(vocabulary, h)
    for i in range(c["num_hidden_layers"]):
        for name, rows, columns in (("attn_q", h, h), ("attn_k", kv, h), ("attn_v", kv, h), ("attn_output", h, h),
                                    ("ffn_gate", inner, h), ("ffn_up", inner, h), ("ffn_down", h, inner)):
            yield f"blk.{i}.{name}.weight", matrix(rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}.weight", ones(h)
    yield "output_norm.weight", ones(h)
    yield "output.weight", matrix(vocabulary, h)


def write_gguf(c, dtype, path):
    import gguf
    import numpy as np
    gpt2 = c["model_type"] == "gpt2"
    g = gguf.GGUFWriter(path, c["model_type"])
    get = lambda key, other: other if gpt2 else c[key]
    g.add_vocab_size(get("vocab_size", 50257))
    g.add_context_length(get("max_position_embeddings", 1024))
    g.add_embedding_length(get("hidden_size", 768))
    g.add_block_count(get("num_hidden_layers", 12))
    g.add_feed_forward_length(get("intermediate_size", 3072))
    g.add_head_count(get("num_attention_heads", 12))
    if gpt2:
        g.add_layer_norm_eps(1e-5)
    else:
        g.add_head_count_kv(c["num_key_value_heads"])
        g.add_layer_norm_rms_eps(1e-5)
        g.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
        g.add_rope_freq_base(10000.0)
    g.add_tokenizer_model("none")
    kind = gguf.GGMLQuantizationType.BF16
    for name, w in tensors_of(c, np.random.default_rng(0), np):
        if dtype == "bf16" and w.ndim == 2 and name != "position_embd.weight":
            g.add_tensor(name, gguf.quants.quantize(w, kind), raw_dtype=kind)
        else:
            g.add_tensor(name, w)
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


def llama_cpp_writer(c, dtype, tokens, threads):
    import llama_cpp as l
    import numpy as np
    most, vocabulary = 16, c.get("vocab_size", 50257)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as work:
        path = os.path.join(work, "model.gguf")
        write_gguf(c, dtype, path)
        l.llama_log_set(quiet, ctypes.c_void_p(0))
        l.llama_backend_init()
        of_model = l.llama_model_default_params()
        of_model.use_mmap = False
        model = l.llama_model_load_from_file(path.encode(), of_model)
    p = l.llama_context_default_params()
    p.n_ctx, p.n_seq_max, p.n_batch, p.n_ubatch = most * (PROMPT + tokens + 8), most, most * PROMPT, most * PROMPT
    p.n_threads = p.n_threads_batch = threads
    context = l.llama_init_from_model(model, p)
    batch = l.llama_batch_init(most * PROMPT, 0, 1)

    def run(rows):  # (token, position, text, is its result wanted?)
        batch.n_tokens = len(rows)
        for i, (token, place, text, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, place, 1, wanted
            batch.seq_id[i][0] = text
        if l.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp failed")
        return [int(np.argmax(np.ctypeslib.as_array(l.llama_get_logits_ith(context, i), (vocabulary,))))
                for i, row in enumerate(rows) if row[3]]

    def write(texts, turn):
        l.llama_memory_clear(l.llama_get_memory(context), True)
        start = time.perf_counter()
        rows = [(t, k, i, k == PROMPT - 1) for i in range(texts) for k, t in enumerate(prompt_of(i + 100 * turn, vocabulary))]
        new = run(rows)
        for k in range(1, tokens):
            new = run([(t, PROMPT + k - 1, i, True) for i, t in enumerate(new)])
        return texts * tokens / (time.perf_counter() - start)

    return "llama-cpp-python " + l.__version__, write


def transformers_writer(c, dtype, tokens, threads):
    import torch
    import transformers
    torch.set_num_threads(threads)
    kind = dict(c)
    config = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32).eval()

    def write(texts, turn):
        ids = torch.tensor([prompt_of(i + 100 * turn, config.vocab_size) for i in range(texts)])
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens,
                                 eos_token_id=None, pad_token_id=0)
        assert out.shape[1] == PROMPT + tokens
        return texts * tokens / (time.perf_counter() - start)

    return f"transformers {transformers.__version__}, torch {torch.__version__}", write


def save_folder(c, folder):
    """The model as transformers keeps it, f32, with a tokenizer, without which exporters do nothing."""
    import tokenizers
    import torch
    import transformers
    kind = dict(c)
    config = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.BPE({f"w{i}": i for i in range(config.vocab_size)}, [], unk_token="w0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w0").save_pretrained(folder)
    return config.vocab_size


def openvino_writer(c, dtype, tokens, threads):
    import numpy as np
    import openvino
    import openvino_genai
    from optimum.intel import OVModelForCausalLM
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as work:
        vocabulary = save_folder(c, os.path.join(work, "hf"))
        OVModelForCausalLM.from_pretrained(os.path.join(work, "hf"), export=True, compile=False, load_in_8bit=False
                                           ).save_pretrained(os.path.join(work, "ov"))
        import transformers
        from openvino_tokenizers import convert_tokenizer
        there, back = convert_tokenizer(transformers.AutoTokenizer.from_pretrained(os.path.join(work, "hf")), with_detokenizer=True)
        openvino.save_model(there, os.path.join(work, "ov", "openvino_tokenizer.xml"))
        openvino.save_model(back, os.path.join(work, "ov", "openvino_detokenizer.xml"))
        settings = {"INFERENCE_PRECISION_HINT": dtype, "INFERENCE_NUM_THREADS": threads, "ATTENTION_BACKEND": "SDPA"}
        model = openvino_genai.LLMPipeline(os.path.join(work, "ov"), "CPU", **settings)
    how = openvino_genai.GenerationConfig(max_new_tokens=tokens, min_new_tokens=tokens, ignore_eos=True, do_sample=False)

    def write(texts, turn):
        ids = np.array([prompt_of(i + 100 * turn, vocabulary) for i in range(texts)], "i8")
        given = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        start = time.perf_counter()
        out = model.generate(given, how)
        seconds = time.perf_counter() - start
        assert [len(t) for t in out.tokens] == [tokens] * texts, "a text has another length"
        return texts * tokens / seconds

    return "openvino-genai " + openvino_genai.__version__, write


def onnxruntime_writer(c, dtype, tokens, threads):
    import numpy as np
    import onnxruntime_genai as og
    if dtype != "f32" or c["model_type"] == "gpt2":  # its kernels for processors, and what its builder knows
        raise ImportError("", name=f"{c['model_type']} in {dtype} for onnxruntime-genai")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as work:
        folder, cache = (os.path.join(work, d) for d in ("hf", "cache"))
        vocabulary = save_folder(c, folder)
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", os.path.join(work, "out"),
                        "-p", "fp32", "-e", "cpu", "-c", cache], check=True, stdout=subprocess.DEVNULL)
        path = os.path.join(work, "out", "genai_config.json")
        with open(path, encoding="utf-8") as f:
            settings = json.load(f)
        settings["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
        with open(path, "w", encoding="utf-8") as f:
            json.dump(settings, f)
        model = og.Model(os.path.join(work, "out"))

    def write(texts, turn):
        p = og.GeneratorParams(model)
        p.set_search_options(do_sample=False, batch_size=texts, min_length=PROMPT + tokens, max_length=PROMPT + tokens)
        ids = np.array([prompt_of(i + 100 * turn, vocabulary) for i in range(texts)], "i4")
        start = time.perf_counter()
        g = og.Generator(model, p)
        g.append_tokens(ids)
        count = 0
        while not g.is_done():
            g.generate_next_token()
            count += 1
        seconds = time.perf_counter() - start
        assert count == tokens, f"{count} tokens"
        return texts * tokens / seconds

    return "onnxruntime-genai " + og.__version__, write


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def quiet(level, text, data):
    pass


def main():
    peer, config, dtype, tokens, threads = sys.argv[1:6]
    with open(config, encoding="utf-8") as f:
        c = json.load(f)
    make = {"llama.cpp": llama_cpp_writer, "transformers": transformers_writer, "openvino-genai": openvino_writer,
            "onnxruntime-genai": onnxruntime_writer}[peer]
    try:
        version, write = make(c, dtype, int(tokens), int(threads))
    except ImportError as e:
        print(e.name, "is not installed", file=sys.stderr)
        sys.exit(77)
    print(version, flush=True)
    for turn, line in enumerate(sys.stdin):
        print(write(int(line), turn), flush=True)


main()
