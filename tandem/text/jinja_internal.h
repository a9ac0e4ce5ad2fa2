// SPDX-License-Identifier: Apache-2.0
// Templates as trees: what jinja_parse.cpp makes of the text and jinja_run.cpp runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    literal,    ///< value
    name,       ///< text
    list,       ///< parts
    object,     ///< parts: key, value, key, value ...
    attribute,  ///< parts[0].text
    item,       ///< parts[0][parts[1]]
    slice,      ///< parts[0][parts[1]:parts[2]:parts[3]], where parts may be nullptr
    call,       ///< parts[0](parts[1] ..., names)
    filter,     ///< parts[0] | text(parts[1] ...)
    test,       ///< parts[0] is text(parts[1] ...)
    unary,      ///< text parts[0]
    binary,     ///< parts[0] text parts[1]
    choice,     ///< parts[1] if parts[0] else parts[2], which may be nullptr
  };
  Kind kind = Kind::literal;
  int line = 0;
  io::Json value = {};
  std::string text = "";
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};  ///< arguments with names
};

struct Statement {
  enum class Kind : uint8_t {
    text,       ///< text
    print,      ///< value
    condition,  ///< value ? body : other
    loop,       ///< for names in value [if filter]: body, other where there was nothing
    assign,     ///< names = value; with `member`: names[0].member = value; or of `body`
    macro,      ///< text(names, defaults): body
    stop,       ///< break
    next,       ///< continue
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text = "", member = "";
  std::vector<std::string> names = {};
  std::vector<ExpressionPtr> defaults = {};  ///< of a macro's names; nullptr: none
  ExpressionPtr value = nullptr, filter = nullptr;
  std::vector<Statement> body = {}, other = {};
};

/// Throws Format naming the line.
std::vector<Statement> parse(std::string_view text);
/// Runs it with these names. Throws Value and Format as ChatTemplate::render does.
std::string run(const std::vector<Statement>& program, io::Json::Object names);

[[noreturn]] void fail_at(int line, const std::string& why);

}  // namespace tandem::text::jinja
