// SPDX-License-Identifier: Apache-2.0
// forward() of a module as lines: which results have a name and which stand inside the next call,
// and when a variable takes a new value.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "tandem/edge/module/tree_internal.h"

namespace tandem::edge {
namespace {

constexpr int kDeepest = 2;  // calls inside calls of a line

// One call in a body: of an op, of a layer, or of another struct.
struct BodyCall {
  const ModuleStep* step = nullptr;
  const Unit* unit = nullptr;
  size_t place = 0;          // in the program
  std::vector<ValueId> in;   // what it reads, a value as often as it stands there
  std::vector<ValueId> out;  // what is read of it
  int depth = 0;             // of calls inside its text
};

class BodyWriter {
 public:
  BodyWriter(const TracedModel& m, const UnitTree& tree, const Unit& u)
      : m_(m),
        tree_(tree),
        u_(u),
        scope_{m, [this](ValueId v) { return operand(v); }, [this](Dim d) { return size(d); }} {}

  ForwardBody write(std::span<const std::string> input_names) {
    find_calls();
    find_inner();
    name_inputs(input_names);
    for (BodyCall& c : calls_)
      if (!inside_.contains(c.out.at(0))) statement(c);
    finish();
    for (const std::string& s : sizes_) body_.lines.insert(body_.lines.begin(), words(s));
    return std::move(body_);
  }

 private:
  const ModuleValue& value(ValueId v) const { return m_.values[static_cast<size_t>(v)]; }
  bool is_output(ValueId v) const {
    return std::find(u_.out.begin(), u_.out.end(), v) != u_.out.end();
  }

  // ---- calls

  void find_calls() {
    for (const size_t i : u_.own) add_step(m_.steps[i], nullptr, i);
    for (const auto& c : u_.children) {
      if (c->kind == Unit::Kind::layer) {
        for (const size_t i : c->own) add_step(m_.steps[i], c.get(), i);
      } else if (!c->steps.empty()) {
        calls_.push_back({nullptr, c.get(), c->steps.front(), c->in, c->out});
      }
    }
    std::sort(calls_.begin(), calls_.end(),
              [](const BodyCall& a, const BodyCall& b) { return a.place < b.place; });
    for (size_t i = 0; i < calls_.size(); ++i) {
      for (const ValueId v : calls_[i].in) ++uses_[v];
      for (const ValueId v : calls_[i].out) maker_[v] = i;
    }
  }
  void add_step(const ModuleStep& s, const Unit* layer, size_t place) {
    BodyCall c{&s, layer, place, {}, {}};
    for (const StepInput& x : s.in)
      if (x.value != kNoValue) c.in.push_back(x.value);
    for (const ValueId v : s.out)
      if (!tree_.readers(v).empty() || is_output(v)) c.out.push_back(v);
    if (c.out.empty()) return;
    body_.calls += s.node != nullptr;
    calls_.push_back(std::move(c));
  }

  bool is_computed(ValueId v) const { return value(v).weight < 0; }
  bool reads_nothing(const BodyCall& c) const {
    return std::none_of(c.in.begin(), c.in.end(), [&](ValueId v) { return is_computed(v); });
  }
  static bool is_pointwise(const BodyCall& c) {
    return c.step && c.step->node && c.step->node->op->family == Family::pointwise;
  }
  static bool is_view(const BodyCall& c) {
    return c.step && c.step->node && c.step->node->op->family == Family::view;
  }
  // relu(norm(conv(x))) is one line; other functions begin a line.
  static bool fits_inside(const BodyCall& p, const BodyCall& c) {
    if (is_pointwise(c)) return p.depth < kDeepest;
    const auto is_layer = [](const BodyCall& b) {
      return b.unit && b.unit->kind == Unit::Kind::layer;
    };
    if (c.unit) return is_layer(c) && c.in.size() == 1 && is_layer(p) && p.depth < kDeepest;
    return is_view(c) && is_view(p) && p.depth == 0;
  }

