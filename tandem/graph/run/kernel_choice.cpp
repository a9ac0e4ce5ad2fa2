// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/run/kernel_choice.h"

#include "tandem/base/small_vec.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/run/array_walk.h"

namespace tandem {
namespace {

// No kernel takes the inputs' strides: one that takes them row by row gets row-major copies, which
// is far cheaper than the reference.
bool choose_for_copies(const KernelCall& call, KernelChoice& c) {
  if (&call.op == &op::copy) return false;  // it makes the copies
  uint64_t strided = 0;
  for (int i = 0; i < call.n_in && i < 64; ++i)
    if (call.in[i].data && !call.in[i].contiguous) strided |= uint64_t{1} << i;
  if (!strided) return false;
  SmallVec<Array, 8> dense;
  SmallVec<Strides, 8> strides;
  strides.resize(static_cast<size_t>(call.n_in));
  for (int i = 0; i < call.n_in; ++i) {
    Array a = call.in[i];
    if (i < 64 && strided >> i & 1) {
      Strides& s = strides[static_cast<size_t>(i)];
      s = row_major_strides(a);
      a.strides = s.data();
      a.contiguous = true;
    }
    dense.push_back(a);
  }
  KernelCall attempt = call;
  attempt.in = dense.data();
  c.kernel = find_kernel(attempt, call.device.kind);
  if (c.kernel) c.row_major = strided;
  return c.kernel != nullptr;
}

}  // namespace

KernelChoice choose_kernel(const KernelCall& call) {
  KernelChoice c;
  c.kernel = find_kernel(call, call.device.kind);
  if (TD_LIKELY(c.kernel != nullptr) || choose_for_copies(call, c)) return c;
  const bool host = is_host(call.device);
  if (call.op.body_fn && (host || !backend_of(call.device).whole_composites)) {
    c.way = KernelChoice::body;
    return c;
  }
  if (host) return c;
  KernelCall there = call;
  there.device = cpu;
  c = choose_kernel(there);
  c.on_host = c.way == KernelChoice::direct;
  return c;
}

}  // namespace tandem
