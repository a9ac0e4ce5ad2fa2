// SPDX-License-Identifier: Apache-2.0
// Texts and {"b64": ...} in the bodies of TensorFlow Serving's predict.
#include "tandem/base/base64.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

// A text or {"b64": "..."}, consumed; nothing, partly consumed, where it is anything else.
std::optional<std::string> text_or_base64(JsonCursor& json) {
  if (json.peek() == '"') return json.read_string();
  if (json.peek() != '{') return std::nullopt;
  std::optional<std::string> out;
  json.open('{');
  while (const auto key = json.next_key()) {
    if (out || *key != "b64" || json.peek() != '"') return std::nullopt;
    out = from_base64(json.read_string());
    if (!out) refuse(400, "'b64' holds something that is not base64");
  }
  return out;
}

// The same, or an object whose only key is `input` and holds it.
std::optional<std::string> instance_of_bytes(std::string_view text, const std::string& input) {
  JsonCursor json(text, "an instance");
  if (auto out = text_or_base64(json)) return out;
  JsonCursor named(text, "an instance");
  if (named.peek() != '{') return std::nullopt;
  named.open('{');
  auto key = named.next_key();
  if (!key || *key != input) return std::nullopt;
  std::optional<std::string> out = text_or_base64(named);
  if (out && named.next_key()) refuse(400, "an instance has '{}' and something else", input);
  return out;
}

}  // namespace

std::optional<Asked> bytes_of_tensorflow(std::string_view text, const std::string& input) {
  if (input.empty()) return std::nullopt;
  JsonCursor json(text, "the texts");
  if (json.peek() == '{') {  // columns by name
    json.open('{');
    const auto key = json.next_key();
    if (!key || *key != input) return std::nullopt;
    text = json.skip(true);
    if (json.next_key()) refuse(400, "'inputs' has '{}' and something else", input);
    return bytes_of_tensorflow(text, input);
  }
  if (json.peek() != '[') return std::nullopt;
  std::string binary;
  int64_t count = 0;
  json.open('[');
  while (json.next_item()) {
    const std::optional<std::string> element = instance_of_bytes(json.skip(true), input);
    if (!element && count == 0) return std::nullopt;
    if (!element) refuse(400, "instance {} is no text, and those before it are", count);
    add_element(binary, *element);
    ++count;
  }
  if (count == 0) return std::nullopt;
  AskedInput in{.name = input, .datatype = kBytes};
  in.shape.emplace({count});
  in.own = std::make_shared<const std::string>(std::move(binary));
  in.bytes = *in.own;
  in.binary = static_cast<int64_t>(in.bytes.size());
  return Asked{.inputs = {std::move(in)}};
}

}  // namespace tandem::serve
