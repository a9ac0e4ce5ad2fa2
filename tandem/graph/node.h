// SPDX-License-Identifier: Apache-2.0
// Node: one call of an op. Tape and trace use the same nodes: on the tape an input's value is kept
// only if the op's derivative reads it (`saves`), in a trace always. Inputs point to the nodes that
// produced them; `depth` is one more than the deepest input that needs a gradient, so descending
// depth is a valid order for the backward walk, and the same one on the tape and in a trace.
#pragma once

#include <mutex>

#include "tandem/base/small_vec.h"
#include "tandem/graph/kernel.h"
#include "tandem/graph/op_def.h"

namespace tandem {

struct Node;
class Graph;

/// Collects the gradients of a leaf (a cell, or a tensor with requires_grad_).
struct TD_API GradSlot : RefCounted {
  Tensor grad;
  /// A compiled step consumed the gradient in its update: it was never stored.
  bool consumed = false;
  std::mutex lock;

  /// The gradient; throws Value if a compiled step has consumed it. The caller holds the lock.
  const Tensor& get() const;
  void set(Tensor g) {
    grad = std::move(g);
    consumed = false;
  }
};

struct NodeInput {
  Tensor value;    ///< saved (tape), the value itself (trace), or undefined
  Ref<Node> from;  ///< producer; set when a gradient flows or in a trace
  uint16_t from_index = 0;
  Device device{};
  bool present = false;  ///< a tensor was given
  bool is_scalar = false;
  bool needs_grad = false;
  DType dtype = DType::f32;
  Scalar scalar;
  Shape shape;
};

struct NodeOutput {
  DType dtype = DType::f32;
  Device device{};
  Shape shape;
  Tensor saved;  ///< detached from the tape (no cycle); undefined unless `saves_out`
};

enum NodeFlags : uint8_t {
  kTraced = 1,    ///< belongs to a Graph: backward keeps its values
  kReleased = 2,  ///< a backward pass has freed its saved values
  kLeaf = 4,      ///< no op: collects into `slot`
  kNoGrad = 8,    ///< traced while gradients were off (detach, NoGradGuard): runs keep them off
  kOfCell = 16,   ///< a leaf that is the value of a Param
  kRebound = 32,  ///< the result of `w += v` and the like whose w was a leaf
};

struct TD_API Node : detail::NodeBase {
  const OpDef* op = nullptr;
  AttrsHolder attrs;
  SmallVec<NodeInput, 3> in;
  SmallVec<NodeOutput, 1> out;
  uint32_t depth = 0;
  uint32_t scope = 0;  ///< interned layer path
  uint8_t flags = 0;
  SourceLocation loc;
  RngKey rng;                      ///< for a random op; in a trace `offset` is relative to entry
  const Graph* graph = nullptr;    ///< of a traced node; only compared
  Ref<GradSlot> slot;              ///< of a leaf
  uint32_t index = 0;              ///< position in its Graph
  std::atomic<uint64_t> owner{0};  ///< backward walk that holds `mark`, 0 none
  uint32_t mark = 0;               ///< position in that walk
  Node* next_free = nullptr;       ///< chain of nodes waiting to be freed

  static Ref<Node> make();
  static Ref<Node> make_leaf(Ref<GradSlot> slot);
  bool is_leaf() const { return flags & kLeaf; }
  bool is_traced() const { return flags & kTraced; }
  /// Drop saved values and edges without recursion.
  void release();
};

/// The node that produced `t`, or nullptr.
inline Node* node_of(const Tensor& t) {
  return t.defined() ? static_cast<Node*>(t.impl()->node) : nullptr;
}
/// Make `t` the output `index` of `node`. `t`'s impl must not be shared yet.
TD_API void set_node(Tensor& t, const Ref<Node>& node, uint32_t index);
/// The same value with a fresh impl and no node.
TD_API Tensor detached_alias(const Tensor& t);

}  // namespace tandem
