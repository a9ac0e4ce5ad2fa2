// SPDX-License-Identifier: Apache-2.0
// Pretrained models whose linear layers hold codes of 2, 4 or 8 bits: which layers can, and the
// tensors of folders in the formats of GPTQ and AWQ, which other libraries read as well.
#pragma once

#include <string>
#include <vector>

#include "tandem/models/pretrained.h"
#include "tandem/ops/matmul/nbits.h"

namespace tandem::models {

/// A linear layer whose weight may be codes. Valid as long as its model.
struct CodedLayer {
  std::string name;
  nn::Module* module = nullptr;
  /// [n, k]: the numbers, or those that its codes stand for.
  TD_API Tensor weight() const;
  TD_API bool has_codes() const;
  TD_API PackedCodes codes() const;
  /// Replaces the numbers, of which there must be as many.
  TD_API void set_weight(const Tensor& w) const;
  /// From now on the layer computes with codes.
  TD_API void set_codes(const PackedCodes& w) const;
};
/// In order of registration; heads, embeddings and mixtures of experts are not among them.
TD_API std::vector<CodedLayer> coded_layers(PretrainedModel& model);

/// How layers with codes round what they read from now on: PackedCodes::accuracy_level. Throws
/// Value for a model without such layers.
TD_API void set_accuracy_level(PretrainedModel& model, int64_t level);

/// Layers that read what one norm or layer gives: their inputs may be divided by numbers that their
/// weights are multiplied with (AWQ).
struct ScaledInputs {
  std::vector<size_t> readers;  ///< of coded_layers()
  std::string from;             ///< the module whose result they read
};
TD_API std::vector<ScaledInputs> scaled_inputs(PretrainedModel& model,
                                               const std::vector<CodedLayer>& layers);
/// Divide what `s.from` gives by `scales` [k] and multiply the readers' weights with them: the
/// model stays the same function.
TD_API void scale_inputs(PretrainedModel& model, const std::vector<CodedLayer>& layers,
                         const ScaledInputs& s, const Tensor& scales);

/// The tensors of a layer in GPTQ's format, by name behind the layer's: qweight i32
/// [k * bits / 32, n], qzeros i32 [groups, n * bits / 32], scales f16 [groups, n], g_idx i32 [k].
/// Throws Unsupported where k or n do not fill whole numbers of 32 bits.
TD_API StateDict gptq_tensors(const PackedCodes& w, int64_t k);
/// May a weight [n, k] be written in that format?
TD_API bool fits_gptq(int64_t n, int64_t k, int64_t bits);

namespace detail {
/// The codes in the files of a folder whose config.json has a "quantization_config" go into the
/// model's layers; in `files` they get the names that the model has for them. Throws Format,
/// Unsupported.
void take_codes(PretrainedModel& model, StateDict& files);
/// Throws Unsupported, naming what is not supported, unless codes of that config can be read.
void check_codes_config(const ModelConfig& config);
}  // namespace detail

}  // namespace tandem::models
