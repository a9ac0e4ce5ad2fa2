// SPDX-License-Identifier: Apache-2.0
// Regions: neighbouring loops over whole row-major values that touch different bytes are divided
// among the threads together, so that many small updates cost one region.
#include <algorithm>

#include "tandem/compile/lowering/stages.h"

namespace tandem::compiler {
namespace {

bool flat(const Lowered& l, const Step& s) {
  if (s.op || s.inside || !is_host(l.device)) return false;
  const int64_t n = l.places[s.out[0]].shape.numel().value();
  for (int o : s.out)
    if (!l.places[o].contiguous || l.places[o].shape.numel().value() != n) return false;
  for (const StepInput& x : s.in) {
    if (x.place == kNone) continue;
    const Place& q = l.places[x.place];
    const int64_t m = q.shape.numel().value();
    if (m != 1 && (m != n || !q.contiguous)) return false;
  }
  return true;
}

// What the steps of a region read and write. The old and the new value of a cell count as one.
class Touched {
 public:
  explicit Touched(const Lowered& l) : l_(l), at_(l.buffers.size() + l.cell_exits.size()) {}

  void next_region() { ++region_; }

  /// Does the step write what the region touches, or touch what the region writes?
  bool meets(const Step& s) const {
    bool found = false;
    each(s, [&](size_t k, bool writes) {
      found = found || (writes ? at_[k].touched : at_[k].written) == region_;
    });
    return found;
  }
  void add(const Step& s) {
    each(s, [&](size_t k, bool writes) {
      at_[k].touched = region_;
      if (writes) at_[k].written = region_;
    });
  }

 private:
  struct Marks {
    int touched = 0, written = 0;  ///< the last region that did
  };

  template <class F>
  void each(const Step& s, F f) const {
    for (const StepInput& x : s.in)
      if (x.place != kNone) f(key(x.place), false);
    for (int o : s.out)
      if (o != kNone) f(key(o), true);
  }
  size_t key(int place) const {
    const int root = root_buffer(l_, l_.places[static_cast<size_t>(place)].buffer);
    const Block& b = l_.buffers[static_cast<size_t>(root)];
    const bool cell = b.base == Base::cell || b.base == Base::cell_new;
    return cell ? l_.buffers.size() + static_cast<size_t>(b.index) : static_cast<size_t>(root);
  }

  const Lowered& l_;
  std::vector<Marks> at_;
  int region_ = 0;
};

// The end of the region that begins at step k.
size_t region_end(const Lowered& l, Touched& touched, size_t k) {
  size_t end = k + 1;
  if (!flat(l, l.steps[k])) return end;
  touched.next_region();
  touched.add(l.steps[k]);
  for (; end < l.steps.size() && flat(l, l.steps[end]) && !touched.meets(l.steps[end]); ++end)
    touched.add(l.steps[end]);
  return end;
}

}  // namespace

void group_loops(Lowered& l) {
  Touched touched(l);
  for (size_t k = 0, end = 0; k < l.steps.size(); k = end) {
    end = region_end(l, touched, k);
    if (end == k + 1) continue;
    l.steps[k].together = static_cast<int>(end - k);
    // Their buffers live as long as the whole region: parts run in any order.
    const auto extend = [&](int place) {
      Block& b = l.buffers[root_buffer(l, l.places[place].buffer)];
      b.first = std::min(b.first, static_cast<int>(k));
      b.last = std::max(b.last, static_cast<int>(end) - 1);
    };
    for (size_t j = k; j < end; ++j) {
      for (const StepInput& x : l.steps[j].in)
        if (x.place != kNone) extend(x.place);
      for (int o : l.steps[j].out) extend(o);
    }
  }
}

}  // namespace tandem::compiler
