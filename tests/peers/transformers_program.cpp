// SPDX-License-Identifier: Apache-2.0
// Runs a model of a Hugging Face folder for tests/peers/transformers.
//   transformers_program logits FOLDER IN OUT      inputs and outputs as safetensors
//   transformers_program generate FOLDER IN OUT N  N greedy tokens behind input_ids (with its mask)
//   transformers_program speed FOLDER N            greedy tokens per second, batch 1, prompt of 16
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "tandem/models/text/generate.h"
#include "tandem/tandem.h"

using namespace tandem;

namespace {

int logits(models::PretrainedModel& m, const std::string& in, const std::string& out) {
  const StateDict given = load(in);
  const auto get = [&](const char* name) {
    const Tensor* t = given.find(name);
    return t ? *t : Tensor();
  };
  NoGradGuard no_grad;
  StateDict made;
  made["logits"] = m.forward({.input_ids = get("input_ids"),
                              .attention_mask = get("attention_mask"),
                              .token_type_ids = get("token_type_ids"),
                              .decoder_input_ids = get("decoder_input_ids"),
                              .pixel_values = get("pixel_values")});
  save(made, out);
  return 0;
}

int generate(models::PretrainedModel& m, const std::string& in, const std::string& out, int64_t n) {
  const StateDict given = load(in);
  const Tensor ids = given.at("input_ids"), mask = given.at("attention_mask");
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t r = 0; r < ids.size(0); ++r) {
    const auto row = ids.select(0, r).to_vector<int64_t>();
    const auto seen = mask.select(0, r).to_vector<int64_t>();
    prompts.emplace_back();
    for (size_t i = 0; i < row.size(); ++i)
      if (seen[i]) prompts.back().push_back(row[i]);
  }
  StateDict made;
  for (const bool compiled : {false, true}) {
    const auto rows = models::generate(m, prompts, {.max_new_tokens = n, .compiled = compiled});
    for (size_t r = 0; r < rows.size(); ++r)
      made[fmt::format("{}.{}", compiled ? "compiled" : "eager", r)] = tensor(rows[r]);
  }
  save(made, out);
  return 0;
}

int speed(models::PretrainedModel& m, int64_t n) {
  std::vector<int64_t> prompt(16, 7);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    std::chrono::steady_clock::time_point first;
    int64_t tokens = 0;
    const auto count = [&](int64_t, int64_t) {
      if (++tokens == 4) first = std::chrono::steady_clock::now();
      return true;
    };
    models::generate(m, {prompt}, {.max_new_tokens = n, .min_new_tokens = n, .streamer = count});
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - first;
    best = std::max(best, static_cast<double>(n - 4) / s.count());
  }
  fmt::print("{:.2f}\n", best);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    init();
    const auto m = models::from_pretrained(argv[2]);
    const std::string mode = argv[1];
    if (mode == "logits") return logits(*m, argv[3], argv[4]);
    if (mode == "generate") return generate(*m, argv[3], argv[4], std::atoll(argv[5]));
    return speed(*m, std::atoll(argv[3]));
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
