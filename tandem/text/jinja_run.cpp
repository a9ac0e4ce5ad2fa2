// SPDX-License-Identifier: Apache-2.0
// Runs templates. Names live in frames: a loop and a macro have their own, so what they set is gone
// behind them; namespaces are the way around that, as in Jinja.
#include <fmt/format.h>

#include <ctime>
#include <map>

#include "tandem/base/error.h"
#include "tandem/text/jinja_internal.h"
#include "tandem/text/jinja_values_internal.h"

namespace tandem::text::jinja {
namespace {

using io::Json;
using Kind = Expression::Kind;

constexpr int64_t kMostSteps = 1000000;
constexpr size_t kMostOutput = size_t{16} << 20;
constexpr int kMostCalls = 100;  ///< of macros in each other

class Runner {
 public:
  explicit Runner(Json::Object names) {
    frames_.emplace_back();
    for (auto& [name, v] : names) frames_[0].values[name] = made(std::move(v));
  }

  std::string run(const std::vector<Statement>& program) {
    std::string out;
    body(program, out);
    return out;
  }

 private:
  enum class Flow : uint8_t { on, stop, next };
  struct Frame {
    std::map<std::string, Value, std::less<>> values = {};
    std::map<std::string, const Statement*, std::less<>> macros = {};
  };

  void step(int line) {
    if (++steps_ > kMostSteps) fail_at(line, "takes more than a million steps");
  }

  // ---- names

  Value* find(std::string_view name) {
    for (size_t i = frames_.size(); i-- > 0;)
      if (const auto at = frames_[i].values.find(name); at != frames_[i].values.end())
        return &at->second;
    return nullptr;
  }
  const Statement* find_macro(std::string_view name) const {
    for (size_t i = frames_.size(); i-- > 0;)
      if (const auto at = frames_[i].macros.find(name); at != frames_[i].macros.end())
        return at->second;
    return nullptr;
  }
  void set(const std::string& name, Value v) { frames_.back().values[name] = std::move(v); }
  void set_member(const Statement& s, const Value& v) {
    Value* whole = find(s.names[0]);
    if (!whole || !*whole || !(*whole)->as_object())
      fail_at(s.line, fmt::format("'{}' is not a namespace", s.names[0]));
    Json::Object fresh = *(*whole)->as_object();
    const Json value = v ? *v : Json();
    for (auto& [key, old] : fresh)
      if (key == s.member) {
        old = value;
        *whole = made(std::move(fresh));
        return;
      }
    fresh.emplace_back(s.member, value);
    *whole = made(std::move(fresh));
  }
  // Several names take the parts of a list.
  void set_all(const std::vector<std::string>& names, const Value& v, int line) {
    if (names.size() == 1) return set(names[0], v);
    if (!v || !v->as_array() || v->as_array()->size() != names.size())
      fail_at(line, fmt::format("{} names expect a list of as many values", names.size()));
    for (size_t i = 0; i < names.size(); ++i) set(names[i], part_of(v, (*v->as_array())[i]));
  }

  // ---- statements

