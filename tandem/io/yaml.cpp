// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"

namespace tandem::io {
namespace {

/// Builds a Yaml from yaml-cpp's events. An alias is copied where it is used, so a bomb of aliases
/// hits the budget; nothing is built before it is charged.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view what) : what_(what) {}
  Yaml root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(made(Yaml::Kind::null, mark), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto at = anchors_.find(anchor);
    TD_CHECK(at != anchors_.end(), Format, "{} line {}: an alias is used inside its own value",
             what_, mark.line + 1);
    charge(at->second);
    add(at->second, YAML::NullAnchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Yaml y = made(Yaml::Kind::scalar, mark);
    Budget::take(value.size());
    y.text = value;
    y.quoted = tag == "!";
    add(std::move(y), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Yaml::Kind::list, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Yaml::Kind::map, mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Yaml value;
    YAML::anchor_t anchor;
    std::unordered_set<std::string> keys;
    int key_line = 0;  ///< of the key whose value comes next; 0: a key comes next
  };

  static Yaml made(Yaml::Kind kind, const YAML::Mark& mark) {
    Budget::count();
    Budget::take(2 * sizeof(Yaml));  // the list doubles as it grows
    Yaml y;
    y.kind = kind;
    y.line = mark.line + 1;
    return y;
  }
  /// A copy of `y`.
  static void charge(const Yaml& y) {
    Budget::count();
    uint64_t bytes = 2 * sizeof(Yaml) + y.text.size();
    for (const std::string& key : y.keys) bytes += sizeof key + key.size();
    Budget::take(bytes);
    for (const Yaml& item : y.items) charge(item);
  }
  void open(Yaml::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    TD_CHECK(levels_.size() < 64, Format, "{} line {}: it is nested deeper than 64 levels", what_,
             mark.line + 1);
    levels_.push_back({made(kind, mark), anchor, {}});
  }
  void close() {
    Level done = std::move(levels_.back());
    levels_.pop_back();
    add(std::move(done.value), done.anchor);
  }
  void add(Yaml y, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      charge(y);
      anchors_[anchor] = y;
    }
    if (levels_.empty()) {
      root = std::move(y);
      return;
    }
    Level& in = levels_.back();
    if (in.value.kind == Yaml::Kind::map && in.key_line == 0) return add_key(in, y);
    if (in.value.kind == Yaml::Kind::map) y.line = std::exchange(in.key_line, 0);
    in.value.items.push_back(std::move(y));
  }
  void add_key(Level& in, const Yaml& key) const {
    TD_CHECK(key.kind == Yaml::Kind::scalar, Format, "{} line {}: a key must be a string", what_,
             key.line);
    Budget::take(64 + 2 * key.text.size());
    TD_CHECK(in.keys.insert(key.text).second, Format, "{} line {}: the key '{}' appears twice",
             what_, key.line, key.text);
    in.value.keys.push_back(key.text);
    in.key_line = key.line;
  }

  std::string_view what_;
  std::vector<Level> levels_;
  std::unordered_map<YAML::anchor_t, Yaml> anchors_;
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

Yaml parse_yaml(std::string_view text, std::string_view what, const BudgetLimits& limits) {
  const Budget budget(what, text.size(), limits);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    Builder builder(what);
    parser.HandleNextDocument(builder);
    return std::move(builder.root);
  } catch (const YAML::Exception& e) {
    TD_FAIL(Format,
            "{} line {}: {}\nClose every bracket and quote that is opened, and indent by spaces.",
            what, e.mark.line + 1, e.msg);
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
