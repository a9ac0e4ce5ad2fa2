// SPDX-License-Identifier: Apache-2.0
// run(Graph) with somebody who sees every call and may put something else in its place: how room
// quant watches a network and makes another of it.
#pragma once

#include <span>
#include <vector>

#include "tandem/graph/trace.h"

namespace tandem {

class TD_API NodeVisitor {
 public:
  virtual ~NodeVisitor() = default;
  /// Before the call of `n`. `in` has a tensor for each of its operands, undefined where it is
  /// absent or a number; they may be replaced. True: `out` was set and the row is not called.
  virtual bool before(const Node& n, std::span<Tensor> in, Tensor* out) = 0;
  /// After it; the results may be replaced.
  virtual void after(const Node& n, Tensor* out) = 0;

  /// The attributes of the node that is visited, its symbols replaced by the sizes of this run.
  const void* attrs() const { return attrs_; }
  void set_attrs(const void* attrs) { attrs_ = attrs; }  ///< called by run()

 private:
  const void* attrs_ = nullptr;
};

/// As run(g, inputs); placeholders are not visited. Inside a trace of g's own symbols the calls
/// become part of that trace.
TD_API std::vector<Tensor> run(const Graph& g, std::span<const Tensor> inputs,
                               NodeVisitor& visitor);

}  // namespace tandem
