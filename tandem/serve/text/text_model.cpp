// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/text/text_model.h"

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/models/paged_pair.h"

namespace tandem::serve {

std::unique_ptr<TextModel> TextModel::load(const std::string& folder,
                                           const TextEngineOptions& options,
                                           std::shared_ptr<models::PretrainedModel> model) {
  const std::filesystem::path at = folder;
  if (!std::filesystem::exists(at / "config.json") ||
      !std::filesystem::exists(at / "tokenizer.json"))
    return nullptr;
  if (!model) model = models::from_pretrained(folder);
  if (!model->is_causal() && !models::paged_pair(*model)) return nullptr;
  // Keys and values of texts lie in pages of the host's memory.
  const Device device = model->module().parameters().front().device();
  TD_CHECK(is_host(device), Unsupported,
           "a language model continues texts on the CPU alone, and its devices begin with {}\n"
           "Leave 'devices' out, or set 'text: false' to serve its logits from there.",
           to_string(device));
  const text::Tokenizer tokenizer = text::Tokenizer::from_file((at / "tokenizer.json").string())
                                        .with_truncation(std::nullopt)
                                        .with_padding(std::nullopt);
  std::vector<int64_t> ends = model->config.tokens("eos_token_id");
  std::unique_ptr<TextModel> out(new TextModel{
      tokenizer, text::ChatTemplate::of_folder(folder), {std::move(model), options}, nullptr});
  out->constraints =
      std::make_unique<ConstraintCache>(tokenizer, out->engine.vocabulary(), std::move(ends));
  return out;
}

}  // namespace tandem::serve
