// SPDX-License-Identifier: Apache-2.0
// Models of Hugging Face folders (config.json and safetensors) behind one door: BERT, DistilBERT,
// RoBERTa, GPT-2, Llama, ViT, T5. The names of parameters are the files' names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/models/model_config.h"
#include "tandem/nn/nn.h"

namespace tandem::models {

/// What a model is called with; a family takes what it knows and needs.
struct ModelInputs {
  Tensor input_ids = {};          ///< [n, l] integers
  Tensor attention_mask = {};     ///< [n, l], 1: a token, 0: padding
  Tensor token_type_ids = {};     ///< [n, l]
  Tensor decoder_input_ids = {};  ///< [n, l'] of encoder-decoder models
  Tensor pixel_values = {};       ///< [n, channels, height, width]
};

/// The keys and values of all layers while tokens are generated, of fixed size.
struct DecodeState {
  std::vector<nn::KVCache> layers;  ///< behind those of an encoder-decoder model: of its prompt
  Buffer start;                     ///< [n]: how many tokens on the left of each row are padding
};

/// A model of a folder: a handle to a module and its config.
class TD_API PretrainedModel {
 public:
  explicit PretrainedModel(ModelConfig config) : config(std::move(config)) {}
  virtual ~PretrainedModel() = default;
  /// Logits, or the last hidden states of a model without a head: as the class named in
  /// "architectures" gives them. Throws Value when an input is missing.
  virtual Tensor forward(const ModelInputs& in) = 0;
  virtual nn::Module& module() = 0;

  /// Is this a decoder that generates text token by token?
  virtual bool is_causal() const { return false; }
  /// Does an encoder read the prompt, and a decoder write a text of its own?
  virtual bool is_encoder_decoder() const { return false; }
  /// Empty caches for `n` rows of up to `length` tokens. Throws Unsupported for other models.
  virtual DecodeState start_decoding(int64_t n, int64_t length);
  /// Logits [n, vocab] behind the last of `ids` [n, l], which are appended to the caches. May be
  /// compiled, behind the first call: that brings the prompt, which an encoder-decoder model gives
  /// its encoder, and its decoder begins with decoder_start_token_id.
  virtual Tensor decode(const Tensor& ids, DecodeState& state);
  /// Longest sequence that positions exist for; 0: any.
  virtual int64_t max_positions() const { return 0; }

  ModelConfig config;
  std::vector<std::string> unexpected;  ///< names in the files that the model has no use for
};

/// Make the model of `config` with fresh weights. Throws Format for a config that is none,
/// Unsupported for a family that is not known.
TD_API std::unique_ptr<PretrainedModel> from_config(const ModelConfig& config);
/// Read a folder: config.json and model.safetensors (or its shards by
/// model.safetensors.index.json). The model is in eval mode. Throws Io, Format, Unsupported.
TD_API std::unique_ptr<PretrainedModel> from_pretrained(const FilePath& folder);

}  // namespace tandem::models
