// SPDX-License-Identifier: Apache-2.0
// Values that the nodes of a traced model want to read. A size, an axis, a condition that follows
// from a few numbers among the call's inputs can be made a constant of the program: OnnxRunner
// traces the model again with those inputs known. All other reads end a trace.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "tandem/graph/node.h"
#include "tandem/tensor/tensor.h"

namespace tandem::onnx {

/// Whether `t` has no value that can be read here: it belongs to a trace.
bool is_hidden(const Tensor& t);

/// Collects the inputs behind the reads of one trace while it lives on this thread.
class ReadProbe {
 public:
  /// `inputs`: the traced tensors of the call. `wanted` receives the numbers of those that would
  /// have to be known; it stays empty where a read depends on anything else, or on large inputs.
  ReadProbe(std::span<const Tensor> inputs, std::set<size_t>& wanted);
  ~ReadProbe();
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;
  static ReadProbe* current();

  /// A read of `t` fails. A condition that follows from other than whole numbers changes from call
  /// to call: no input is made known for it.
  void fails(const Tensor& t, bool is_condition);
  /// Whether `t` follows from at most `most` whole numbers or conditions of each input behind it.
  bool is_choice(const Tensor& t, int64_t most) const;

  /// Forgets the reads of an attempt that another way of running a node replaces.
  class Attempt {
   public:
    Attempt() : before_(current() ? current()->wanted_ : std::set<size_t>()) {}
    void forget() {
      if (ReadProbe* p = current()) p->wanted_ = before_;
    }

   private:
    std::set<size_t> before_;
  };

 private:
  std::optional<std::set<size_t>> roots(const Tensor& t) const;

  std::unordered_map<const Node*, size_t> inputs_;
  std::span<const Tensor> tensors_;
  std::set<size_t>& wanted_;
  ReadProbe* outer_;
};

}  // namespace tandem::onnx
