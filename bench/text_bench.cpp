// SPDX-License-Identifier: Apache-2.0
// Tokens per second of serve::TextEngine at 1, 4 and 16 texts, beside models::generate() for one
// text and the rate at which this machine can read the weights: a lone text reads all of them for
// each token. Weights are random. Use: bench_text [gpt2 | llama | CONFIG.json] [tokens] [f32 |
// bf16] [rank | turns]: GPT-2 of 124 million parameters, or a Llama of 1.1 billion (4.4 GB);
// weights and caches in f32 or bf16; with a rank, texts of a LoRA adapter of all linear layers
// beside those of none. With "turns" it says what it has, and answers each line, a number of texts,
// with their tokens per second (bench/compare_text).
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <string>
#include <thread>

#include "bench/resident.h"
#include "tandem/base/clock.h"
#include "tandem/init.h"
#include "tandem/serve/text/text_engine.h"
#include "tandem/tandem.h"

using namespace tandem;

namespace {

constexpr const char* kGpt2 = R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"]})";
constexpr const char* kLlama = R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
  "vocab_size":32000,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":22,
  "num_attention_heads":32,"num_key_value_heads":4,"max_position_embeddings":2048})";
constexpr int kRounds = 3;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Bytes per second of a sum over `bytes` of memory.
double read_rate(size_t bytes) {
  const Tensor x = ones({static_cast<int64_t>(bytes / 4)});
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point begin = Clock::now();
    x.sum().item<float>();
    seconds.push_back(seconds_since(begin));
  }
  return static_cast<double>(bytes) / median(seconds);
}

std::vector<int64_t> prompt_of(int64_t i, int64_t length) {
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < length; ++t) ids.push_back((i * 7919 + t * 104729 + 11) % 30000);
  return ids;
}

// A folder with an adapter of that rank for every matrix of the blocks.
std::string write_adapter(models::PretrainedModel& model, int64_t rank, bool transposed) {
  std::string folder = (std::filesystem::temp_directory_path() / "bench-adapter-XXXXXX").string();
  TD_CHECK(mkdtemp(folder.data()), Io, "no folder for an adapter");
  StateDict matrices;
  const auto scaled = [](int64_t rows, int64_t columns) { return randn({rows, columns}) * 0.02; };
  for (const auto& [name, p] : model.module().state_dict()) {
    const bool block = name.find(".h.") != name.npos || name.find(".layers.") != name.npos;
    if (p.dim() != 2 || !block || !name.ends_with(".weight")) continue;
    const std::string layer = "base_model.model." + name.substr(0, name.size() - 7);
    matrices[layer + ".lora_A.weight"] = scaled(rank, p.size(transposed ? 0 : 1));
    matrices[layer + ".lora_B.weight"] = scaled(p.size(transposed ? 1 : 0), rank);
  }
  weights::save_weights(matrices, folder + "/adapter_model.safetensors");
  write_file(folder + "/adapter_config.json",
             fmt::format(R"({{"peft_type":"LORA","r":{},"lora_alpha":{}}})", rank, rank));
  return folder;
}

double resident_gigabytes() { return static_cast<double>(bench::resident_bytes("VmRSS:")) / 1e9; }

void generate_text(serve::TextEngine& engine, std::vector<int64_t> prompt, int64_t adapter,
                   const models::GenerateOptions& o) {
  std::promise<void> over;
  serve::TextRequest r{.prompt = std::move(prompt), .options = o, .adapter = adapter};
  r.done = [&over](const serve::TextEnd&) { over.set_value(); };
  engine.submit(std::move(r));
  over.get_future().wait();
}

double engine_rate(serve::TextEngine& engine, int64_t texts, int64_t adapter,
                   const models::GenerateOptions& o, int rounds = kRounds) {
  static int64_t asked = 0;  // so that no prompt comes twice
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round, asked += 100) {
    const Clock::time_point begin = Clock::now();
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < texts; ++i)
      threads.emplace_back([&, i] { generate_text(engine, prompt_of(i + asked, 16), adapter, o); });
    for (std::thread& t : threads) t.join();
    rates.push_back(static_cast<double>(texts * o.max_new_tokens) / seconds_since(begin));
  }
  return median(rates);
}

// Takes turns with other programs.
int answer_turns(const std::shared_ptr<models::PretrainedModel>& model, double bytes, double rate,
                 const models::GenerateOptions& o) {
  serve::TextEngine engine(model, {.streams = 16, .length = 512});
  fmt::print("{{\"bytes\": {}, \"bytes_per_second\": {}}}\n", bytes, rate);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{}\n", engine_rate(engine, std::atoll(line.c_str()), 0, o, 1));
    std::fflush(stdout);
  }
  return 0;
}

std::string config_of(const std::string& kind) {
  if (kind.ends_with(".json")) return read_file(kind);
  return kind == "llama" ? kLlama : kGpt2;
}

}  // namespace

int main(int argc, char** argv) {
  init();
  const std::string kind = argc > 1 ? argv[1] : "gpt2";
  const int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 64;
  const std::shared_ptr<models::PretrainedModel> model =
      models::from_config(models::ModelConfig::from_json(config_of(kind)));
  model->module().eval();
  if (argc > 3 && std::string(argv[3]) == "bf16") model->module().to(DType::bf16);
  double bytes = 0;
  for (const auto& [name, p] : model->module().state_dict())
    bytes += static_cast<double>(p.numel()) * static_cast<double>(size_of(p.dtype()));
  const double rate = read_rate(size_t{1} << 29);
  const models::GenerateOptions o{.max_new_tokens = tokens, .eos_token_id = {-1}};
  if (argc > 4 && std::string(argv[4]) == "turns") return answer_turns(model, bytes, rate, o);
  fmt::print(
      "{}: {:.2f} GB of weights; a sum reads {:.1f} GB/s: at most {:.1f} tokens/s of one text\n",
      kind, bytes / 1e9, rate / 1e9, rate / bytes);
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    models::generate(*model, {prompt_of(round, 16)}, o);
    rates.push_back(static_cast<double>(tokens) / seconds_since(begin));
  }
  fmt::print("generate(), 1 text: {:.1f} tokens/s\n", median(rates));
  const double before = resident_gigabytes();
  const Clock::time_point begin = Clock::now();
  serve::TextEngineOptions options{.streams = 16, .length = 512};
  const int64_t rank = argc > 4 ? std::atoll(argv[4]) : 0;
  if (rank > 0) options.adapters = {{"lora", write_adapter(*model, rank, kind == "gpt2")}};
  serve::TextEngine engine(model, options);
  for (const serve::TextAdapter& a : options.adapters) std::filesystem::remove_all(a.folder);
  fmt::print("{:.2f} GB resident before the engine, {:.2f} GB after\n", before,
             resident_gigabytes());
  fmt::print("engine ready in {:.1f} s; sizes of batches:", seconds_since(begin));
  for (const int64_t n : engine.sizes()) fmt::print(" {}", n);
  fmt::print("\n");
  for (const int64_t texts : {1, 4, 16}) {
    const double plain = engine_rate(engine, texts, 0, o);
    fmt::print("engine, {:2} texts: {:.1f} tokens/s", texts, plain);
    if (rank > 0) {
      const double adapted = engine_rate(engine, texts, 1, o);
      fmt::print("; of an adapter {:.1f}, {:.2f} of it", adapted, adapted / plain);
    }
    fmt::print("\n");
  }
}
