// SPDX-License-Identifier: Apache-2.0
// OpenAI's completions and chat completions: requests read into one form, and their answers, whole
// or as server-sent events. https://platform.openai.com/docs/api-reference
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/serve/server_internal.h"
#include "tandem/serve/text/text_model.h"
#include "tandem/serve/text/text_stream.h"
#include "tandem/serve/text/tool_calls.h"

namespace tandem::serve {

struct OpenAiRequest {
  bool chat = false;
  std::string model = "";  ///< as answers name it: the model, or an adapter of it
  int64_t adapter = 0;     ///< of the model's engine; 0: none
  std::vector<std::vector<int64_t>> prompts;
  std::vector<std::string> texts = {};               ///< of the prompts, where `echo` repeats them
  int64_t n = 1;                                     ///< answers to each prompt
  int64_t priority = 0;                              ///< a level from 1; 0: the model's
  bool echo = false, stream = false, usage = false;  ///< usage: at the end of a stream
  int64_t top = -1;                                  ///< of likeliest tokens; -1: none asked for
  std::vector<std::string> stops = {};
  models::GenerateOptions options = {};
  std::shared_ptr<text::Constraint> constraint = {};  ///< of each answer
  std::optional<ToolForm> tools = {};                 ///< calls in this form are looked for
};

/// Throws Refusal naming the field.
OpenAiRequest read_completion(const io::Json& body, const TextModel& model);
OpenAiRequest read_chat(const io::Json& body, const TextModel& model);

/// Run it and answer.
void answer_openai(const Call& call, const ModelVersionPtr& v, OpenAiRequest request);

/// POST /v1/embeddings of a version that embeds texts. Throws Refusal naming the field.
void answer_embeddings(const Call& call, const ModelVersionPtr& v, const io::Json& body);

/// {"error": {"message", "type", "param", "code"}}
HttpResponse openai_error(int status, std::string_view text);

}  // namespace tandem::serve
