// SPDX-License-Identifier: Apache-2.0
// Runs a model of a Hugging Face folder for tests/peers/transformers.
//   transformers_program outputs FOLDER IN OUT     inputs and outputs as safetensors; prints what
//   of
//                                                  the folder is not used
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

int outputs(models::PretrainedModel& m, const std::string& in, const std::string& out) {
  const StateDict given = load(in);
  models::ModelInputs all;
  for (const models::ModelPort& p : m.inputs())
    if (const Tensor* t = given.find(p.name)) all.at(p.name) = *t;
  NoGradGuard no_grad;
  StateDict made;
  const std::vector<Tensor> y = m.run(all);
  for (size_t i = 0; i < y.size(); ++i) made[m.output_names().at(i)] = y[i].contiguous();
  save(made, out);
  for (const std::string& name : m.unexpected) fmt::print("unused {}\n", name);
  for (const std::string& name : m.unknown_keys) fmt::print("unknown {}\n", name);
  return 0;
}

std::vector<std::vector<int64_t>> prompts_of(const StateDict& given) {
  const Tensor ids = given.at("input_ids"), mask = given.at("attention_mask");
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t r = 0; r < ids.size(0); ++r) {
    const auto row = ids.select(0, r).to_vector<int64_t>();
    const auto seen = mask.select(0, r).to_vector<int64_t>();
    prompts.emplace_back();
    for (size_t i = 0; i < row.size(); ++i)
      if (seen[i]) prompts.back().push_back(row[i]);
  }
  return prompts;
}

int generate(models::PretrainedModel& m, const std::string& in, const std::string& out, int64_t n) {
  const StateDict given = load(in);
  StateDict made;
  for (const bool compiled : {false, true}) {
    const models::GenerateOptions o{.max_new_tokens = n, .compiled = compiled};
    const Tensor* sound = given.find("input_features");
    const auto rows =
        sound
            ? models::generate_from(
                  m, {.decoder_input_ids = given.at("decoder_input_ids"), .input_features = *sound},
                  o)
            : models::generate(m, prompts_of(given), o);
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
    if (mode == "outputs") return outputs(*m, argv[3], argv[4]);
    if (mode == "generate") return generate(*m, argv[3], argv[4], std::atoll(argv[5]));
    return speed(*m, std::atoll(argv[3]));
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
