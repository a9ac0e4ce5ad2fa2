// SPDX-License-Identifier: Apache-2.0
// Offsets in the arena: buffers in order of size, each at the lowest place that no buffer alive at
// the same time holds (greedy by size; Pisarchyk and Lee 2020, "Efficient Memory Management for
// Deep Neural Net Inference", section 5.2). The bound below is the most that is alive at once.
#include <algorithm>

#include "tandem/compile/lowering/lower.h"

namespace tandem::compiler {
namespace {

struct Placed {
  size_t begin, end;
  int first, last;
};

size_t lowest_gap(std::vector<Placed>& placed, const Block& b, size_t bytes) {
  size_t at = 0;
  for (const Placed& q : placed) {  // in order of begin
    if (q.last < b.first || b.last < q.first) continue;
    if (q.begin >= at + bytes) break;
    at = std::max(at, q.end);
  }
  return at;
}

}  // namespace

void plan_memory(Lowered& l, size_t align) {
  std::vector<int> order;
  std::vector<int64_t> change(l.steps.size() + 2);
  for (size_t k = 0; k < l.buffers.size(); ++k) {
    const Block& b = l.buffers[k];
    if (b.base != Base::arena || b.same_as != kNone || b.first == kNone || b.bytes == 0) continue;
    order.push_back(static_cast<int>(k));
    auto bytes = static_cast<int64_t>((b.bytes + align - 1) / align * align);
    change[static_cast<size_t>(b.first)] += bytes;
    change[static_cast<size_t>(b.last) + 1] -= bytes;
  }
  int64_t alive = 0;
  for (size_t k = 0; k < l.steps.size(); ++k) {
    alive += change[k];
    if (alive <= static_cast<int64_t>(l.lower_bound)) continue;
    l.lower_bound = static_cast<size_t>(alive);
    l.peak_step = static_cast<int>(k);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return l.buffers[static_cast<size_t>(a)].bytes > l.buffers[static_cast<size_t>(b)].bytes;
  });
  std::vector<Placed> placed;
  for (int k : order) {
    Block& b = l.buffers[static_cast<size_t>(k)];
    size_t bytes = (b.bytes + align - 1) / align * align;
    b.offset = lowest_gap(placed, b, bytes);
    l.arena_bytes = std::max(l.arena_bytes, b.offset + bytes);
    Placed q{b.offset, b.offset + bytes, b.first, b.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), q,
                         [](const Placed& x, const Placed& y) { return x.begin < y.begin; }),
        q);
  }
  for (Block& b : l.buffers)
    if (b.same_as != kNone) {
      int root = b.same_as;
      while (l.buffers[static_cast<size_t>(root)].same_as != kNone)
        root = l.buffers[static_cast<size_t>(root)].same_as;
      b.offset = l.buffers[static_cast<size_t>(root)].offset;
    }
}

}  // namespace tandem::compiler
