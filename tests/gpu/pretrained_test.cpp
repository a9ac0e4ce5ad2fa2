// SPDX-License-Identifier: Apache-2.0
// Hugging Face models on devices: outputs near those of the host, the same greedy tokens.
#include <cstdlib>
#include <filesystem>

#include "tandem/models/pretrained.h"
#include "tandem/models/text/generate.h"
#include "tandem/recipe/compiled_forward.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"

namespace tandem::gpu {
namespace {

std::string golden_model(const std::string& family) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/hf" + (family.empty() ? "" : "/") + family;
}

class PretrainedOnDevices : public OverDevices {};
TD_OVER_DEVICES(PretrainedOnDevices);

TEST_P(PretrainedOnDevices, AnswerLikeTheHost) {
  const NoGradGuard no_grad;
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_model(""))) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path();
    SCOPED_TRACE(folder);
    recipe::LoadedModel host = recipe::load_model({.model = folder});
    recipe::set_shapes(host, "");
    const recipe::LoadedModel there = recipe::load_model({.model = folder, .device = device_});
    manual_seed(2);
    const std::vector<Tensor> x = recipe::random_inputs(host), want = host.run(x);
    recipe::CompiledForward compiled(there);
    for (const std::vector<Tensor>& got : {there.run(x), compiled(x)})
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got.at(i).device(), device_);
        EXPECT_TRUE(allclose(got[i].cpu(), want[i], 1e-3, 1e-4)) << i;
      }
    ++models;
  }
  EXPECT_GT(models, 20);
}

TEST_P(PretrainedOnDevices, GenerateTheTokensOfTheHost) {
  size_t at = 0;
  for (const char* family : {"llama", "gpt2", "gemma3", "bart"}) {
    if (left_out(at++)) continue;
    SCOPED_TRACE(family);
    const auto tokens = [&](tandem::Device device) {
      const auto model = models::from_pretrained(golden_model(family));
      model->module().to(device);
      const DeviceGuard there(device);
      return models::generate(*model, {{3, 4, 5}, {6, 7}},
                              {.max_new_tokens = 9, .eos_token_id = {-1}});
    };
    EXPECT_EQ(tokens(device_), tokens(tandem::cpu));
  }
}

}  // namespace
}  // namespace tandem::gpu
