// SPDX-License-Identifier: Apache-2.0
// For the tests of language models behind the server: small models and their tokenizers.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

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

/// Words "w0 w1 ..." are the tokens 0, 1 ...
inline std::string word_tokenizer(int64_t vocabulary) {
  std::string vocab;
  for (int64_t i = 0; i < vocabulary; ++i) vocab += fmt::format("{}\"w{}\":{}", i ? "," : "", i, i);
  return R"({"model":{"type":"WordLevel","unk_token":"w0","vocab":{)" + vocab +
         R"(}},"pre_tokenizer":{"type":"Whitespace"}})";
}

}  // namespace tandem::serve
