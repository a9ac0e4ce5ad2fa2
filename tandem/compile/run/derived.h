// SPDX-License-Identifier: Apache-2.0
// Values that follow from weights alone: packed matrices, filters with a norm folded in. They are
// no part of a call: computed when first needed, and recomputed when a weight was written. The
// same recipe over the same weights is one Derived for all programs of the process - other shapes,
// other callers, other traces of one model - as long as one of them lives.
#pragma once

#include <memory>
#include <mutex>

#include "tandem/compile/program/use_def.h"

namespace tandem::compiler {

class TD_API Derived {
 public:
  /// How value `v` of `p` is made. All that it reads is constants and cells. nullptr: an
  /// instruction on the way gives several values.
  static std::shared_ptr<Derived> of(const Program& p, const UseDef& uses, ValueId v);

  /// The value for what the cells hold now. Throws what its ops throw.
  Tensor value();
  /// Does it read no cell?
  bool is_constant() const { return cells_ == 0; }
  const Spec& spec() const { return spec_; }
  /// Bytes of what it is made of, elements that an expansion repeats counted once.
  size_t source_bytes() const;
  /// Times that it was computed.
  int64_t computed() const { return computed_; }

 private:
  /// A constant, or a cell with the generation that `value_` was computed from.
  struct Source {
    Tensor constant;
    Ref<Cell> cell;
    uint64_t generation = 0;
  };
  /// Values are renumbered: sources first, then the results of steps.
  struct Step {
    const OpDef* op;
    AttrsHolder attrs;
    SmallVec<Arg, 4> in;
    SourceLocation loc;
  };
  class Walk;
  bool up_to_date() const;
  void compute();
  std::string key() const;

  std::vector<Source> sources_;
  std::vector<Step> steps_;
  Spec spec_;
  size_t cells_ = 0;
  int64_t computed_ = 0;
  mutable std::mutex lock_;
  Tensor value_;
};

}  // namespace tandem::compiler