  Flow body(const std::vector<Statement>& all, std::string& out) {
    for (const Statement& s : all) {
      step(s.line);
      const Flow flow = statement(s, out);
      if (out.size() > kMostOutput) fail_at(s.line, "makes more than 16 MB");
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }
  Flow statement(const Statement& s, std::string& out) {
    switch (s.kind) {
      case Statement::Kind::text:
        out += s.text;
        break;
      case Statement::Kind::print:
        out += text_of(evaluate(*s.value));
        break;
      case Statement::Kind::condition:
        return body(is_true(evaluate(*s.value)) ? s.body : s.other, out);
      case Statement::Kind::loop:
        return loop(s, out);
      case Statement::Kind::assign:
        assign(s);
        break;
      case Statement::Kind::macro:
        frames_.back().macros[s.text] = &s;
        break;
      case Statement::Kind::stop:
        return Flow::stop;
      case Statement::Kind::next:
        return Flow::next;
    }
    return Flow::on;
  }
  void assign(const Statement& s) {
    Value v;
    if (s.value) {
      v = evaluate(*s.value);
    } else {
      std::string text;
      body(s.body, text);
      v = made(std::move(text));
    }
    if (s.member.empty())
      set_all(s.names, v, s.line);
    else
      set_member(s, v);
  }
  Flow loop(const Statement& s, std::string& out) {
    const Value over = evaluate(*s.value);
    const Value list = over && over->as_array() ? over : apply_filter("list", over, {}, s.line);
    frames_.emplace_back();
    std::vector<Value> items;
    for (const Json& e : *list->as_array()) {
      const Value item = part_of(list, e);
      if (s.filter) {
        step(s.line);
        set_all(s.names, item, s.line);
        if (!is_true(evaluate(*s.filter))) continue;
      }
      items.push_back(item);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      frames_.back() = {};
      set_all(s.names, items[i], s.line);
      set("loop", made(place(items, i)));
      if (body(s.body, out) == Flow::stop) break;
    }
    frames_.pop_back();
    return items.empty() ? body(s.other, out) : Flow::on;
  }
  static Json place(const std::vector<Value>& items, size_t i) {
    Json::Object o{{"index", i + 1},
                   {"index0", i},
                   {"first", i == 0},
                   {"last", i + 1 == items.size()},
                   {"length", items.size()},
                   {"revindex", items.size() - i},
                   {"revindex0", items.size() - i - 1}};
    if (i > 0) o.emplace_back("previtem", *items[i - 1]);
    if (i + 1 < items.size()) o.emplace_back("nextitem", *items[i + 1]);
    return o;
  }

  // ---- expressions

  Value evaluate(const Expression& e) {
    step(e.line);
    switch (e.kind) {
      case Kind::literal:
        return made(e.value);
      case Kind::name: {
        const Value* v = find(e.text);
        return v ? *v : nullptr;
      }
      case Kind::list: {
        Json::Array out;
        for (const ExpressionPtr& p : e.parts) out.push_back(json_of(*p));
        return made(std::move(out));
      }
      case Kind::object: {
        Json::Object out;
        for (size_t i = 0; i + 1 < e.parts.size(); i += 2)
          out.emplace_back(text_of(evaluate(*e.parts[i])), json_of(*e.parts[i + 1]));
        return made(std::move(out));
      }
      case Kind::attribute: {
        const Value whole = evaluate(*e.parts[0]);
        if (!whole) fail_at(e.line, fmt::format("'{}' of what is undefined", e.text));
        return attribute_of(whole, e.text);
      }
      case Kind::item: {
        const Value whole = evaluate(*e.parts[0]);
        return item_of(whole, evaluate(*e.parts[1]), e.line);
      }
      case Kind::slice:
        return slice(e);
      case Kind::call:
        return call(e);
      case Kind::filter:
        return apply_filter(e.text, evaluate(*e.parts[0]), arguments(e), e.line);
      case Kind::test:
        return made(apply_test(e.text, evaluate(*e.parts[0]), arguments(e), e.line));
      case Kind::unary:
        return unary(e);
      case Kind::binary:
        return binary(e);
      case Kind::choice:
        if (is_true(evaluate(*e.parts[0]))) return evaluate(*e.parts[1]);
        return e.parts[2] ? evaluate(*e.parts[2]) : nullptr;
    }
    return nullptr;
  }
  Json json_of(const Expression& e) {
    const Value v = evaluate(e);
    return v ? *v : Json();
  }
  Value slice(const Expression& e) {
    const Value whole = evaluate(*e.parts[0]);
    Value bounds[3];
    for (size_t i = 0; i < 3; ++i)
      if (e.parts[i + 1]) bounds[i] = evaluate(*e.parts[i + 1]);
    return slice_of(whole, bounds, e.line);
  }
  Value unary(const Expression& e) {
    const Value v = evaluate(*e.parts[0]);
    if (e.text == "not") return made(!is_true(v));
    return arithmetic("-", made(int64_t{0}), v, e.line);
  }
  Value binary(const Expression& e) {
    const Value a = evaluate(*e.parts[0]);
    if (e.text == "and") return is_true(a) ? evaluate(*e.parts[1]) : a;
    if (e.text == "or") return is_true(a) ? a : evaluate(*e.parts[1]);
    const Value b = evaluate(*e.parts[1]);
    if (e.text == "==") return made(equal(a, b));
    if (e.text == "!=") return made(!equal(a, b));
    if (e.text == "<") return made(less(a, b, e.line));
    if (e.text == ">") return made(less(b, a, e.line));
    if (e.text == "<=") return made(!less(b, a, e.line));
    if (e.text == ">=") return made(!less(a, b, e.line));
    if (e.text == "in") return made(contains(b, a, e.line));
    return arithmetic(e.text, a, b, e.line);
  }

  Arguments arguments(const Expression& e) {
    Arguments a;
    for (size_t i = 1; i < e.parts.size(); ++i) a.all.push_back(evaluate(*e.parts[i]));
    for (const auto& [name, value] : e.named) a.named.emplace_back(name, evaluate(*value));
    return a;
  }
  Value call(const Expression& e) {
    const Expression& what = *e.parts[0];
    if (what.kind == Kind::attribute) {
      const Value object = evaluate(*what.parts[0]);
      return call_method(object, what.text, arguments(e), e.line);
    }
    if (what.kind != Kind::name) fail_at(e.line, "only names and methods can be called");
    if (const Statement* m = find_macro(what.text)) return call_macro(*m, arguments(e), e.line);
    return call_function(what.text, arguments(e), e.line);
  }
  Value call_macro(const Statement& m, const Arguments& a, int line) {
    if (++calls_ > kMostCalls) fail_at(line, "macros call each other without an end");
    Frame fresh;
    for (size_t i = 0; i < m.names.size(); ++i) {
      Value v = a.find(i, m.names[i]);
      if (!v && m.defaults[i]) v = evaluate(*m.defaults[i]);
      fresh.values[m.names[i]] = v;
    }
    frames_.push_back(std::move(fresh));
    std::string out;
    body(m.body, out);
    frames_.pop_back();
    --calls_;
    return made(std::move(out));
  }
  Value call_function(const std::string& name, const Arguments& a, int line) {
    if (name == "raise_exception") TD_FAIL(Value, "{}", text_of(a.find(0)));
    if (name == "namespace" || name == "dict") {
      Json::Object out;
      for (const auto& [key, v] : a.named) out.emplace_back(key, v ? *v : Json());
      return made(std::move(out));
    }
    if (name == "range") return range(a, line);
    if (name == "strftime_now") {
      const std::time_t now = std::time(nullptr);
      std::tm local{};
      localtime_r(&now, &local);
      char text[200] = "";
      const size_t n = std::strftime(text, sizeof text, text_of(a.find(0)).c_str(), &local);
      return made(std::string(text, n));
    }
    fail_at(line, fmt::format("there is no function '{}' in chat templates", name));
  }
  Value range(const Arguments& a, int line) {
    int64_t bounds[3] = {0, 0, 1};
    for (size_t i = 0; i < a.all.size() && i < 3; ++i) {
      if (!a.all[i] || !a.all[i]->as_int()) fail_at(line, "range expects whole numbers");
      bounds[a.all.size() == 1 ? 1 : i] = *a.all[i]->as_int();
    }
    if (bounds[2] == 0) fail_at(line, "range expects a step other than 0");
    Json::Array out;
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; i += bounds[2]) {
      step(line);
      out.push_back(i);
    }
    return made(std::move(out));
  }

  std::vector<Frame> frames_;
  int64_t steps_ = 0;
  int calls_ = 0;
};

}  // namespace

std::string run(const std::vector<Statement>& program, Json::Object names) {
  return Runner(std::move(names)).run(program);
}

}  // namespace tandem::text::jinja
