// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/yaml.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem::io {
namespace {

struct Builder {
  std::string_view what;
  size_t nodes = 0;

  Yaml build(const YAML::Node& n, int depth) {
    // An alias is expanded where it is used, so a bomb of aliases hits these limits.
    TD_CHECK(++nodes <= 100000 && depth < 64, Format, "{}: too many values, or too deep", what);
    Yaml y;
    y.line = n.Mark().line + 1;
    if (n.IsScalar()) {
      y.kind = Yaml::Kind::scalar;
      y.text = n.Scalar();
      y.quoted = n.Tag() == "!";
    } else if (n.IsSequence()) {
      y.kind = Yaml::Kind::list;
      for (const YAML::Node& item : n) y.items.push_back(build(item, depth + 1));
    } else if (n.IsMap()) {
      y.kind = Yaml::Kind::map;
      for (const auto& member : n) {
        TD_CHECK(member.first.IsScalar(), Format, "{} line {}: a key must be a string", what,
                 member.first.Mark().line + 1);
        const std::string key = member.first.Scalar();
        TD_CHECK(!y.find(key), Format, "{} line {}: the key '{}' appears twice", what,
                 member.first.Mark().line + 1, key);
        y.keys.push_back(key);
        y.items.push_back(build(member.second, depth + 1));
        y.items.back().line = member.first.Mark().line + 1;
      }
    }
    return y;
  }
};

std::string scalar_text(const Yaml& y) {
  if (y.kind == Yaml::Kind::null) return "null";
  const bool plain = !y.quoted && !y.text.empty() &&
                     y.text.find_first_of(":#{}[],&*!|>'\"%@`\n") == y.text.npos &&
                     y.text.front() != ' ' && y.text.back() != ' ' && y.text.front() != '-';
  if (plain || y.as_double()) return y.text;
  std::string out = "\"";
  for (char c : y.text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::string flow(const Yaml& y) {
  if (y.kind == Yaml::Kind::list) {
    std::string out = "[";
    for (size_t i = 0; i < y.items.size(); ++i) out += (i ? ", " : "") + flow(y.items[i]);
    return out + "]";
  }
  if (y.kind == Yaml::Kind::map) {
    std::string out = "{";
    for (size_t i = 0; i < y.items.size(); ++i)
      out += (i ? ", " : "") + y.keys[i] + ": " + flow(y.items[i]);
    return out + "}";
  }
  return scalar_text(y);
}

}  // namespace

const Yaml* Yaml::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i] == key) return &items[i];
  return nullptr;
}

std::optional<int64_t> Yaml::as_int() const {
  if (kind != Kind::scalar || quoted || text.empty()) return {};
  errno = 0;
  char* end;
  const long long v = std::strtoll(text.c_str(), &end, 10);
  if (errno == 0 && *end == '\0') return v;
  // 1e6 is a whole number, too.
  const std::optional<double> d = as_double();
  if (d && std::floor(*d) == *d && std::abs(*d) < 9e15) return static_cast<int64_t>(*d);
  return {};
}

std::optional<double> Yaml::as_double() const {
  if (kind != Kind::scalar || quoted || text.empty()) return {};
  if (text.find_first_not_of("0123456789+-.eE") != text.npos) {
    if (text == ".inf" || text == "inf") return INFINITY;
    if (text == "-.inf" || text == "-inf") return -INFINITY;
    return {};
  }
  char* end;
  const double v = std::strtod(text.c_str(), &end);
  if (*end != '\0') return {};
  return v;
}

std::optional<bool> Yaml::as_bool() const {
  if (kind != Kind::scalar || quoted) return {};
  if (text == "true") return true;
  if (text == "false") return false;
  return {};
}

std::string Yaml::dump(int indent) const {
  if (kind != Kind::map) return flow(*this) + "\n";
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const Yaml& value = items[i];
    out += std::string(static_cast<size_t>(indent), ' ') + keys[i] + ":";
    if (value.kind == Kind::map && !value.items.empty())
      out += "\n" + value.dump(indent + 2);
    else
      out += " " + flow(value) + "\n";
  }
  return out;
}

Yaml parse_yaml(std::string_view text, std::string_view what) {
  try {
    Builder b{what};
    return b.build(YAML::Load(std::string(text)), 0);
  } catch (const YAML::Exception& e) {
    TD_FAIL(Format, "{} line {}: {}", what, e.mark.line + 1, e.msg);
  }
}

namespace {
// A value from the command line has no line in the file.
void forget_lines(Yaml& y) {
  y.line = 0;
  for (Yaml& item : y.items) forget_lines(item);
}
}  // namespace

void set_yaml(Yaml& root, std::string_view path, std::string_view value) {
  Yaml* at = &root;
  for (std::string_view rest = path;;) {
    const size_t dot = rest.find('.');
    const std::string key(rest.substr(0, dot));
    TD_CHECK(!key.empty(), Value, "'{}' is not a path such as optim.lr", path);
    TD_CHECK(at->kind == Yaml::Kind::map || at->kind == Yaml::Kind::null, Value,
             "'{}': the parent of '{}' is not a map", path, key);
    at->kind = Yaml::Kind::map;
    auto* next = const_cast<Yaml*>(at->find(key));
    if (!next) {
      at->keys.push_back(key);
      next = &at->items.emplace_back();
    }
    at = next;
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  *at = parse_yaml(value, path);
  forget_lines(*at);
}

}  // namespace tandem::io
