// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as a file of torch.save, zipped or old, or rejected.
#include "tandem/tandem.h"
#include "tandem/weights/torch_file.h"
#include "tests/fuzz/fuzz.h"

using namespace tandem;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::string to = fuzz::seeds();
  if (to.empty()) return 0;
  weights::TorchValue::Dict state, top;
  const Tensor weight = arange(12.0).reshape({3, 4});
  state.emplace_back("weight", weight);
  state.emplace_back("row", weight.select(0, 1));
  top.emplace_back("state_dict", std::move(state));
  top.emplace_back("epoch", 3);
  top.emplace_back("betas", weights::TorchValue::List{0.9, 0.999});
  top.emplace_back("name", "adam");
  weights::save_torch(std::move(top), to + "checkpoint");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::File file(".pt");
  return fuzz::check([&] { weights::load_torch(file.write(data, size)); });
}
