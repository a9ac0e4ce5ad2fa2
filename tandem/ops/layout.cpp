// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/layout.h"

#include <fmt/format.h>

namespace tandem::detail {

std::string layout_hint(const Shape& x, int spatial, Dim channels, std::string otherwise) {
  const int lead = x.rank() - spatial;  // 2: a batch, 1: one sample
  if (spatial < 1 || spatial > 3 || lead < 1 || lead > 2) return otherwise;
  if (dims_equal(x[lead - 1], channels) || !dims_equal(x[x.rank() - 1], channels)) return otherwise;
  constexpr const char* kSpatial[] = {"l", "h, w", "d, h, w"};
  const std::string n = lead == 2 ? "n, " : "", s = kSpatial[spatial - 1];
  std::string order = lead == 2 ? "0, " : "";
  order += std::to_string(x.rank() - 1);
  for (int i = lead - 1; i < x.rank() - 1; ++i) order += fmt::format(", {}", i);
  return fmt::format(
      "x looks like [{}{}, channels]; the layout here is [{}channels, {}]: pass "
      "x.permute({{{}}}).",
      n, s, n, s, order);
}

}  // namespace tandem::detail