  // Values that are read once, by the next call, stand inside it while it stays easy to read.
  void find_inner() {
    for (size_t i = 1; i < calls_.size(); ++i) {
      BodyCall& c = calls_[i];
      if (c.unit && c.unit->kind == Unit::Kind::repeated) continue;
      const auto computed =
          std::count_if(c.in.begin(), c.in.end(), [&](ValueId v) { return is_computed(v); });
      for (const ValueId v : c.in) {
        const auto at = maker_.find(v);
        if (at == maker_.end() || uses_[v] != 1 || is_output(v)) continue;
        const BodyCall& p = calls_[at->second];
        if (p.out.size() != 1 || (p.unit && p.unit->kind == Unit::Kind::repeated)) continue;
        const bool next = at->second + 1 == i;
        if (reads_nothing(p) ? p.depth < kDeepest : next && computed <= 2 && fits_inside(p, c)) {
          inside_[v] = at->second;
          c.depth = std::max(c.depth, p.depth + 1);
        }
      }
    }
    for (const BodyCall& c : calls_)
      if (!inside_.contains(c.out[0]))
        for (const ValueId v : leaves(c)) last_use_[v] = std::max(last_use_[v], c.place);
  }
  // The named values that the text of c reads.
  std::vector<ValueId> leaves(const BodyCall& c) const {
    std::vector<ValueId> out;
    for (const ValueId v : c.in)
      if (const auto at = inside_.find(v); at != inside_.end()) {
        for (const ValueId w : leaves(calls_[at->second])) out.push_back(w);
      } else {
        out.push_back(v);
      }
    return out;
  }

  // ---- names

  void name_inputs(std::span<const std::string> given) {
    for (const auto& c : u_.children) taken_.insert(c->name);
    for (const int w : u_.weights) taken_.insert(tree_.holder(w).second);
    for (const size_t i : u_.own)
      if (m_.steps[i].node) taken_.merge(functions_of(m_, m_.steps[i]));
    const std::vector<std::string> usual = {"x", "y", "z", "u", "v", "w"};
    for (size_t i = 0; i < u_.in.size(); ++i) {
      std::string name = u_.in.size() == 1  ? "x"
                         : i < usual.size() ? usual[i]
                                            : fmt::format("x{}", i);
      if (!given.empty() && u_.in.size() > 1) name = member_name(given[i]);
      if (!given.empty() && u_.in.size() == 1 && !is_floating(value(u_.in[0]).spec.dtype))
        name = member_name(given[i]);
      body_.parameters.push_back(unique(name));
      variable_[u_.in[i]] = body_.parameters.back();
    }
  }
  std::string unique(const std::string& base) {
    std::string name = base;
    for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}{}", base, i);
    return name;
  }

