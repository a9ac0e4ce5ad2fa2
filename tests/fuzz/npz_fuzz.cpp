// SPDX-License-Identifier: Apache-2.0
// libFuzzer: any bytes are read as an npz file and as an npy file, or rejected.
#include "tandem/io/npy.h"

#include "tandem/tandem.h"
#include "tests/fuzz/fuzz.h"

using namespace tandem;
using namespace tandem::io;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const std::string to = fuzz::seeds();
  if (to.empty()) return 0;
  StateDict arrays;
  arrays["x"] = arange(6.0).reshape({2, 3});
  arrays["n"] = ones({4}, int32);
  save_npz(arrays, to + "stored", {});
  save_npz(arrays, to + "packed", {.compressed = true});
  save_npy(arrays["x"], to + "one.npy");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::File many(".npz"), one(".npy");
  fuzz::check([&] { load_npz(many.write(data, size)); });
  return fuzz::check([&] { load_npy(one.write(data, size)); });
}
