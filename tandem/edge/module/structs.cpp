// SPDX-License-Identifier: Apache-2.0
// The text of the header: structs whose texts differ in numbers alone become one, with a
// constructor that takes what differs.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "tandem/edge/module/tree_internal.h"
#include "tandem/edge/text_internal.h"
#include "tandem/graph/trace.h"

namespace tandem::edge {
namespace {

struct Member {
  std::string type, name;
  Text arguments;
};
// A struct as one module has it.
struct Instance {
  Unit* unit;
  std::vector<Member> members;
  ForwardBody body;
};

// Calls `see` with every number of an instance, in one order, and gives the text around them.
template <class F>
std::string walk(const Text& t, F&& see) {
  std::string s;
  for (const Piece& p : t) {
    if (!p.hint.empty()) {
      s += '\1';
      see(p);
    } else {
      s += p.words;
    }
    for (const Option& o : p.options) s += "." + o.name + walk(o.value, see);
  }
  return s;
}
template <class F>
std::string walk(const Instance& i, F&& see) {
  std::string s;
  for (const Member& m : i.members)
    s += m.type + " " + m.name + "{" + walk(m.arguments, see) + "\n";
  for (const std::string& p : i.body.parameters) s += p + ",";
  for (const Text& t : i.body.lines) s += walk(t, see) + "\n";
  return s;
}

// Text with each number as `names` has it, in the order of walk().
class Filled {
 public:
  explicit Filled(const std::vector<std::string>& names) : names_(names) {}
  std::string operator()(const Text& t) {
    std::string s;
    for (const Piece& p : t) {
      s += p.hint.empty() ? p.words : names_.at(next_++);
      std::string options;
      for (const Option& o : p.options) {
        const std::string value = (*this)(o.value);
        if (value != o.fallback)
          options += fmt::format("{}.{} = {}", options.empty() ? "" : ", ", o.name, value);
      }
      if (!options.empty()) s += ", {" + options + "}";
    }
    return s;
  }

 private:
  const std::vector<std::string>& names_;
  size_t next_ = 0;
};

constexpr size_t kColumns = 100;

// The arguments in the brackets that open at `open`, and where these close.
std::vector<std::string> arguments_in(const std::string& s, size_t open, size_t& close) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (close = open; close < s.size(); ++close) {
    const char c = s[close];
    depth += (c == '(' || c == '{' || c == '[') - (c == ')' || c == '}' || c == ']');
    if (depth == 0) break;
    if (close == open) continue;
    if (c == ',' && depth == 1) {
      out.emplace_back();
      ++close;  // the space
    } else {
      out.back() += c;
    }
  }
  return out;
}
// Where the longest brackets of `s` that lie in no others open.
size_t longest_brackets(const std::string& s) {
  size_t best = s.npos, longest = 2;
  for (size_t i = 0, close = 0; i < s.size(); ++i) {
    if (s[i] != '(' && s[i] != '{' && s[i] != '[') continue;
    arguments_in(s, i, close);
    if (close - i > longest) longest = close - i, best = i;
    i = close;
  }
  return best;
}

// A statement in lines of at most 100 characters: where it is longer, what lies in its longest
// brackets gets lines of its own.
std::string wrapped(const std::string& s, size_t indent) {
  const std::string space(indent, ' ');
  const size_t open = indent + s.size() > kColumns ? longest_brackets(s) : s.npos;
  if (open == s.npos) return space + s + "\n";
  size_t close = 0;
  const std::vector<std::string> all = arguments_in(s, open, close);
  std::string out = space + s.substr(0, open + 1) + "\n", line;
  const size_t inner = indent + 4;
  const bool words_only = std::none_of(all.begin(), all.end(),
                                       [](const std::string& a) { return a.find('(') != a.npos; });
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string one = all[i] + (i + 1 < all.size() ? "," : s.substr(close));
    if (words_only && !line.empty() && inner + line.size() + one.size() < kColumns) {
      line += " " + one;
      continue;
    }
    if (!line.empty()) out += wrapped(line, inner);
    line = one;
  }
  return out + wrapped(line, inner);
}

