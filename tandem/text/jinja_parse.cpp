// SPDX-License-Identifier: Apache-2.0
// Template text -> statements. As Hugging Face runs them: the line break after a block is dropped
// (trim_blocks), and so are the blanks before one (lstrip_blocks).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "tandem/base/error.h"
#include "tandem/text/jinja_internal.h"

namespace tandem::text::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int kMostDepth = 200;
constexpr size_t kMostTokens = 2000;  ///< of one expression: each may nest in the one before

struct Token {
  enum class Kind : uint8_t { end, name, text, number, sign } kind = Kind::end;
  std::string text;
  int line = 0;
};

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string unescaped(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 == s.size()) {
      out += s[i];
      continue;
    }
    const char c = s[++i];
    const std::string_view from = "ntr\\'\"", to = "\n\t\r\\'\"";
    if (const size_t at = from.find(c); at != std::string_view::npos)
      out += to[at];
    else
      out.append({'\\', c});
  }
  return out;
}

// The tokens inside of {{ }} or {% %}.
std::vector<Token> tokens_of(std::string_view s, int line) {
  std::vector<Token> out;
  size_t i = 0;
  const auto push = [&](Token::Kind k, std::string text) {
    out.push_back({k, std::move(text), line});
  };
  while (i < s.size()) {
    const char c = s[i];
    if (std::isspace(static_cast<unsigned char>(c))) {
      line += c == '\n';
      ++i;
    } else if (is_name_start(c)) {
      const size_t from = i;
      while (i < s.size() && is_name(s[i])) ++i;
      push(Token::Kind::name, std::string(s.substr(from, i - from)));
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      const size_t from = i;
      while (i < s.size() &&
             (is_name(s[i]) || (s[i] == '.' && i + 1 < s.size() &&
                                std::isdigit(static_cast<unsigned char>(s[i + 1])))))
        ++i;
      push(Token::Kind::number, std::string(s.substr(from, i - from)));
    } else if (c == '\'' || c == '"') {
      size_t end = i + 1;
      while (end < s.size() && s[end] != c) end += s[end] == '\\' ? 2 : 1;
      if (end >= s.size()) fail_at(line, "a text does not end");
      push(Token::Kind::text, unescaped(s.substr(i + 1, end - i - 1)));
      line += static_cast<int>(std::count(s.begin() + static_cast<ptrdiff_t>(i),
                                          s.begin() + static_cast<ptrdiff_t>(end), '\n'));
      i = end + 1;
    } else {
      const std::string_view two = s.substr(i, 2);
      const bool pair =
          two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//" || two == "**";
      push(Token::Kind::sign, std::string(s.substr(i, pair ? 2 : 1)));
      i += pair ? 2 : 1;
    }
  }
  push(Token::Kind::end, "");
  return out;
}

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, int line) : tokens_(tokens_of(text, line)) {
    if (tokens_.size() > kMostTokens) fail_at(line, "an expression is too long");
  }

  const Token& peek() const { return tokens_[at_]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(std::string_view text) const {
    return peek().text == text &&
           (peek().kind == Token::Kind::sign || peek().kind == Token::Kind::name);
  }
  bool skip(std::string_view text) {
    if (!is(text)) return false;
    take();
    return true;
  }
  void want(std::string_view text) {
    if (!skip(text)) fail(fmt::format("expected '{}'", text));
  }
  std::string name() {
    if (peek().kind != Token::Kind::name) fail("expected a name");
    return take().text;
  }
  void finish() {
    if (peek().kind != Token::Kind::end) fail("is not understood");
  }
  [[noreturn]] void fail(const std::string& why) const {
    fail_at(peek().line,
            fmt::format("'{}' {}", peek().text.empty() ? "the end" : peek().text, why));
  }

  ExpressionPtr expression() {
    ExpressionPtr value = either();
    if (!skip("if")) return value;
    ExpressionPtr e = make(Kind::choice);
    e->parts.push_back(either());
    e->parts.push_back(std::move(value));
    e->parts.push_back(skip("else") ? expression() : nullptr);
    return e;
  }
  /// Without `if`: what a loop runs over.
  ExpressionPtr either() {
    const Deeper deeper(*this);
    return level({"or"}, [this] { return both(); });
  }

 private:
  struct Deeper {
    explicit Deeper(ExpressionParser& p) : parser(p) {
      if (++parser.depth_ > kMostDepth) parser.fail("is nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ExpressionParser& parser;
  };
  ExpressionPtr make(Kind kind, std::string text = "") const {
    auto e = std::make_unique<Expression>();
    e->kind = kind;
    e->line = peek().line;
    e->text = std::move(text);
    return e;
  }
  ExpressionPtr joined(Kind kind, std::string text, ExpressionPtr a,
                       ExpressionPtr b = nullptr) const {
    ExpressionPtr e = make(kind, std::move(text));
    e->parts.push_back(std::move(a));
    if (b) e->parts.push_back(std::move(b));
    return e;
  }
  template <class F>
  ExpressionPtr level(std::initializer_list<std::string_view> signs, F&& next) {
    ExpressionPtr left = next();
    for (;;) {
      const auto found =
          std::find_if(signs.begin(), signs.end(), [this](std::string_view s) { return is(s); });
      if (found == signs.end()) return left;
      take();
      left = joined(Kind::binary, std::string(*found), std::move(left), next());
    }
  }

  ExpressionPtr both() {
    return level({"and"}, [this] { return negation(); });
  }
  ExpressionPtr negation() {
    const Deeper deeper(*this);
    if (skip("not")) return joined(Kind::unary, "not", negation());
    return comparison();
  }
  ExpressionPtr comparison() {
    ExpressionPtr left = sum();
    for (;;) {
      bool found = false;
      for (const std::string_view s : {"==", "!=", "<=", ">=", "<", ">", "in"})
        if (skip(s)) {
          left = joined(Kind::binary, std::string(s), std::move(left), sum());
          found = true;
          break;
        }
      if (!found && is("not") && tokens_[at_ + 1].text == "in") {
        take(), take();
        left = joined(Kind::unary, "not", joined(Kind::binary, "in", std::move(left), sum()));
        found = true;
      }
      if (!found) return left;
    }
  }
  ExpressionPtr sum() {
    return level({"+", "-", "~"}, [this] { return product(); });
  }
  ExpressionPtr product() {
    return level({"*", "//", "/", "%"}, [this] { return signed_value(); });
  }
  ExpressionPtr signed_value() {
    const Deeper deeper(*this);
    if (skip("-")) return joined(Kind::unary, "-", signed_value());
    if (skip("+")) return signed_value();
    return filtered(postfix(primary()));
  }

  ExpressionPtr filtered(ExpressionPtr e) {
    for (;;) {
      if (skip("|")) {
        e = joined(Kind::filter, name(), std::move(e));
        if (skip("(")) arguments(*e);
        e = postfix(std::move(e));
      } else if (is("is")) {
        take();
        const bool negative = skip("not");
        e = joined(Kind::test, name(), std::move(e));
        if (skip("("))
          arguments(*e);
        else if (e->text == "divisibleby" || e->text == "sameas" || e->text == "equalto")
          e->parts.push_back(primary());
        if (negative) e = joined(Kind::unary, "not", std::move(e));
      } else {
        return e;
      }
    }
  }

  ExpressionPtr postfix(ExpressionPtr e) {
    for (;;) {
      if (skip(".")) {
        e = joined(Kind::attribute, name(), std::move(e));
      } else if (skip("[")) {
        e = subscript(std::move(e));
      } else if (skip("(")) {
        e = joined(Kind::call, "", std::move(e));
        arguments(*e);
      } else {
        return e;
      }
    }
  }
  ExpressionPtr subscript(ExpressionPtr e) {
    ExpressionPtr part[3];
    int at = 0;
    bool slice = false;
    for (; !is("]");) {
      if (skip(":")) {
        slice = true;
        if (++at > 2) fail("has too many ':'");
      } else {
        if (part[at]) fail("expected ']'");
        part[at] = expression();
      }
    }
    want("]");
    if (!slice && !part[0]) fail("expected an index");
    ExpressionPtr out = joined(slice ? Kind::slice : Kind::item, "", std::move(e));
    for (int i = 0; i < (slice ? 3 : 1); ++i) out->parts.push_back(std::move(part[i]));
    return out;
  }
  void arguments(Expression& call) {
    while (!skip(")")) {
      if (peek().kind == Token::Kind::name && tokens_[at_ + 1].text == "=" &&
          tokens_[at_ + 1].kind == Token::Kind::sign) {
        std::string key = name();
        take();
        call.named.emplace_back(std::move(key), expression());
      } else {
        call.parts.push_back(expression());
      }
      if (!skip(",") && !is(")")) fail("expected ',' or ')'");
    }
  }

  ExpressionPtr primary() {
    const Token t = take();
    ExpressionPtr e = make(Kind::literal);
    switch (t.kind) {
      case Token::Kind::text:
        e->value = t.text;
        while (peek().kind == Token::Kind::text) e->value = *e->value.as_string() + take().text;
        return e;
      case Token::Kind::number:
        return number(t.text);
      case Token::Kind::name:
        return word(t.text);
      default:
        break;
    }
    if (t.text == "(") return parenthesis();
    if (t.text == "[") return list("]");
    if (t.text == "{") return object();
    fail_at(t.line, fmt::format("'{}' is not understood", t.text.empty() ? "the end" : t.text));
  }
  ExpressionPtr number(const std::string& text) {
    ExpressionPtr e = make(Kind::literal);
    const char* end = text.data() + text.size();
    int64_t whole = 0;
    if (const auto r = std::from_chars(text.data(), end, whole);
        r.ec == std::errc() && r.ptr == end) {
      e->value = whole;
      return e;
    }
    double v = 0;
    const auto r = std::from_chars(text.data(), end, v);
    if (r.ec != std::errc() || r.ptr != end) fail_at(e->line, "'" + text + "' is not a number");
    e->value = v;
    return e;
  }
  ExpressionPtr word(const std::string& text) {
    ExpressionPtr e = make(Kind::literal);
    if (text == "true" || text == "True")
      e->value = true;
    else if (text == "false" || text == "False")
      e->value = false;
    else if (text != "none" && text != "None")
      e = make(Kind::name, text);
    return e;
  }
  ExpressionPtr parenthesis() {
    ExpressionPtr first = expression();
    if (skip(")")) return first;
    want(",");
    ExpressionPtr rest = list(")");
    rest->parts.insert(rest->parts.begin(), std::move(first));
    return rest;
  }
  ExpressionPtr list(std::string_view end) {
    ExpressionPtr e = make(Kind::list);
    while (!skip(end)) {
      e->parts.push_back(expression());
      if (!skip(",") && !is(end)) fail(fmt::format("expected ',' or '{}'", end));
    }
    return e;
  }
  ExpressionPtr object() {
    ExpressionPtr e = make(Kind::object);
    while (!skip("}")) {
      e->parts.push_back(expression());
      want(":");
      e->parts.push_back(expression());
      if (!skip(",") && !is("}")) fail("expected ',' or '}'");
    }
    return e;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// A piece of the template: text, or what stands in one kind of braces.
struct Piece {
  enum class Kind : uint8_t { text, print, block } kind = Kind::text;
  std::string text;
  int line = 1;
};

void strip_right(std::string& s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.pop_back();
}
// The blanks of a line before a block that begins it.
void strip_line(std::string& s, bool first) {
  size_t n = s.size();
  while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t')) --n;
  if (n == 0 ? first : s[n - 1] == '\n') s.resize(n);
}

// Where the braces that open at `from` close: texts and objects may hold the closing sign.
size_t closing(std::string_view s, size_t from, std::string_view sign, int line) {
  char quote = 0;
  int objects = 0;
  for (size_t i = from; i < s.size(); ++i) {
    if (quote) {
      if (s[i] == '\\')
        ++i;
      else if (s[i] == quote)
        quote = 0;
    } else if (sign != "#}" && (s[i] == '\'' || s[i] == '"')) {
      quote = s[i];
    } else if (sign == "}}" && s[i] == '{') {
      ++objects;
    } else if (objects > 0 && s[i] == '}') {
      --objects;
    } else if (s.compare(i, 2, sign) == 0) {
      return i;
    }
  }
  fail_at(line, fmt::format("'{}' is missing", sign));
}

std::vector<Piece> pieces_of(std::string_view s) {
  std::vector<Piece> out;
  int line = 1;
  bool strip = false, drop_break = false;
  size_t at = 0;
  const auto text = [&](size_t to, bool block) {
    std::string t(s.substr(at, to - at));
    const int here = line;
    line += static_cast<int>(std::count(t.begin(), t.end(), '\n'));
    if (strip) {
      const size_t first = t.find_first_not_of(" \t\r\n");
      t.erase(0, first == std::string::npos ? t.size() : first);
    } else if (drop_break) {
      if (t.starts_with("\r\n"))
        t.erase(0, 2);
      else if (t.starts_with("\n"))
        t.erase(0, 1);
    }
    if (block) strip_line(t, at == 0 || (drop_break && here < line));
    if (!t.empty()) out.push_back({Piece::Kind::text, std::move(t), here});
  };
  while (at < s.size()) {
    size_t open = s.find('{', at);
    while (open != s.npos &&
           (open + 1 == s.size() || std::string_view("{%#").find(s[open + 1]) == s.npos))
      open = s.find('{', open + 1);
    if (open == s.npos) {
      text(s.size(), false);
      break;
    }
    const char kind = s[open + 1];
    const bool left = open + 2 < s.size() && s[open + 2] == '-';
    text(open, kind != '{' && !(open + 2 < s.size() && s[open + 2] == '+'));
    if (left && !out.empty() && out.back().kind == Piece::Kind::text) strip_right(out.back().text);
    const std::string_view sign = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    const size_t from = open + 2 + (left || (kind == '%' && s.substr(open + 2, 1) == "+"));
    const size_t end = closing(s, from, sign, line);
    std::string_view inside = s.substr(from, end - from);
    strip = inside.ends_with('-');
    drop_break = kind != '{';
    if (strip) inside.remove_suffix(1);
    if (kind != '#')
      out.push_back(
          {kind == '{' ? Piece::Kind::print : Piece::Kind::block, std::string(inside), line});
    line += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
    at = end + 2;
  }
  return out;
}

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view text) : pieces_(pieces_of(text)) {}
  std::vector<Statement> all() {
    std::string end;
    std::vector<Statement> out = body({}, end);
    return out;
  }

 private:
  // Statements up to one of the blocks `ends`; `end` gets its whole text.
  std::vector<Statement> body(const std::vector<std::string_view>& ends, std::string& end) {
    if (++depth_ > kMostDepth)
      fail_at(pieces_[std::min(at_, pieces_.size() - 1)].line, "nested too deeply");
    std::vector<Statement> out;
    for (; at_ < pieces_.size();) {
      Piece& p = pieces_[at_++];
      if (p.kind == Piece::Kind::text) {
        Statement s{.line = p.line, .text = std::move(p.text)};
        out.push_back(std::move(s));
      } else if (p.kind == Piece::Kind::print) {
        ExpressionParser e(p.text, p.line);
        Statement s{.kind = Statement::Kind::print, .line = p.line};
        s.value = e.expression();
        e.finish();
        out.push_back(std::move(s));
      } else {
        ExpressionParser e(p.text, p.line);
        const std::string word = e.name();
        if (std::find(ends.begin(), ends.end(), word) != ends.end()) {
          end = p.text;
          line_ = p.line;
          --depth_;
          return out;
        }
        if (word == "generation" || word == "endgeneration") continue;  // marks for training
        out.push_back(block(word, e, p.line));
      }
    }
    if (!ends.empty()) fail_at(pieces_.back().line, fmt::format("'{}' is missing", ends.back()));
    --depth_;
    return out;
  }

  Statement block(const std::string& word, ExpressionParser& e, int line) {
    if (word == "if") return condition(e, line);
    if (word == "for") return loop(e, line);
    if (word == "set") return assignment(e, line);
    if (word == "macro") return macro(e, line);
    if (word == "break" || word == "continue") {
      e.finish();
      return {.kind = word == "break" ? Statement::Kind::stop : Statement::Kind::next,
              .line = line};
    }
    fail_at(line, fmt::format("'{}' is not supported in chat templates", word));
  }

  Statement condition(ExpressionParser& e, int line) {
    Statement s{.kind = Statement::Kind::condition, .line = line};
    s.value = e.expression();
    e.finish();
    std::string end;
    s.body = body({"elif", "else", "endif"}, end);
    ExpressionParser next(end, line_);
    const std::string word = next.name();
    if (word == "elif") {
      if (++depth_ > kMostDepth) fail_at(line, "nested too deeply");
      s.other.push_back(condition(next, line_));
      --depth_;
    } else if (word == "else") {
      s.other = body({"endif"}, end);
    }
    return s;
  }
  Statement loop(ExpressionParser& e, int line) {
    Statement s{.kind = Statement::Kind::loop, .line = line};
    do s.names.push_back(e.name());
    while (e.skip(","));
    e.want("in");
    s.value = e.either();
    if (e.skip("if")) s.filter = e.expression();
    if (!e.skip("recursive")) e.finish();
    std::string end;
    s.body = body({"else", "endfor"}, end);
    if (ExpressionParser(end, line_).name() == "else") s.other = body({"endfor"}, end);
    return s;
  }
  Statement assignment(ExpressionParser& e, int line) {
    Statement s{.kind = Statement::Kind::assign, .line = line};
    do s.names.push_back(e.name());
    while (e.skip(","));
    if (e.skip(".")) s.member = e.name();
    std::string end;
    if (e.skip("=")) {
      s.value = e.expression();
      e.finish();
    } else {
      e.finish();
      s.body = body({"endset"}, end);
    }
    return s;
  }
  Statement macro(ExpressionParser& e, int line) {
    Statement s{.kind = Statement::Kind::macro, .line = line, .text = e.name()};
    e.want("(");
    while (!e.skip(")")) {
      s.names.push_back(e.name());
      s.defaults.push_back(e.skip("=") ? e.expression() : nullptr);
      if (!e.skip(",") && !e.is(")")) e.fail("expected ',' or ')'");
    }
    e.finish();
    std::string end;
    s.body = body({"endmacro"}, end);
    return s;
  }

  std::vector<Piece> pieces_;
  size_t at_ = 0;
  int depth_ = 0, line_ = 1;
};

}  // namespace

void fail_at(int line, const std::string& why) {
  TD_FAIL(Format, "chat template, line {}: {}", line, why);
}

std::vector<Statement> parse(std::string_view text) { return TemplateParser(text).all(); }

}  // namespace tandem::text::jinja
