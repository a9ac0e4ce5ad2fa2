// SPDX-License-Identifier: Apache-2.0
// What a dry run holds, moment by moment and by cause. Not installed.
#pragma once

#include "tandem/compile/executable.h"
#include "tandem/plan/workload.h"
#include "tandem/tensor/dry_memory.h"

namespace tandem::plan {

/// Which cause each block of the books has.
class Causes {
 public:
  explicit Causes(const DryMemory& books) : books_(books) {}
  void mark(const Tensor& t, Cause c) {
    if (!t.defined()) return;
    const int32_t b = DryMemory::block_of(*t.impl());
    if (b < 0) return;
    const auto k = static_cast<size_t>(b);
    if (marked_.size() <= k) marked_.resize(k + 1, Cause::count);
    marked_[k] = c;
  }
  Cause of(int32_t block) const {
    const auto k = static_cast<size_t>(block);
    if (k < marked_.size() && marked_[k] != Cause::count) return marked_[k];
    const DryBlock& b = books_.blocks()[k];
    if (b.use == DryUse::scratch) return Cause::workspace;
    switch (static_cast<Phase>(b.phase)) {
      case Phase::build:
        return Cause::weights;
      case Phase::input:
        return Cause::input;
      default:
        return Cause::activations;
    }
  }

 private:
  const DryMemory& books_;
  std::vector<Cause> marked_;
};

/// The equal block that a name lies in, "h.3" of "h.3.attn"; empty: none.
std::string block_of(const std::string& path);
inline bool in_block(const std::string& path) { return !block_of(path).empty(); }
/// Does a compiled step write a parameter: is it part of the update?
bool writes_parameter(const Executable& exe, const compiler::Step& s);
/// An eager step, from the books: event `first` on. Fills timeline, peak and peaks.
void moments_of(const DryMemory& books, const Causes& causes, size_t first, Workload& w);
/// A compiled step: its planned block, and `outside` of it what stays. Fills the same.
void moments_of(const Executable& exe, const Held& outside, Workload& w);

}  // namespace tandem::plan
