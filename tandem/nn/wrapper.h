// SPDX-License-Identifier: Apache-2.0
// Wrappers: code around the forward of a layer that a net already has, whatever the net's type.
// Pruning masks its weight, quantisation-aware training rounds its input and weight. The layer
// keeps its names; what a wrapper holds is listed beside them.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn {

/// What stands around a layer's forward. clone() of the net copies it.
class TD_API Wrapper {
 public:
  using Next = std::function<Tensor(Tensor)>;
  virtual ~Wrapper() = default;
  /// The layer's result for x; `next` calls what is inside, the layer itself in the end.
  virtual Tensor forward(Module& layer, Tensor x, const Next& next) = 0;
  /// Shows the visitor its parameters and buffers, as members of the layer.
  virtual void visit(MemberVisitor&) {}
  /// A copy that shares cells and nothing else.
  virtual std::shared_ptr<Wrapper> copy() const = 0;
};

/// Put `w` around a layer, outside of those that are there. Throws Unsupported for a layer whose
/// forward does not take one tensor.
TD_API void wrap(Module& layer, std::shared_ptr<Wrapper> w);
/// `inner` with the layer's wrappers around it: for a layer's second way to be called.
TD_API Tensor call_in_wrappers(Module& layer, Tensor x, const Wrapper::Next& inner);
/// Take it off again.
TD_API void unwrap(Module& layer, const Wrapper& w);
/// Those of a layer, the innermost first.
TD_API std::vector<std::shared_ptr<Wrapper>> wrappers(Module& layer);
/// The one of that class; nullptr: none.
template <class W>
std::shared_ptr<W> wrapper_of(Module& layer) {
  for (const std::shared_ptr<Wrapper>& w : wrappers(layer))
    if (auto found = std::dynamic_pointer_cast<W>(w)) return found;
  return {};
}

}  // namespace tandem::nn
