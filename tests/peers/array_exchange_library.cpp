// SPDX-License-Identifier: Apache-2.0
// What tests/peers/array_exchange calls from Python: tensors through DLPack and NumPy's files.
#include <tandem/tandem.h>

using namespace tandem;

namespace {
Tensor g_kept;
}

extern "C" {
void* give(int versioned) {
  init();
  Tensor x = arange(24).to(float32).reshape({4, 6}).slice(1, 0, 6, 2).transpose(0, 1);
  return versioned ? static_cast<void*>(io::to_dlpack_versioned(x))
                   : static_cast<void*>(io::to_dlpack(x));
}
/// Takes a tensor and returns the sum of its elements; it is held until let_go().
double take(void* managed, int versioned) {
  init();
  g_kept = versioned ? io::from_dlpack(static_cast<io::DLManagedTensorVersioned*>(managed))
                     : io::from_dlpack(static_cast<io::DLManagedTensor*>(managed));
  return g_kept.to(float64).sum().item<double>();
}
const void* kept_address() { return g_kept.impl()->data; }
void let_go() { g_kept = Tensor(); }
void rewrite_npz(const char* from, const char* to, int compressed) {
  io::save_npz(io::load_npz(from), to, {.compressed = compressed != 0});
}
}
