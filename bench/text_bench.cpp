// SPDX-License-Identifier: Apache-2.0
// Tokens per second of serve::TextEngine at 1, 4 and 16 texts, beside models::generate() for one
// text and the rate at which this machine can read the weights: a lone text reads all of them for
// each token. Weights are random. Use: bench_text [gpt2 | llama] [tokens] [bf16]: GPT-2 of 124
// million parameters, or a Llama of 1.1 billion (4.4 GB); weights and caches in f32 or bf16.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

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

double engine_rate(serve::TextEngine& engine, int64_t texts, const models::GenerateOptions& o) {
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < texts; ++i)
      threads.emplace_back([&, i] { engine.generate(prompt_of(i + round * 100, 16), o); });
    for (std::thread& t : threads) t.join();
    rates.push_back(static_cast<double>(texts * o.max_new_tokens) / seconds_since(begin));
  }
  return median(rates);
}

}  // namespace

int main(int argc, char** argv) {
  init();
  const std::string kind = argc > 1 ? argv[1] : "gpt2";
  const int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 64;
  const std::shared_ptr<models::PretrainedModel> model =
      models::from_config(models::ModelConfig::from_json(kind == "llama" ? kLlama : kGpt2));
  model->module().eval();
  if (argc > 3 && std::string(argv[3]) == "bf16") model->module().to(DType::bf16);
  double bytes = 0;
  for (const auto& [name, p] : model->module().state_dict())
    bytes += static_cast<double>(p.numel()) * static_cast<double>(size_of(p.dtype()));
  const double rate = read_rate(size_t{1} << 29);
  fmt::print(
      "{}: {:.2f} GB of weights; a sum reads {:.1f} GB/s: at most {:.1f} tokens/s of one text\n",
      kind, bytes / 1e9, rate / 1e9, rate / bytes);
  const models::GenerateOptions o{.max_new_tokens = tokens, .eos_token_id = {-1}};
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point begin = Clock::now();
    models::generate(*model, {prompt_of(round, 16)}, o);
    rates.push_back(static_cast<double>(tokens) / seconds_since(begin));
  }
  fmt::print("generate(), 1 text: {:.1f} tokens/s\n", median(rates));
  const Clock::time_point begin = Clock::now();
  serve::TextEngine engine(model, {.streams = 16, .length = 512});
  fmt::print("engine ready in {:.1f} s; sizes of batches:", seconds_since(begin));
  for (const int64_t n : engine.sizes()) fmt::print(" {}", n);
  fmt::print("\n");
  for (const int64_t texts : {1, 4, 16})
    fmt::print("engine, {:2} texts: {:.1f} tokens/s\n", texts, engine_rate(engine, texts, o));
}
