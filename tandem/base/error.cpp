// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/error.h"

#include <fmt/format.h>

namespace tandem {
namespace {

std::string compose(const std::string& op, const std::string& message, const std::string& hint,
                    const std::string& layer, SourceLocation loc) {
  std::string text;
  if (!op.empty()) text += op + ": ";
  text += message;
  if (!text.empty() && text.back() != '.' && text.back() != '?') text += '.';
  std::string place;
  if (!layer.empty()) place += "layer " + layer;
  if (loc.file != nullptr) {
    if (!place.empty()) place += ", ";
    place += fmt::format("{}:{}", loc.file, loc.line);
  }
  if (!place.empty()) text += (layer.empty() ? " At " : " In ") + place + ".";
  if (!hint.empty()) text += " " + hint;
  return text;
}

// The last line is the hint, so that a message of several lines stays whole.
std::string before_hint(const std::string& s) { return s.substr(0, s.rfind('\n')); }
std::string hint_of(const std::string& s) {
  const size_t at = s.rfind('\n');
  return at == std::string::npos ? std::string() : s.substr(at + 1);
}

}  // namespace

const char* to_string(ErrorKind kind) {
  static constexpr const char* kNames[] = {"Shape",  "DType", "Device", "Index",       "Value",
                                           "Memory", "Io",    "Format", "Unsupported", "Internal"};
  return kNames[static_cast<int>(kind)];
}

Error::Error(ErrorKind kind, const std::string& message)
    : Error(kind, before_hint(message), hint_of(message), "", SourceLocation{}, "") {}

Error::Error(ErrorKind kind, std::string message, std::string hint, std::string op,
             SourceLocation loc, std::string layer)
    : std::runtime_error(compose(op, message, hint, layer, loc)),
      kind_(kind),
      message_(std::move(message)),
      hint_(std::move(hint)),
      op_(std::move(op)),
      layer_(std::move(layer)),
      loc_(loc) {}

namespace detail {

void throw_error(ErrorKind kind, fmt::string_view format, fmt::format_args args) {
  throw Error(kind, fmt::vformat(format, args));
}

void throw_assert(const char* text, const char* file, int line) {
  throw Error(ErrorKind::Internal,
              fmt::format("internal error: '{}' does not hold ({}:{})\nThis is a bug in Tandem; "
                          "please report it with the program that shows it.",
                          text, file, line));
}

}  // namespace detail
}  // namespace tandem
