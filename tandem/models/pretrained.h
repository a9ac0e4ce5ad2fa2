// SPDX-License-Identifier: Apache-2.0
// Models from Hugging Face folders (config.json and safetensors) through one interface: BERT,
// DistilBERT, RoBERTa, GPT-2, Llama, ViT, T5. Parameter names are the files' names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/models/model_config.h"
#include "tandem/nn/nn.h"

namespace tandem::models {

/// The inputs of a model; each family uses those it knows and needs.
struct ModelInputs {
  Tensor input_ids = {};          ///< [n, l] integers
  Tensor attention_mask = {};     ///< [n, l], 1: a token, 0: padding
  Tensor token_type_ids = {};     ///< [n, l]
  Tensor decoder_input_ids = {};  ///< [n, l'] of encoder-decoder models
  Tensor pixel_values = {};       ///< [n, channels, height, width]
};

/// The keys and values of all layers during generation, with fixed size.
struct DecodeState {
  std::vector<nn::KVCache> layers;  ///< an encoder-decoder model has its prompt's last
  Buffer start;                     ///< [n]: how many tokens at the left of each row are padding
};

/// A model loaded from a folder: a handle to a module and its config.
class TD_API PretrainedModel {
 public:
  explicit PretrainedModel(ModelConfig config) : config(std::move(config)) {}
  virtual ~PretrainedModel() = default;
  /// Logits, or the last hidden states of a model without a head, as determined by the class named
  /// in "architectures". Throws Value when an input is missing.
  virtual Tensor forward(const ModelInputs& in) = 0;
  virtual nn::Module& module() = 0;

  /// Whether this is a decoder that generates text token by token.
  virtual bool is_causal() const { return false; }
  /// Whether an encoder reads the prompt and a decoder writes a text of its own.
  virtual bool is_encoder_decoder() const { return false; }
  /// Empty caches for `n` rows of up to `length` tokens. Throws Unsupported for other models.
  virtual DecodeState start_decoding(int64_t n, int64_t length);
  /// Logits [n, vocab] after the last of `ids` [n, l], which are appended to the caches. May be
  /// compiled after the first call, which passes the prompt; an encoder-decoder model passes it to
  /// its encoder, and its decoder begins with decoder_start_token_id.
  virtual Tensor decode(const Tensor& ids, DecodeState& state);
  /// Longest sequence for which positions exist; 0: unlimited.
  virtual int64_t max_positions() const { return 0; }

  ModelConfig config;
  std::vector<std::string> unexpected;  ///< names in the files that the model does not use
};

/// Create the model of `config` with fresh weights. Throws Format for an invalid config,
/// Unsupported for an unknown family.
TD_API std::unique_ptr<PretrainedModel> from_config(const ModelConfig& config);
/// Load a folder: config.json and model.safetensors (or its shards, listed in
/// model.safetensors.index.json). The model is in eval mode. Throws Io, Format, Unsupported.
TD_API std::unique_ptr<PretrainedModel> from_pretrained(const FilePath& folder);

}  // namespace tandem::models
