// SPDX-License-Identifier: Apache-2.0
// Sums of what blocks of a kernel have added up: neighbouring threads take neighbouring columns,
// 32 of them share one.
#include <fmt/format.h>

#include "tandem/backend/gpu/rows/row_text_internal.h"

namespace tandem::gpu {
namespace {

constexpr char kAddParts = 0;  // what its kernels are kept under
constexpr int kPartLanes = 16, kPartOthers = 32;

KernelSource parts_source(DType sum, DType y) {
  KernelSource k{.name = "add_parts",
                 .parameters = {{Parameter::out, word_of(y), "y"},
                                {Parameter::in, sum, "part"},
                                {Parameter::value, DType::i64, "columns"},
                                {Parameter::value, DType::i64, "parts"}},
                 .shared = {{sum, "shared", kPartLanes * kPartOthers}},
                 .threads = kPartLanes * kPartOthers,
                 .prelude = true};
  k.body = fmt::format(R"td_text(
  const td_i32 t = td_thread(x), lane = t % {0}, other = t / {0};
  const td_i64 j = (td_i64)td_block(x) * {0} + lane;
  {2} sum = 0;
  for (td_i64 b = other; b < parts && j < columns; b += {1}) sum = sum + part[b * columns + j];
  shared[t] = sum;
  for (td_i32 gap = {1} / 2; gap > 0; gap /= 2) {{
    td_barrier();
    if (other < gap) shared[t] = shared[t] + shared[t + gap * {0}];
  }}
  if (other == 0 && j < columns) y[j] = {3};
)td_text",
                       kPartLanes, kPartOthers, td_type(sum), stored("shared[t]", y));
  return k;
}

}  // namespace

void add_parts(const KernelCall& c, Address part, DType sum, int64_t parts, const Array& y) {
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const uint64_t types = static_cast<uint64_t>(sum) << 8 | static_cast<uint64_t>(y.dtype);
  const KernelRef k =
      plain_kernel(e, {&kAddParts, types, 0}, [&] { return parts_source(sum, y.dtype); });
  Arguments a;
  argue_array(a, y);
  a.address(part, static_cast<size_t>(parts * y.numel) * size_of(sum)).value(y.numel).value(parts);
  e.launch(k, {static_cast<uint32_t>((y.numel + kPartLanes - 1) / kPartLanes)},
           {kPartLanes * kPartOthers}, a, e.stream(c.stream));
}

}  // namespace tandem::gpu
