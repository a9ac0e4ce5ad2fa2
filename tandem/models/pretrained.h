// SPDX-License-Identifier: Apache-2.0
// Models from Hugging Face folders (config.json and safetensors) through one interface. Names of
// parameters are those of the files, names of inputs and outputs those of the library
// `transformers`. docs/models.md lists the families.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/model_config.h"
#include "tandem/models/open_dim.h"
#include "tandem/nn/nn.h"

namespace tandem::models {

/// What a model takes or gives.
struct ModelPort {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  ///< -1: open
  bool optional = false;
  OpenDims open = {};  ///< what the architecture leaves open
};

/// The inputs of a model; each family uses those that PretrainedModel::inputs() names.
struct ModelInputs {
  Tensor input_ids = {};          ///< [n, l] integers; of multiple choice [n, choices, l]
  Tensor attention_mask = {};     ///< input_ids' shape, 1: a token, 0: padding
  Tensor token_type_ids = {};     ///< input_ids' shape
  Tensor decoder_input_ids = {};  ///< [n, l'] of encoder-decoder models
  Tensor pixel_values = {};       ///< [n, channels, height, width]
  Tensor input_features = {};     ///< [n, mel bins, frames] of sound
  Tensor noise = {};              ///< [n, patches]: which patches a masked autoencoder hides
  /// The input of that name. Throws Value, naming those that there are.
  TD_API Tensor& at(std::string_view name);
};

/// The keys and values of all layers during generation, with fixed size.
struct DecodeState {
  std::vector<nn::KVCache> layers;  ///< an encoder-decoder model has its prompt's last
  Buffer start;                     ///< [n]: how many tokens at the left of each row are padding
};

/// The keys and values of many texts in blocks of a common pool (ops/nn/paged_attention.h).
struct PagedCache {
  struct Layer {
    Buffer k, v;  ///< [slots, key heads, size of a head]
  };
  std::vector<Layer> layers;
  int64_t block = 16;  ///< slots of a block; block 0 takes what padding writes
};
/// Tokens that n texts read at once, up to l each.
struct PagedStep {
  Tensor ids;        ///< [n, l]
  Tensor positions;  ///< [n, l] in their texts; -1: padding
  Tensor slots;      ///< [n, l]: where their keys go; 0 for padding
  Tensor table;      ///< [n, t]: the blocks of each text
  Tensor last;       ///< [n] or [n, m]: the tokens, of l, after which the logits are wanted
};

/// A model loaded from a folder: a handle to a module and its config.
class TD_API PretrainedModel {
 public:
  explicit PretrainedModel(ModelConfig config) : config(std::move(config)) {}
  virtual ~PretrainedModel() = default;
  /// What the model takes; optional ones last.
  virtual std::vector<ModelPort> inputs() const = 0;
  /// The names of its outputs: logits; last_hidden_state of a model without a head; start_logits
  /// and end_logits ... as the class named in "architectures" has them.
  virtual std::vector<std::string> output_names() const = 0;
  /// The outputs in the order of output_names(). Throws Value when an input is missing.
  virtual std::vector<Tensor> run(const ModelInputs& in) = 0;
  /// The first of them.
  Tensor forward(const ModelInputs& in) { return run(in).at(0); }
  virtual nn::Module& module() = 0;

  /// Whether this is a decoder that generates text token by token.
  virtual bool is_causal() const { return false; }
  /// Whether an encoder reads the prompt and a decoder writes a text of its own.
  virtual bool is_encoder_decoder() const { return false; }
  /// Empty caches for `n` rows of up to `length` tokens. Throws Unsupported for other models.
  virtual DecodeState start_decoding(int64_t n, int64_t length);
  /// Read the prompt: logits [n, vocab] after its last token. Rows are padded on the left, where
  /// `state.start` says so. An encoder-decoder model reads it with its encoder; its decoder begins
  /// with decoder_input_ids or, where there are none, with decoder_start_token_id.
  virtual Tensor start(const ModelInputs& prompt, DecodeState& state);
  /// Logits [n, vocab] after the last of `ids` [n, l], which are appended to the caches. May be
  /// compiled.
  virtual Tensor decode(const Tensor& ids, DecodeState& state);
  /// An empty pool for texts of different lengths that are decoded together. Throws Unsupported for
  /// models that cannot.
  virtual PagedCache start_paged(int64_t blocks, int64_t block = 16);
  /// Logits [n, vocab] (of several tokens [n, m, vocab]) after the tokens, which are added to the
  /// pool. May be compiled.
  virtual Tensor decode_paged(const PagedStep& step, PagedCache& cache);
  /// Longest sequence for which positions exist; 0: unlimited.
  virtual int64_t max_positions() const { return 0; }

  /// What the decoder of an encoder-decoder model begins with, [n, l].
  Tensor first_tokens(const ModelInputs& prompt, int64_t n) const;

  ModelConfig config;
  std::vector<std::string> unexpected;  ///< weights in the files that the model does not use
  /// Keys of config.json that it does not know and that may change results.
  std::vector<std::string> unknown_keys;
};

/// Create the model of `config` with fresh weights. Throws Format for an invalid config,
/// Unsupported for an unknown family.
TD_API std::unique_ptr<PretrainedModel> from_config(const ModelConfig& config);
/// Load a folder: config.json and model.safetensors (or its shards, listed in
/// model.safetensors.index.json). The model is in eval mode. Warns of weights and keys that are not
/// used. Throws Io, Format; Unsupported for a family, an architecture or an option of config.json
/// that is not supported.
TD_API std::unique_ptr<PretrainedModel> from_pretrained(const FilePath& folder);

}  // namespace tandem::models
