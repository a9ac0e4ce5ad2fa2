// SPDX-License-Identifier: Apache-2.0
// Options: reads a map of a recipe and keeps what was asked for.
#include <algorithm>
#include <cmath>

#include "tandem/base/nearest.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

Options::Options(const io::Yaml* map, std::string path, std::string what,
                 std::shared_ptr<io::Yaml> resolved,
                 std::shared_ptr<std::vector<std::string>> resumable)
    : map_(map),
      path_(std::move(path)),
      what_(std::move(what)),
      resolved_(std::move(resolved)),
      resumable_(std::move(resumable)) {
  TD_CHECK(!map_ || map_->kind == io::Yaml::Kind::map, Value, "{} line {}: '{}' expects a map",
           what_, map_->line, path_);
}

void Options::fail(const std::string& key, const std::string& what) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  const int line = v ? v->line : map_ ? map_->line : 0;
  TD_FAIL(Value, "{}{}: {}{}{}: {}", what_, line > 0 ? fmt::format(" line {}", line) : "", path_,
          path_.empty() ? "" : ".", key, what);
}

const io::Yaml* Options::want(const std::string& key, bool optional) {
  known_.push_back(key);
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  if (v && v->kind == io::Yaml::Kind::null) v = nullptr;
  if (!v && !optional) {
    // A key that nearly is this one is more likely the mistake; of others nothing is known yet.
    for (const std::string& other : left())
      if (!nearest_word(other, {key}).empty())
        fail(other, fmt::format("there is no such key, did you mean '{}'?", key));
    fail(key, "is missing");
  }
  return v;
}

namespace {

io::Yaml scalar(std::string text, bool quoted = false) {
  io::Yaml y;
  y.kind = io::Yaml::Kind::scalar;
  y.text = std::move(text);
  y.quoted = quoted;
  return y;
}
io::Yaml scalar(double v) { return scalar(fmt::format("{}", v)); }
// A text that looks like a number wants quotes.
io::Yaml scalar_text(const std::string& v) {
  io::Yaml y = scalar(v);
  y.quoted = v.empty() || y.as_double() || y.as_bool();
  return y;
}
template <class T, class F>
io::Yaml list(const std::vector<T>& v, F each) {
  io::Yaml y;
  y.kind = io::Yaml::Kind::list;
  for (const T& x : v) y.items.push_back(each(x));
  return y;
}

}  // namespace

void Options::resolve(const std::string& key, const io::Yaml& value) {
  if (!resolved_) return;
  io::Yaml* at = resolved_.get();
  const std::string path = path_of(key);
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const std::string word = path.substr(from, dot - from);
    from = dot + 1;
    if (at->kind == io::Yaml::Kind::list) {  // parts() has made its maps
      at = &at->items.at(std::stoul(word));
      continue;
    }
    at->kind = io::Yaml::Kind::map;
    auto it = std::find(at->keys.begin(), at->keys.end(), word);
    if (it == at->keys.end()) {
      at->keys.push_back(word);
      at->items.emplace_back();
      it = at->keys.end() - 1;
    }
    at = &at->items[static_cast<size_t>(it - at->keys.begin())];
  }
  *at = value;
}

double Options::number(const std::string& key, std::optional<double> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar(*otherwise));
    return *otherwise;
  }
  const auto d = v->as_double();
  if (!d || !std::isfinite(*d)) fail(key, fmt::format("expected a number, got '{}'", v->text));
  resolve(key, *v);
  return *d;
}
int64_t Options::whole(const std::string& key, std::optional<int64_t> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar(std::to_string(*otherwise)));
    return *otherwise;
  }
  const auto n = v->as_int();
  if (!n) {
    const auto d = v->as_double();
    const bool large = d && std::isfinite(*d) && std::floor(*d) == *d;
    fail(key,
         fmt::format("expected a whole number{}, got '{}'", large ? " below 9e15" : "", v->text));
  }
  resolve(key, *v);
  return *n;
}
bool Options::flag(const std::string& key, std::optional<bool> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar(*otherwise ? "true" : "false"));
    return *otherwise;
  }
  const auto b = v->as_bool();
  if (!b) fail(key, fmt::format("expected true or false, got '{}'", v->text));
  resolve(key, *v);
  return *b;
}
std::string Options::text(const std::string& key, std::optional<std::string> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar_text(*otherwise));
    return *otherwise;
  }
  if (v->kind != io::Yaml::Kind::scalar) fail(key, "expected a text");
  resolve(key, *v);
  return v->text;
}
std::vector<double> Options::numbers(const std::string& key,
                                     std::optional<std::vector<double>> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, list(*otherwise, [](double x) { return scalar(x); }));
    return *otherwise;
  }
  if (v->as_double()) {
    resolve(key, *v);
    return {*v->as_double()};
  }
  std::vector<double> out;
  for (const io::Yaml& item : v->items) {
    if (!item.as_double()) fail(key, fmt::format("expected numbers, got '{}'", item.text));
    out.push_back(*item.as_double());
  }
  if (v->kind != io::Yaml::Kind::list) fail(key, "expected a list of numbers");
  resolve(key, *v);
  return out;
}
std::vector<std::string> Options::texts(const std::string& key,
                                        std::vector<std::string> otherwise) {
  const io::Yaml* v = want(key, true);
  if (!v) {
    resolve(key, list(otherwise, scalar_text));
    return otherwise;
  }
  if (v->kind != io::Yaml::Kind::list) fail(key, "expected a list");
  std::vector<std::string> out;
  for (const io::Yaml& item : v->items) out.push_back(item.text);
  resolve(key, *v);
  return out;
}
Options Options::part(const std::string& key) {
  const io::Yaml* v = want(key, true);
  return Options(v, path_of(key), what_, resolved_, resumable_);
}
std::vector<Options> Options::parts(const std::string& key, const io::Yaml* otherwise) {
  const io::Yaml* v = want(key, true);
  if (!v) v = otherwise;
  if (v && v->kind != io::Yaml::Kind::list)
    fail(key, fmt::format("expected a list of maps, such as [{{type: ...}}], got '{}'", v->text));
  io::Yaml empty;
  empty.kind = io::Yaml::Kind::map;
  std::vector<Options> out;
  const size_t n = v ? v->items.size() : 0;
  resolve(key, list(std::vector<io::Yaml>(n, empty), [](const io::Yaml& y) { return y; }));
  for (size_t i = 0; i < n; ++i)
    out.emplace_back(&v->items[i], fmt::format("{}.{}", path_of(key), i), what_, resolved_,
                     resumable_);
  return out;
}

bool Options::is_text(const std::string& key) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  return v && v->kind == io::Yaml::Kind::scalar && !v->as_double();
}

bool Options::is_number(const std::string& key) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  return v && v->as_double();
}
bool Options::is_null(const std::string& key) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  return v && v->kind == io::Yaml::Kind::null;
}
std::string Options::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}
void Options::may_change(const std::string& key) {
  if (resumable_) resumable_->push_back(path_of(key));
}
void Options::resolve_as(const std::string& key, const io::Yaml& value) {
  known_.push_back(key);
  resolve(key, value);
}

std::vector<std::string> Options::left() const {
  std::vector<std::string> out;
  if (!map_) return out;
  for (const std::string& key : map_->keys)
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) out.push_back(key);
  return out;
}
void Options::finish() const {
  for (const std::string& key : left()) {
    const std::string near = nearest_word(key, known_);
    fail(key, near.empty()
                  ? fmt::format("there is no such key. There are {}", fmt::join(known_, ", "))
                  : fmt::format("there is no such key, did you mean '{}'?", near));
  }
}

}  // namespace tandem::recipe
