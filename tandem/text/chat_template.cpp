// SPDX-License-Identifier: Apache-2.0
#include "tandem/text/chat_template.h"

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/text/jinja_internal.h"

namespace tandem::text {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  ///< of a template
constexpr size_t kMostConfig = size_t{64} << 20;

// A token is a text, or an object with its content.
const std::string* token_text(const io::Json& j) {
  if (j.as_string()) return j.as_string();
  const io::Json* content = j.find("content");
  return content ? content->as_string() : nullptr;
}

io::Json special_tokens(const io::Json& config) {
  io::Json::Object out;
  if (!config.as_object()) return out;
  for (const auto& [name, v] : *config.as_object())
    if (name.ends_with("_token"))
      if (const std::string* text = token_text(v)) out.emplace_back(name, *text);
  return out;
}

// One template, or the one named "default" of several.
const std::string* template_text(const io::Json& config) {
  const io::Json* j = config.find("chat_template");
  if (!j || j->as_string() || !j->as_array()) return j ? j->as_string() : nullptr;
  for (const io::Json& one : *j->as_array()) {
    const io::Json *name = one.find("name"), *text = one.find("template");
    if (name && text && name->as_string() && *name->as_string() == "default")
      return text->as_string();
  }
  return nullptr;
}

}  // namespace

struct ChatTemplate::Impl {
  std::vector<jinja::Statement> program;
  io::Json tokens;
  std::string text;
};

ChatTemplate::ChatTemplate(std::string_view jinja, io::Json tokens) {
  TD_CHECK(jinja.size() <= kMostBytes, Format, "a chat template of {} bytes is longer than 1 MB",
           jinja.size());
  impl_ = std::make_shared<const Impl>(
      Impl{jinja::parse(jinja), std::move(tokens), std::string(jinja)});
}

std::optional<ChatTemplate> ChatTemplate::of_folder(const FilePath& folder) {
  const std::filesystem::path at = folder.str();
  const std::filesystem::path config_path = at / "tokenizer_config.json";
  io::Json config = io::Json::Object{};
  if (std::filesystem::exists(config_path))
    config = io::parse_json(read_file(config_path, kMostConfig), "tokenizer_config.json");
  const io::Json tokens = special_tokens(config);
  if (const std::filesystem::path own = at / "chat_template.jinja"; std::filesystem::exists(own))
    return ChatTemplate(read_file(own, kMostBytes), tokens);
  if (const std::string* text = template_text(config)) return ChatTemplate(*text, tokens);
  return std::nullopt;
}

bool ChatTemplate::mentions(std::string_view words) const {
  return impl_->text.find(words) != std::string::npos;
}

std::string ChatTemplate::render(const io::Json& messages, bool add_generation_prompt,
                                 const io::Json& extra) const {
  io::Json::Object names;
  if (impl_->tokens.as_object()) names = *impl_->tokens.as_object();
  if (extra.as_object())
    for (const auto& [name, v] : *extra.as_object()) names.emplace_back(name, v);
  names.emplace_back("messages", messages);
  names.emplace_back("add_generation_prompt", add_generation_prompt);
  return jinja::run(impl_->program, std::move(names));
}

}  // namespace tandem::text