  // The name of an open size, defined at the top by an input that has it.
  std::string size(Dim d) {
    if (!d.is_symbolic()) return std::to_string(d.value());
    if (const auto at = size_names_.find(d.raw()); at != size_names_.end()) return at->second;
    const std::string text = d.to_string();
    const bool word = std::all_of(text.begin(), text.end(),
                                  [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    for (size_t i = 0; i < u_.in.size(); ++i) {
      const Shape& s = value(u_.in[i]).spec.shape;
      for (int k = 0; k < s.rank(); ++k)
        if (s[k] == d) {
          const std::string name = unique(word ? member_name(text) : "n");
          sizes_.push_back(
              fmt::format("const Dim {} = {}.shape({});", name, body_.parameters[i], k));
          return size_names_[d.raw()] = name;
        }
    }
    return size_names_[d.raw()] = expression(text);
  }
  // A sum or product of sizes, symbol by symbol.
  std::string expression(const std::string& text) {
    std::string out, word;
    for (const char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
        word += c;
        continue;
      }
      if (!word.empty())
        out += std::isdigit(static_cast<unsigned char>(word[0])) ? word : symbol(word, text);
      word.clear();
      TD_CHECK(std::strchr("+-*() ", c), Unsupported,
               "the size {} depends on the sizes of the inputs in a way that has no C++ form",
               text);
      out += c;
    }
    out.pop_back();
    return out;
  }
  std::string symbol(const std::string& word, const std::string& text) {
    const Dim d = Dim::symbol(word);
    TD_CHECK(word != text, Unsupported, "the size {} is none of the sizes of the inputs", text);
    return size(d);
  }

  // ---- text

  std::string member_path(int w) const {
    const auto [holder, name] = tree_.holder(w);
    std::string path = name;
    for (const Unit* h = holder; h != &u_; h = h->parent) path = h->name + "." + path;
    return path;
  }
  CallText operand(ValueId v) {
    if (const auto at = inside_.find(v); at != inside_.end()) return text(calls_[at->second]);
    if (const auto at = variable_.find(v); at != variable_.end()) return {words(at->second)};
    TD_ASSERT(value(v).weight >= 0);
    return {words(member_path(value(v).weight))};
  }
  CallText text(const BodyCall& c) {
    if (!c.unit) {
      const std::optional<CallText> t = call_text(OpCall(scope_, *c.step));
      TD_ASSERT(t.has_value());
      CallText out = *t;
      if (c.step->node->op->shown() > 1 && c.out.size() == 1)
        out = {text_of(out.text, ".", result_fields(*c.step->node->op)[field_of(c)])};
      return out;
    }
    const bool one = c.in.size() == 1 || c.step;
    Text t = words(c.unit->name + (one ? "(" : ".forward("));
    for (size_t i = 0; i < c.in.size(); ++i) {
      if (i) append(t, ", ");
      append(t, operand(c.in[i]).text);
    }
    const std::string result = c.step ? c.step->result : "";
    return {text_of(t, result.starts_with('{') ? ", " + result + ")" : ")" + result)};
  }
  static size_t field_of(const BodyCall& c) {
    return static_cast<size_t>(std::find(c.step->out.begin(), c.step->out.end(), c.out[0]) -
                               c.step->out.begin());
  }

  // ---- lines

  void statement(const BodyCall& c) {
    const std::vector<ValueId> read = leaves(c);
    const bool last = &c == &calls_.back() && u_.out.size() == 1 && c.out[0] == u_.out[0];
    if (c.out.size() > 1) return several(c);
    if (c.unit && c.unit->kind == Unit::Kind::repeated) return loop(c);
    Text t = text(c).text;
    if (last) {
      body_.lines.push_back(text_of("return ", t, ";"));
      returned_ = true;
      return;
    }
    body_.lines.push_back(text_of(assign(c, read), " = ", t, ";"));
  }
  // "x" where a variable's value is no longer needed, else "Tensor x1".
  std::string assign(const BodyCall& c, const std::vector<ValueId>& read) {
    const ValueId v = c.out[0];
    std::string base;
    for (const ValueId r : read) {
      const auto at = variable_.find(r);
      if (at == variable_.end() || value(r).weight >= 0) continue;
      if (is_floating(value(r).spec.dtype) != is_floating(value(v).spec.dtype)) continue;
      const bool needed = last_use_[r] > c.place || is_output(r);
      if (!needed) {
        const std::string name = at->second;
        variable_.erase(at);
        return variable_[v] = name;
      }
      if (base.empty()) base = at->second;
    }
    while (base.size() > 1 && std::isdigit(static_cast<unsigned char>(base.back())))
      base.pop_back();
    if (base.empty()) base = is_floating(value(v).spec.dtype) ? "x" : "i";
    return "Tensor " + (variable_[v] = unique(base));
  }
  void several(const BodyCall& c) {
    Text t = text(BodyCall{c.step, c.unit, c.place, c.in, c.step->out, 0}).text;
    std::string names;
    const std::vector<std::string> fields = result_fields(*c.step->node->op);
    for (size_t i = 0; i < fields.size(); ++i) {
      const std::string name = unique(fields[i]);
      variable_[c.step->out[i]] = name;
      names += (i ? ", " : "") + name;
    }
    body_.lines.push_back(text_of("auto [", names, "] = ", t, ";"));
  }
  void loop(const BodyCall& c) {
    const Text x = operand(c.in[0]).text;
    const std::string to = assign(c, leaves(c));
    std::string name = to;
    if (name.starts_with("Tensor ")) {
      body_.lines.push_back(text_of(to, " = ", x, ";"));
      name.erase(0, std::strlen("Tensor "));
    }
    const std::string& type = c.unit->children[0]->type;
    body_.lines.push_back(
        words(fmt::format("for ({}& block : {}) {} = block({});", type, c.unit->name, name, name)));
  }
  void finish() {
    if (returned_) return;
    if (u_.out.size() == 1) {
      body_.lines.push_back(text_of("return ", operand(u_.out[0]).text, ";"));
      return;
    }
    Text t = words("return {");
    for (size_t i = 0; i < u_.out.size(); ++i) {
      if (i) append(t, ", ");
      append(t, operand(u_.out[i]).text);
    }
    body_.lines.push_back(text_of(t, "};"));
  }

  const TracedModel& m_;
  const UnitTree& tree_;
  const Unit& u_;
  CallScope scope_;
  ForwardBody body_;
  std::vector<BodyCall> calls_;
  std::map<ValueId, int> uses_;
  std::map<ValueId, size_t> maker_, inside_, last_use_;
  std::map<ValueId, std::string> variable_;
  std::set<std::string> taken_;
  std::map<int64_t, std::string> size_names_;
  std::vector<std::string> sizes_;
  bool returned_ = false;
};

}  // namespace

ForwardBody write_body(const TracedModel& m, const UnitTree& tree, const Unit& u,
                       std::span<const std::string> input_names) {
  return BodyWriter(m, tree, u).write(input_names);
}

}  // namespace tandem::edge