std::string class_name(const std::string& s) {
  std::string out;
  bool upper = true;
  for (const char c : s) {
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  while (!out.empty() && std::isdigit(static_cast<unsigned char>(out.back()))) out.pop_back();
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "Block" + out;
  return out;
}

class StructWriter {
 public:
  StructWriter(TracedModel& m, std::span<const EdgePort> inputs, const ModuleOptions& o,
               ModuleSource& out)
      : m_(m), tree_(m), o_(o), out_(out) {
    for (const EdgePort& p : inputs) inputs_.push_back(p.name);
    taken_ = {o.name};
  }

  void write() {
    std::map<Unit*, int> height;
    int top = 0;
    const std::vector<Unit*> all = tree_.inner_units();
    for (Unit* u : all) {
      int h = 0;
      for (const auto& c : u->children)
        if (c->kind != Unit::Kind::layer) h = std::max(h, height[c.get()] + 1);
      top = std::max(top, height[u] = h);
    }
    for (Unit* u : all)
      for (const auto& c : u->children)
        if (c->kind == Unit::Kind::layer) name_layer(*c);
    for (int h = 0; h <= top; ++h) {
      std::vector<Unit*> structs;
      for (Unit* u : all)
        if (height[u] == h && u->kind == Unit::Kind::sequence) name_sequence(*u);
      for (Unit* u : all)
        if (height[u] == h && u->kind == Unit::Kind::structure && !u->is_root())
          structs.push_back(u);
      write_all(structs);
    }
    write_all({&tree_.root()});
    out_.header = head() + text_ + fmt::format("\n}}  // namespace {}\n", o_.name_space);
    save_weights(tree_.root());
  }

 private:
  std::string head() const {
    std::string s = fmt::format(
        "// {} as a module of Tandem.\n// Written by `tandem compile --target cpp`; edit it as you "
        "like.\n//\n//   {}::{} net;\n//   weights::load_into(net, load(\"{}\"));\n//   "
        "net.eval();\n//   ",
        o_.model.empty() ? "A model" : o_.model, o_.name_space, o_.name, o_.weights);
    std::string arguments;
    for (const std::string& n : inputs_) arguments += (arguments.empty() ? "" : ", ") + n;
    const bool simple = inputs_.size() == 1 && m_.outputs.size() == 1;
    s += simple ? fmt::format("Tensor y = net({});\n", arguments)
                : fmt::format("{} y = net.forward({});\n",
                              m_.outputs.size() == 1 ? "Tensor" : "Tensors", arguments);
    s += "#pragma once\n\n";
    for (const std::string& header : headers_called(text_)) s += "#include \"" + header + "\"\n";
    return s + fmt::format("\nnamespace {} {{\nusing namespace tandem;\n", o_.name_space);
  }

  void name_layer(Unit& u) {
    const Layer& l = m_.layers[static_cast<size_t>(u.layer)];
    u.type = l.type;
    u.arguments = l.arguments;
    ++out_.layers;
  }

  // Layers in sequence; equal ones in a vector.
  void name_sequence(Unit& u) {
    const Unit& first = *u.children[0];
    bool equal = u.children.size() >= 3 && u.parent->kind == Unit::Kind::structure &&
                 first.kind == Unit::Kind::structure;
    int64_t next = 0;
    for (const auto& c : u.children)
      equal = equal && c->type == first.type && std::stoll(c->name) == next++ &&
              plain_text(c->arguments) == plain_text(first.arguments);
    if (equal) {
      u.kind = Unit::Kind::repeated;
      u.type = fmt::format("std::vector<{}>", first.type);
      u.arguments =
          text_of(fmt::format("nn::repeat({}, [\2] {{ return {}(", u.children.size(), first.type),
                  first.arguments, "); })");
      return;
    }
    u.type = "nn::Sequential";
    next = 0;
    Text t;
    const auto add = [&](const Text& one) {
      if (!t.empty()) append(t, ", ");
      append(t, one);
    };
    for (const auto& c : u.children) {
      for (; next < std::stoll(c->name); ++next) add(words("nn::Identity()"));
      ++next;
      add(text_of(c->type, "(", c->arguments, ")"));
    }
    // One of its own type would be copied.
    if (next == 1 && first.type == u.type) add(words("nn::Identity()"));
    u.arguments = t;
  }

  Instance instance_of(Unit& u) {
    Instance i{
        &u, {}, write_body(m_, tree_, u, u.is_root() ? inputs_ : std::vector<std::string>())};
    for (const int w : u.weights) {
      const Weight& held = m_.weights[static_cast<size_t>(w)];
      const bool param = held.trainable && is_floating(held.value.dtype());
      Text t = words("zeros(");
      append(t, held.value.dim() == 0   ? words("{}")
                : held.value.dim() == 1 ? text_of("{", number(held.value.size(0), "size"), "}")
                                        : shape_text(held.value.shape()));
      if (held.value.dtype() != DType::f32) append(t, ", " + dtype_text(held.value.dtype()));
      append(t, ")");
      i.members.push_back({param ? "Param" : "Buffer", tree_.holder(w).second, t});
    }
    for (const auto& c : u.children) i.members.push_back({c->type, c->name, c->arguments});
    return i;
  }
  static Text shape_text(const Shape& s) {
    Text t = words("{");
    for (int d = 0; d < s.rank(); ++d) {
      if (d) append(t, ", ");
      append(t, number(s[d].value(), "size"));
    }
    append(t, "}");
    return t;
  }

  void write_all(const std::vector<Unit*>& units) {
    std::vector<std::string> order;
    std::map<std::string, std::vector<Instance>> groups;
    for (Unit* u : units) {
      Instance i = instance_of(*u);
      const std::string skeleton = known_type(*u) + "\n" + walk(i, [](const Piece&) {});
      if (!groups.contains(skeleton)) order.push_back(skeleton);
      groups[skeleton].push_back(std::move(i));
    }
    for (const std::string& s : order) write_group(groups[s]);
  }
  std::string known_type(const Unit& u) const {
    const auto at = m_.types.find(u.path);
    return at == m_.types.end() || at->second == "Sequential" ? "" : class_name(at->second);
  }
  // The name that the source's class has, or one made of the member's.
  std::string type_of(const Unit& u) const {
    if (u.is_root()) return o_.name;
    if (const std::string known = known_type(u); !known.empty()) return known;
    const Unit* named = &u;
    while (named->parent && is_index(named->name)) named = named->parent;
    return class_name(named->name) + (named != &u ? "Block" : "");
  }

  void write_group(std::vector<Instance>& group) {
    std::vector<std::vector<std::string>> values(group.size());
    std::vector<std::string> hints;
    for (size_t k = 0; k < group.size(); ++k)
      walk(group[k], [&](const Piece& p) {
        values[k].push_back(p.words);
        if (k == 0) hints.push_back(p.hint);
      });
    size_t in_members = 0;
    for (const Member& m : group[0].members) walk(m.arguments, [&](const Piece&) { ++in_members; });

    std::string name = type_of(*group[0].unit);
    if (!group[0].unit->is_root())
      for (int n = 2; !taken_.insert(name).second; ++n)
        name = fmt::format("{}{}", type_of(*group[0].unit), n);
    // Columns of numbers that differ become parameters, equal columns the same one.
    std::vector<std::string> filled(hints.size()), parameters, kept;
    std::map<std::vector<std::string>, std::string> by_column;
    std::set<std::string> names;
    for (const Member& m : group[0].members) names.insert(m.name);
    names.insert(group[0].body.parameters.begin(), group[0].body.parameters.end());
    std::vector<size_t> source;  // of each parameter
    for (size_t h = 0; h < hints.size(); ++h) {
      std::vector<std::string> column;
      for (const auto& v : values) column.push_back(v[h]);
      if (std::all_of(column.begin(), column.end(),
                      [&](const std::string& v) { return v == column[0]; })) {
        filled[h] = column[0];
        continue;
      }
      std::string& p = by_column[column];
      if (p.empty()) {
        p = hints[h];
        for (int n = 2; !names.insert(p).second; ++n) p = fmt::format("{}{}", hints[h], n);
        parameters.push_back(p);
        source.push_back(h);
      }
      filled[h] = p;
      if (h >= in_members && std::find(kept.begin(), kept.end(), p) == kept.end())
        kept.push_back(p);
    }
    for (size_t k = 0; k < group.size(); ++k) {
      Unit& u = *group[k].unit;
      u.type = name;
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (i) append(u.arguments, ", ");
        append(u.arguments, Text{{values[k][source[i]], parameters[i]}});
      }
    }
    print(group[0], name, filled, parameters, kept);
    out_.calls += group[0].body.calls;
    ++out_.classes;
  }

  static std::string captured(std::string s, const char* by) {
    replace_all(s, "\2", by);
    return s;
  }

  void print(const Instance& i, const std::string& name, const std::vector<std::string>& filled,
             const std::vector<std::string>& parameters, const std::vector<std::string>& kept) {
    Filled fill(filled);
    std::string members, registered;
    std::vector<std::string> initial;
    const bool open = !parameters.empty();
    for (const std::string& k : kept) initial.push_back(fmt::format("{}({})", k, k));
    for (const Member& m : i.members) {
      const std::string arguments = captured(fill(m.arguments), open ? "=" : "");
      const bool vector = m.type.starts_with("std::vector");
      if (open) initial.push_back(fmt::format("{}({})", m.name, arguments));
      const std::string braces = arguments.empty() && !open ? ""
                                 : vector                   ? " = " + arguments
                                                            : "{" + arguments + "}";
      members += wrapped(fmt::format("{} {}{};", m.type, m.name, open ? "" : braces), 2);
      registered += (registered.empty() ? "" : ", ") + m.name;
    }
    std::string numbers;
    for (const std::string& k : kept) numbers += (numbers.empty() ? "" : ", ") + k;
    if (!numbers.empty()) members = "  int64_t " + numbers + ";\n" + members;
    const std::string body = registered.empty() ? "this->register_members(this, \"\");"
                                                : fmt::format("TD_REGISTER({});", registered);
    text_ += fmt::format("\nstruct {} : nn::Module {{\n{}{}", name, members,
                         members.empty() ? "" : "\n");
    if (open) {
      std::string list;
      for (const std::string& p : parameters)
        list += (list.empty() ? "int64_t " : ", int64_t ") + p;
      text_ += wrapped(
          fmt::format("{}{}({})", parameters.size() == 1 ? "explicit " : "", name, list), 2);
      for (size_t k = 0; k < initial.size(); ++k)
        text_ += wrapped((k ? "" : ": ") + initial[k] + (k + 1 < initial.size() ? "," : " {"),
                         k ? 8 : 6);
      text_ += wrapped(body, 4) + "  }\n";
    } else if (name.size() + body.size() + 9 < kColumns) {
      text_ += fmt::format("  {}() {{ {} }}\n", name, body);
    } else {
      text_ += fmt::format("  {}() {{\n", name) + wrapped(body, 4) + "  }\n";
    }
    std::string list;
    for (const std::string& p : i.body.parameters)
      list += (list.empty() ? "Tensor " : ", Tensor ") + p;
    const bool one = i.unit->out.size() == 1;
    text_ += fmt::format("  {} forward({}) {{\n", one ? "Tensor" : "std::vector<Tensor>", list);
    for (const Text& line : i.body.lines) text_ += wrapped(fill(line), 4);
    text_ += "  }\n};\n";
  }

  void save_weights(const Unit& u) {
    for (const int w : u.weights) {
      const auto [holder, name] = tree_.holder(w);
      out_.weights[u.key(name)] = m_.weights[static_cast<size_t>(w)].value;
    }
    if (u.layer >= 0)
      for (const auto& [name, t] : m_.layers[static_cast<size_t>(u.layer)].weights)
        out_.weights[u.key(name)] = t;
    for (const auto& c : u.children) save_weights(*c);
  }

  TracedModel& m_;
  UnitTree tree_;
  const ModuleOptions& o_;
  ModuleSource& out_;
  std::vector<std::string> inputs_;
  std::string text_;
  std::set<std::string> taken_;
};

