// SPDX-License-Identifier: Apache-2.0
// Chat templates of Hugging Face folders: how a conversation becomes the prompt that a model was
// trained on. They are written in Jinja (https://jinja.palletsprojects.com/en/stable/templates),
// of which this runs what such templates use: for, if, set, macros, namespaces, filters, tests, and
// the methods of texts, lists and objects. Nothing else of Python can be reached from one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"

namespace tandem::text {

class TD_API ChatTemplate {
 public:
  /// Throws Format naming the line and what is wrong or not supported. `tokens`: special tokens by
  /// name ("bos_token"), which the template may use.
  explicit ChatTemplate(std::string_view jinja, io::Json tokens = io::Json::Object{});
  /// chat_template.jinja of a folder, or "chat_template" of its tokenizer_config.json with the
  /// special tokens there; nothing where there is none.
  static std::optional<ChatTemplate> of_folder(const FilePath& folder);

  /// The prompt. messages: [{"role": "user", "content": "..."}, ...]; `extra`: an object of further
  /// names. Throws Value with what the template itself raises, and where it uses what is not there;
  /// Format where it takes more than a million steps or makes more than 16 MB.
  std::string render(const io::Json& messages, bool add_generation_prompt = true,
                     const io::Json& extra = {}) const;
  /// Whether the template's own text holds `words`: what it was written for.
  bool mentions(std::string_view words) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tandem::text
