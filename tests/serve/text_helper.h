// SPDX-License-Identifier: Apache-2.0
// For the tests of language models behind the server: small models and their tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tandem/models/text/generate.h"
#include "tandem/serve/text/text_engine.h"

namespace tandem::serve {

inline std::string golden_path(const std::string& path) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/" + path;
}
inline std::shared_ptr<models::PretrainedModel> golden_model(const std::string& family) {
  return models::from_pretrained(golden_path("hf/" + family));
}
/// The likeliest tokens, as many as that.
inline models::GenerateOptions likeliest(int64_t n) {
  return {.max_new_tokens = n, .eos_token_id = {-1}};
}

/// The texts of all prompts at the same time: none has its first token before all are submitted, so
/// that they do meet in the engine, however fast the model is.
inline std::vector<std::vector<int64_t>> texts_together(
    TextEngine& engine, const std::vector<std::vector<int64_t>>& prompts,
    const models::GenerateOptions& options) {
  std::vector<std::vector<int64_t>> texts(prompts.size());
  std::vector<std::promise<TextEnd>> ends(prompts.size());
  std::promise<void> submitted;
  const std::shared_future<void> all = submitted.get_future().share();
  for (size_t i = 0; i < prompts.size(); ++i) {
    TextRequest r{.prompt = prompts[i], .options = options};
    r.token = [&texts, all, i](const TextToken& t) {
      all.wait();
      texts[i].push_back(t.id);
      return true;
    };
    r.done = [&ends, i](const TextEnd& e) { ends[i].set_value(e); };
    engine.submit(std::move(r));
  }
  submitted.set_value();
  for (std::promise<TextEnd>& end : ends) {
    const TextEnd e = end.get_future().get();
    EXPECT_EQ(e.status, 200) << e.error;
  }
  return texts;
}

/// Words "w0 w1 ..." are the tokens 0, 1 ...
inline std::string word_tokenizer(int64_t vocabulary) {
  std::string vocab;
  for (int64_t i = 0; i < vocabulary; ++i) vocab += fmt::format("{}\"w{}\":{}", i ? "," : "", i, i);
  return R"({"model":{"type":"WordLevel","unk_token":"w0","vocab":{)" + vocab +
         R"(}},"pre_tokenizer":{"type":"Whitespace"}})";
}

}  // namespace tandem::serve
