// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/queries.h"

#include <optional>
#include <random>

namespace tandem {
namespace {

// How much an operand counts: numbers least, tensors with dimensions most.
int weight_of(const Operand& o) { return o.is_scalar() ? 0 : o.tensor().dim() == 0 ? 1 : 2; }
DType dtype_of_operand(const Operand& o) {
  return o.is_scalar() ? o.scalar().dtype() : o.tensor().dtype();
}

}  // namespace

DType result_type(const Operand& a, const Operand& b) {
  const DType x = dtype_of_operand(a), y = dtype_of_operand(b);
  const int p = weight_of(a), q = weight_of(b);
  if (p == q) return promote(x, y);
  const DType strong = p > q ? x : y, weak = p > q ? y : x;
  return category(weak) > category(strong) ? weak : strong;
}

bool can_cast(DType from, DType to) { return category(from) <= category(to); }

bool is_nonzero(const Tensor& x, SourceLocation loc) {
  return detail::named("is_nonzero", loc, [&] {
    return x.dtype() == DType::b8   ? x.item<bool>(loc)
           : is_floating(x.dtype()) ? x.item<double>(loc) != 0
                                    : x.item<int64_t>(loc) != 0;
  });
}

uint64_t seed() {
  std::random_device device;
  const uint64_t s = uint64_t{device()} << 32 | device();
  manual_seed(s);
  return s;
}

void set_deterministic_debug_mode(int mode) {
  TD_CHECK(mode == 0 || mode == 2, Value, "the mode is {}\nUse 0 (off) or 2 (on).", mode);
  context().deterministic = mode == 2;
}

Device get_default_device() { return context().device; }
void set_default_device(Device device) {
  const DeviceGuard check(device);  // throws for a device that is not there
  context().device = device;
}

}  // namespace tandem
