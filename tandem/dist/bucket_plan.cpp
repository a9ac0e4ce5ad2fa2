// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/bucket_plan.h"

#include <algorithm>

namespace tandem::distributed {

std::vector<std::vector<size_t>> bucket_plan(const std::vector<BucketItem>& items, double cap_mb,
                                             double first_mb) {
  const auto bytes_of = [](const BucketItem& x) {
    return static_cast<double>(x.elements) * static_cast<double>(size_of(x.dtype));
  };
  if (cap_mb == 0) {
    double bytes = 0;
    for (const BucketItem& x : items) bytes += bytes_of(x);
    cap_mb = std::clamp(bytes / 12e6, 0.5, 25.0);
  }
  struct Open {
    DType dtype;
    double bytes = 0;
    std::vector<size_t> of;
  };
  std::vector<std::vector<size_t>> full;
  std::vector<Open> open;
  for (size_t i = items.size(); i-- > 0;) {
    auto b = std::find_if(open.begin(), open.end(),
                          [&](const Open& x) { return x.dtype == items[i].dtype; });
    if (b == open.end()) b = open.insert(open.end(), {items[i].dtype, 0, {}});
    b->bytes += bytes_of(items[i]);
    b->of.push_back(i);
    if (b->bytes < (full.empty() ? std::min(first_mb, cap_mb) : cap_mb) * 1e6) continue;
    full.push_back(std::move(b->of));
    open.erase(b);
  }
  for (Open& b : open) full.push_back(std::move(b.of));
  return full;
}

}  // namespace tandem::distributed