void check_forms(const TracedModel& m) {
  std::map<std::string, int> without;
  for (const ModuleStep& s : m.steps) {
    if (!s.node) continue;
    const CallScope scope{m, [](ValueId) { return CallText{words("x")}; },
                          [](Dim) { return std::string("n"); }};
    if (!call_text(OpCall(scope, s))) ++without[s.node->op->name];
  }
  std::string all;
  for (const auto& [row, n] : without)
    all += fmt::format("{}{} x {}", all.empty() ? "" : ", ", n, row);
  TD_CHECK(all.empty(), Unsupported, "these ops have no C++ form: {}", all);
}

}  // namespace

void write_structs(TracedModel& m, std::span<const EdgePort> inputs, const ModuleOptions& options,
                   ModuleSource& out) {
  check_forms(m);
  StructWriter(m, inputs, options, out).write();
}

ModuleSource write_module(EdgeForward forward, std::span<const EdgePort> inputs,
                          const ModuleOptions& options) {
  for (const std::string& name : {options.name, options.name_space})
    TD_CHECK(identifier(name) == name, Value,
             "'{}' is not a name in C++\nGive letters, digits and _.", name);
  TracedModel m = trace_model(forward, inputs, options);
  move_permutes(m);
  find_layers(m);
  ModuleSource out;
  write_structs(m, inputs, options, out);
  return out;
}

}  // namespace tandem::edge
