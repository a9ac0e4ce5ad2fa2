// SPDX-License-Identifier: Apache-2.0
// What a family of Hugging Face's models needs to be found and made: its factory, and the heads
// that "architectures" names. Not installed.
#pragma once

#include <initializer_list>
#include <memory>

#include "tandem/models/pretrained.h"

namespace tandem::models::detail {

/// The names in a folder's files; without files every name is there.
class FileNames {
 public:
  explicit FileNames(const StateDict* files = nullptr) : files_(files) {}
  bool has(std::string_view name) const { return !files_ || files_->contains(name); }
  /// Is there a weight of that name in a file?
  bool listed(std::string_view name) const { return files_ && files_->contains(name); }

 private:
  const StateDict* files_;
};

/// What a model computes from its hidden values.
enum class Head : uint8_t {
  none,
  causal,           ///< the next token
  masked,           ///< tokens in place of masks
  sequence,         ///< a class of the text
  token,            ///< a class of each token
  question,         ///< the first and the last token of an answer
  choice,           ///< one of several texts
  image,            ///< a class of the image
  generation,       ///< the next token of a decoder that reads an encoder's values
  detection,        ///< boxes
  pretraining,      ///< hidden patches
  encoder,          ///< none: an encoder without its decoder
  text,             ///< none: the text part
  vision,           ///< none: the image part
  text_embedding,   ///< a projection of the text part
  image_embedding,  ///< a projection of the image part
};
/// The head of the architecture `prefix`..., which must be none or one of `known`; without
/// "architectures" the first of `known`. Throws Unsupported, naming those that there are.
Head head_of(const ModelConfig& c, std::string_view prefix, std::initializer_list<Head> known);

using MakeModel = std::unique_ptr<PretrainedModel>(const ModelConfig&, const FileNames&);
/// The weights of a mixture's experts, which Mixtral's files hold one by one, in one tensor a
/// layer.
StateDict stacked_experts(StateDict files);
/// One name for the layers of a masked autoencoder's decoder.
StateDict mae_names(StateDict files);
/// Hugging Face's names for the layers of a backbone that timm names otherwise.
StateDict detr_names(StateDict files);
/// The model of a folder that sentence-transformers wrote: modules.json lists an encoder of text,
/// how the values of its tokens are pooled, and what is done with the result.
std::unique_ptr<PretrainedModel> load_sentence_model(const FilePath& folder);
/// Weights of a folder: model.safetensors, or its shards.
StateDict load_weights_of(const std::string& folder);
/// The part of from_pretrained() that does not look for modules.json.
std::unique_ptr<PretrainedModel> load_family(const std::string& folder);

MakeModel make_text_encoder, make_gpt2, make_decoder, make_vision_encoder, make_t5,
    make_encoder_decoder, make_image_text, make_swin, make_sam, make_hf_convnext, make_detr;

}  // namespace tandem::models::detail
