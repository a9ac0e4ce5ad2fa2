// SPDX-License-Identifier: Apache-2.0
// Tool calls in answers: how a model that was trained for them writes them, how they are found in a
// text that comes in parts, and the grammar of texts that consist of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/text/chat_template.h"
#include "tandem/text/grammar.h"

namespace tandem::serve {

enum class ToolForm : uint8_t {
  hermes,  ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as Qwen writes them, too
  llama,   ///< the whole answer is {"name": ..., "parameters": {...}}
};

/// The one that a chat template shows; nothing where it knows no tools.
TD_API std::optional<ToolForm> tool_form_of(const text::ChatTemplate& chat);

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON
};

/// Finds calls in an answer. What looks like one and cannot be read is text like any other.
class TD_API ToolReader {
 public:
  explicit ToolReader(ToolForm form) : form_(form) {}
  struct Part {
    std::string text;
    std::vector<ToolCall> calls;
  };
  /// What is certain after more of the answer.
  Part push(std::string_view text);
  /// What was held back; nothing follows.
  Part finish();

 private:
  void read_tagged(Part& out, bool whole);
  void add_text(Part& out, std::string text);
  ToolForm form_;
  std::string held_;
  bool inside_ = false;   ///< of a call
  bool called_ = false;   ///< a call came: white space after it is not text
  bool decided_ = false;  ///< llama: it is text
};

/// Answers that are calls of these functions ({"name": ..., "parameters": schema}): one, or with
/// `several` one or more where the form has them. Throws Value as Grammar::json_schema() does.
TD_API text::Grammar tool_grammar(ToolForm form, const io::Json::Array& functions, bool several);

}  // namespace tandem::serve
