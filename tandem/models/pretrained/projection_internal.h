// SPDX-License-Identifier: Apache-2.0
// The linear layers of pretrained models: their weight is numbers, or codes that a quantised folder
// holds. Not installed.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/matmul/nbits.h"

namespace tandem::models::detail {

/// Codes in place of a weight; undefined: numbers.
struct CodedWeight {
  Buffer codes, scale, zero;
  int64_t bits = 0;
  int64_t accuracy_level = 0;  ///< as of PackedCodes
  int64_t columns = 0;         ///< of the weight; its last group may have more codes
  bool defined() const { return codes.defined(); }
  PackedCodes value() const;
  void set(const PackedCodes& w);
  /// x [..., k] times the transposed weight, plus the bias if there is one.
  Tensor times(Tensor x, const Param& bias) const;
};

/// How coded_layers() reaches the weight of a layer whose state has this as its `kind`.
struct ProjectionKind {
  bool turned;  ///< the weight is [in, out]
  Param& (*weight)(nn::Module&);
  CodedWeight& (*coded)(nn::Module&);
  /// After codes were set: registers them, and lets calls read them.
  void (*use)(nn::Module&);
};
template <class Layer, bool turned>
const ProjectionKind* projection_kind() {
  static const ProjectionKind kind{
      turned, [](nn::Module& m) -> Param& { return static_cast<Layer&>(m).weight; },
      [](nn::Module& m) -> CodedWeight& { return static_cast<Layer&>(m).coded; },
      [](nn::Module& m) { static_cast<Layer&>(m).use_codes(); }};
  return &kind;
}

/// nn::Linear, and as such what LoRA finds, until its weight becomes codes.
class Projection : public nn::Linear {
 public:
  Projection(Dim in, Dim out, nn::LinearOptions options = {});
  Tensor forward(Tensor x);
  void use_codes();
  CodedWeight coded;
};

/// GPT-2's layer: its weight is [in, out].
class Conv1D : public nn::Module {
 public:
  Conv1D(int64_t in, int64_t out);
  Tensor forward(Tensor x);
  void use_codes();
  Param weight, bias;
  CodedWeight coded;
};

/// The kind of such a layer, nullptr for any other module.
const ProjectionKind* projection_kind_of(const nn::Module& m);

}  // namespace tandem::models::detail
