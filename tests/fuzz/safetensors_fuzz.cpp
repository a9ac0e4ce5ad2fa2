// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as a safetensors file, or rejected.
#include "tandem/io/safetensors.h"

#include "tandem/tandem.h"
#include "tests/fuzz/fuzz.h"

namespace {
using namespace tandem;

double sum_of(const StateDict& values) {
  double sum = 0;
  for (const auto& [name, t] : values)
    if (t.numel() > 0) sum += t.to(DType::f64).sum().item<double>();
  return sum;
}
}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::string to = fuzz::seeds();
  if (to.empty()) return 0;
  StateDict two, odd;
  two["weight"] = arange(12.0).reshape({3, 4});
  two["bias"] = zeros({3}, bfloat16);
  odd["nothing"] = zeros({0, 3}, int64);
  odd["flag"] = ones({}, boolean);
  save(two, to + "two", {{"format", "pt"}});
  save(odd, to + "odd");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::File file(".safetensors");
  return fuzz::check([&] {
    Metadata metadata;
    sum_of(load(file.write(data, size), &metadata));
  });
}
