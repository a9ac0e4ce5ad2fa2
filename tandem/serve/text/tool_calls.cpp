// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/text/tool_calls.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::string_view kSpace = " \t\r\n";

const char* arguments_key(ToolForm form) {
  return form == ToolForm::hermes ? "arguments" : "parameters";
}

// One call, or nothing where the text is none.
std::optional<ToolCall> call_of(std::string_view text, ToolForm form) {
  try {
    const io::Json j = io::parse_json(text, "a call");
    const io::Json* name = j.find("name");
    const io::Json* arguments = j.find(arguments_key(form));
    if (!arguments) arguments = j.find("arguments");
    if (!name || !name->as_string()) return std::nullopt;
    if (!arguments) return ToolCall{*name->as_string(), "{}"};
    if (arguments->as_string()) return ToolCall{*name->as_string(), *arguments->as_string()};
    if (!arguments->as_object()) return std::nullopt;
    return ToolCall{*name->as_string(), arguments->dump()};
  } catch (const Error&) {
    return std::nullopt;
  }
}

// References of a schema that lies at `path` of another.
io::Json moved_references(const io::Json& schema, const std::string& path) {
  if (const io::Json::Array* all = schema.as_array()) {
    io::Json::Array out;
    for (const io::Json& j : *all) out.push_back(moved_references(j, path));
    return out;
  }
  if (!schema.as_object()) return schema;
  io::Json::Object out;
  for (const auto& [name, value] : *schema.as_object()) {
    const std::string* ref = name == "$ref" ? value.as_string() : nullptr;
    if (ref && ref->starts_with("#"))
      out.emplace_back(name, "#" + path + ref->substr(1));
    else
      out.emplace_back(name, moved_references(value, path));
  }
  return out;
}

}  // namespace

std::optional<ToolForm> tool_form_of(const text::ChatTemplate& chat) {
  if (!chat.mentions("tools")) return std::nullopt;
  if (chat.mentions(kOpen)) return ToolForm::hermes;
  if (chat.mentions("\"parameters\"") || chat.mentions("<|python_tag|>")) return ToolForm::llama;
  return std::nullopt;
}

void ToolReader::add_text(Part& out, std::string text) {
  if (called_ && text.find_first_not_of(kSpace) == text.npos) return;
  if (!text.empty()) called_ = false;
  out.text += text;
}

void ToolReader::read_tagged(Part& out, bool whole) {
  for (;;) {
    const std::string_view mark = inside_ ? kClose : kOpen;
    const size_t at = held_.find(mark);
    if (at == std::string::npos) break;
    std::string before = held_.substr(0, at);
    held_.erase(0, at + mark.size());
    if (!inside_) {
      add_text(out, std::move(before));
    } else if (std::optional<ToolCall> call = call_of(before, form_)) {
      out.calls.push_back(std::move(*call));
      called_ = true;
    } else {
      add_text(out, std::string(kOpen) + before + std::string(kClose));
    }
    inside_ = !inside_;
  }
  if (inside_ && !whole) return;
  if (inside_) {
    // The end of the last call may be missing where the text ended by a token.
    std::optional<ToolCall> call = call_of(held_, form_);
    if (call)
      out.calls.push_back(std::move(*call));
    else
      add_text(out, std::string(kOpen) + held_);
    held_.clear();
    return;
  }
  size_t keep = 0;
  for (size_t n = std::min(kOpen.size() - 1, held_.size()); n > 0 && keep == 0 && !whole; --n)
    if (std::string_view(held_).substr(held_.size() - n) == kOpen.substr(0, n)) keep = n;
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  add_text(out, std::move(text));
}

ToolReader::Part ToolReader::push(std::string_view text) {
  Part out;
  held_ += text;
  if (form_ == ToolForm::hermes) {
    read_tagged(out, false);
    return out;
  }
  const size_t first = held_.find_first_not_of(kSpace);
  if (!decided_ && (first == std::string::npos || held_[first] == '{')) return out;
  decided_ = true;
  out.text = std::exchange(held_, "");
  return out;
}

ToolReader::Part ToolReader::finish() {
  Part out;
  if (form_ == ToolForm::hermes) {
    read_tagged(out, true);
    return out;
  }
  std::optional<ToolCall> call = decided_ ? std::nullopt : call_of(held_, form_);
  if (call)
    out.calls.push_back(std::move(*call));
  else
    out.text = held_;
  held_.clear();
  return out;
}

text::Grammar tool_grammar(ToolForm form, const io::Json::Array& functions, bool several) {
  io::Json::Array each;
  for (const io::Json& function : functions) {
    const std::string path =
        "/anyOf/" + std::to_string(each.size()) + "/properties/" + std::string(arguments_key(form));
    const io::Json* schema = function.find("parameters");
    const io::Json arguments =
        schema ? moved_references(*schema, path) : io::Json(io::Json::Object{{"type", "object"}});
    each.push_back(io::Json::Object{
        {"type", "object"},
        {"properties",
         io::Json::Object{{"name", io::Json::Object{{"const", *function.find("name")}}},
                          {arguments_key(form), arguments}}},
        {"required", io::Json::Array{"name", arguments_key(form)}},
        {"additionalProperties", false}});
  }
  const io::Json schema = io::Json::Object{{"anyOf", std::move(each)}};
  if (form == ToolForm::llama) return text::Grammar::json_schema(schema);
  return text::Grammar::json_schema(
      schema,
      {.before = "<tool_call>\n", .after = "\n</tool_call>", .between = several ? "\n" : ""});
}

}  // namespace tandem::serve
