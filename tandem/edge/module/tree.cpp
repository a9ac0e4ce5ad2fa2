// SPDX-License-Identifier: Apache-2.0
// From the paths of layers and ops to a tree of modules. A module becomes a struct if its ops stand
// together in the program and give one value; numbered ones that are called in turn become an
// nn::Sequential. Any other is dissolved: its members become those of its parent.
#include "tandem/edge/module/tree_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "tandem/edge/text_internal.h"

namespace tandem::edge {

bool is_index(const std::string& s) {
  return !s.empty() &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::string member_name(const std::string& s) {
  static const std::set<std::string> taken = {
      "alignas", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "compl",
      "concept", "const", "constexpr", "continue", "decltype", "default", "delete", "do", "double",
      "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto",
      "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr",
      "operator", "or", "private", "protected", "public", "register", "requires", "return", "short",
      "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try",
      "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while",
      "xor", "main",
      // of nn::Module, and what forward() names
      "forward", "train", "eval", "to", "type", "path", "state", "scoped", "summary", "buffers",
      "parameters", "nn", "std", "tandem", "Tensor", "Param", "Buffer", "Dim", "DType", "x"};
  std::string name = identifier(s);
  while (name.size() > 1 && name[0] == '_' && name[1] == '_') name.erase(0, 1);
  if (name[0] == '_')
    name = "m" + name.substr(
                     name.size() > 1 && std::isdigit(static_cast<unsigned char>(name[1])) ? 1 : 0);
  for (size_t at; (at = name.find("__")) != name.npos;) name.erase(at, 1);
  return taken.contains(name) ? name + "_" : name;
}

std::string plain_text(const Text& t) {
  std::string s;
  for (const Piece& p : t) s += p.words;
  return s;
}

std::set<std::string> functions_of(const TracedModel& m, const ModuleStep& s) {
  const CallScope scope{m, [](ValueId) { return CallText{words("x")}; },
                        [](Dim) { return std::string("n"); }};
  std::set<std::string> out;
  const std::optional<CallText> t = call_text(OpCall(scope, s));
  if (!t) return out;
  const std::string all = plain_text(t->text);
  std::string name;
  for (const char c : all) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      name += c;
      continue;
    }
    if (c == '(' && !name.empty()) out.insert(name);
    name.clear();
  }
  return out;
}

UnitTree::UnitTree(TracedModel& m) : m_(m), root_(std::make_unique<Unit>()) {
  infer_paths();
  build();
  for (size_t i = 0; i < m.steps.size(); ++i) {
    for (const ModuleStep& s = m.steps[i]; const ValueId v : s.out) maker_[v] = i;
    std::set<ValueId> read;
    for (const StepInput& x : m.steps[i].in)
      if (x.value != kNoValue && read.insert(x.value).second) readers_[x.value].push_back(i);
  }
  find_plain_layers(*root_);
  hold_weights();
  collect(*root_);
  settle(*root_);
  find_ports(*root_);
  name_members(*root_);
}

const std::vector<size_t>& UnitTree::readers(ValueId v) const {
  static const std::vector<size_t> none;
  const auto at = readers_.find(v);
  return at == readers_.end() ? none : at->second;
}

namespace {

std::string common_path(const std::string& a, const std::string& b) {
  std::string out = a;
  while (!is_below(b, out)) out = parent_path(out);
  return out;
}

}  // namespace

// Ops that know no module (of files, and of models whose modules are not called as such) lie in the
// one that the layers around them share; elementwise ones in that which made what they read, too.
void UnitTree::infer_paths() {
  int64_t without = 0;  // ops that know no module, less those that do
  for (const ModuleStep& s : m_.steps)
    if (s.node) without += s.path.empty() ? 1 : -1;
  if (without <= 0) return;
  std::set<std::string> lists;  // whose members are numbered
  for (const Layer& l : m_.layers)
    for (std::string p = l.path; !p.empty(); p = parent_path(p))
      if (is_index(last_part(p))) lists.insert(parent_path(p));
  std::vector<std::string> next(m_.steps.size() + 1);
  for (size_t i = m_.steps.size(); i-- > 0;)
    next[i] = m_.steps[i].layer >= 0 ? m_.steps[i].path : next[i + 1];
  std::map<ValueId, std::string> made_in;
  std::string before;
  for (size_t i = 0; i < m_.steps.size(); ++i) {
    ModuleStep& s = m_.steps[i];
    if (s.node && s.path.empty()) {
      s.path = common_path(before, next[i]);
      if (s.node->op->family == Family::pointwise) {
        std::string of_inputs = before;
        for (const ValueId v : computed_inputs(m_, s))
          of_inputs = common_path(of_inputs, made_in[v]);
        if (of_inputs.size() > s.path.size()) s.path = of_inputs;
      }
      while (lists.contains(s.path) && !s.path.empty()) s.path = parent_path(s.path);
    }
    before = s.path;
    for (const ValueId v : s.out) made_in[v] = s.path;
  }
}

Unit& UnitTree::at(const std::string& path) {
  if (path.empty()) return *root_;
  if (const auto found = by_path_.find(path); found != by_path_.end()) return *found->second;
  Unit& parent = at(parent_path(path));
  parent.children.push_back(std::make_unique<Unit>());
  Unit& u = *parent.children.back();
  u.path = path;
  u.name = last_part(path);
  u.parent = &parent;
  return *(by_path_[path] = &u);
}

void UnitTree::build() {
  for (size_t i = 0; i < m_.steps.size(); ++i) {
    const ModuleStep& s = m_.steps[i];
    Unit& u = at(s.layer >= 0 ? m_.layers[static_cast<size_t>(s.layer)].path : s.path);
    if (s.layer >= 0) {
      u.layer = s.layer;
      u.kind = Unit::Kind::layer;
    }
    of_step_[i] = &u;
    u.own.push_back(i);
  }
}

// Scopes of one op that nn has a layer for.
void UnitTree::find_plain_layers(Unit& u) {
  for (const auto& c : u.children) find_plain_layers(*c);
  if (u.is_root() || u.layer >= 0 || !u.children.empty() || u.own.empty()) return;
  std::optional<Layer> layer;
  for (const size_t i : u.own) {
    std::optional<Layer> one = plain_layer(m_, m_.steps[i]);
    if (!one || computed_inputs(m_, m_.steps[i]).size() != 1) return;
    if (layer &&
        (layer->type != one->type || plain_text(layer->arguments) != plain_text(one->arguments)))
      return;
    layer = std::move(one);
  }
  layer->path = u.path;
  u.layer = static_cast<int>(m_.layers.size());
  u.kind = Unit::Kind::layer;
  for (const size_t i : u.own) {
    ModuleStep& s = m_.steps[i];
    const std::vector<ValueId> in = computed_inputs(m_, s);
    s.node = nullptr;
    s.layer = u.layer;
    s.in = {{in[0]}};
  }
  m_.layers.push_back(std::move(*layer));
}

// Weights of layers are theirs; any other that an op reads is a member of the module of its path.
void UnitTree::hold_weights() {
  for (size_t w = 0; w < m_.weights.size(); ++w)
    for (const auto& [path, u] : by_path_) {
      if (u->layer < 0) continue;
      for (const auto& [name, t] : m_.layers[static_cast<size_t>(u->layer)].weights)
        if (t.impl()->data == m_.weights[w].value.impl()->data &&
            t.shape() == m_.weights[w].value.shape())
          holder_[static_cast<int>(w)] = {u, name};
    }
  int unnamed = 0;
  for (const ModuleStep& s : m_.steps)
    for (const StepInput& x : s.in) {
      if (x.value == kNoValue) continue;
      const int w = m_.values[static_cast<size_t>(x.value)].weight;
      if (w < 0 || holder_.contains(w)) continue;
      const std::string& path = m_.weights[static_cast<size_t>(w)].path;
      Unit* u = root_.get();
      std::string name = path;
      if (!path.empty()) {
        u = &at(parent_path(path));
        name = last_part(path);
        if (u->layer >= 0) u = root_.get(), name = path;
      }
      if (name.empty()) name = fmt::format("constant{}", ++unnamed);
      u->weights.push_back(w);
      holder_[w] = {u, name};
    }
}

std::pair<const Unit*, std::string> UnitTree::holder(int w) const {
  const auto at = holder_.find(w);
  TD_ASSERT(at != holder_.end());
  return {at->second.first, at->second.second};
}

void UnitTree::collect(Unit& u) {
  u.steps = u.own;
  for (const auto& c : u.children) {
    collect(*c);
    u.steps.insert(u.steps.end(), c->steps.begin(), c->steps.end());
  }
  std::sort(u.steps.begin(), u.steps.end());
}

// What a call of u reads from outside, computed or held there, and what is read outside of it.
void UnitTree::find_ports(Unit& u) {
  u.in.clear();
  u.out.clear();
  const std::set<size_t> inside(u.steps.begin(), u.steps.end());
  const auto below = [&](const Unit* h) {
    for (; h; h = h->parent)
      if (h == &u) return true;
    return false;
  };
  for (const size_t i : u.steps) {
    const ModuleStep& s = m_.steps[i];
    if (s.layer < 0 || s.in.size() > 0)
      for (const StepInput& x : s.in) {
        if (x.value == kNoValue || std::find(u.in.begin(), u.in.end(), x.value) != u.in.end())
          continue;
        const int w = m_.values[static_cast<size_t>(x.value)].weight;
        const bool outside =
            w >= 0 ? !below(holder_.at(w).first)
                   : !maker_.contains(x.value) || !inside.contains(maker_.at(x.value));
        if (outside) u.in.push_back(x.value);
      }
    for (const ValueId v : s.out) {
      const bool last = std::find(m_.outputs.begin(), m_.outputs.end(), v) != m_.outputs.end();
      const auto& r = readers(v);
      if (last || std::any_of(r.begin(), r.end(), [&](size_t k) { return !inside.contains(k); }))
        u.out.push_back(v);
    }
  }
  if (u.is_root()) {
    u.in = m_.inputs;
    u.out = m_.outputs;
  }
}

bool UnitTree::is_callable(Unit& u) {
  if (u.steps.empty() || u.steps.back() - u.steps.front() + 1 != u.steps.size()) return false;
  find_ports(u);
  return u.out.size() == 1 && !u.in.empty();
}

// Numbered members, each called once with what the one before it gave.
bool UnitTree::is_chain(const Unit& u) const {
  if (!u.own.empty() || !u.weights.empty() || u.children.empty() || u.in.size() != 1) return false;
  ValueId x = u.in[0];
  int64_t last = -1;
  for (const auto& c : u.children) {
    if (!is_index(c->name) || std::stoll(c->name) <= last || std::stoll(c->name) > last + 8)
      return false;
    last = std::stoll(c->name);
    if (c->kind == Unit::Kind::layer) {
      const ModuleStep& s = m_.steps[c->own[0]];
      if (c->own.size() != 1 || s.in.size() != 1 || !s.result.empty() || s.in[0].value != x)
        return false;
      x = s.out[0];
    } else {
      if (c->in.size() != 1 || c->in[0] != x) return false;
      x = c->out[0];
    }
  }
  return u.out.size() == 1 && u.out[0] == x;
}

void UnitTree::dissolve(Unit& u) {
  Unit& p = *u.parent;
  const size_t place =
      static_cast<size_t>(std::find_if(p.children.begin(), p.children.end(),
                                       [&](const auto& c) { return c.get() == &u; }) -
                          p.children.begin());
  std::unique_ptr<Unit> gone = std::move(p.children[place]);
  p.children.erase(p.children.begin() + static_cast<ptrdiff_t>(place));
  size_t at = place;
  for (auto& c : gone->children) {
    c->name = gone->name + "_" + c->name;
    c->parent = &p;
    p.children.insert(p.children.begin() + static_cast<ptrdiff_t>(at++), std::move(c));
  }
  for (const size_t i : gone->own) of_step_[i] = &p;
  p.own.insert(p.own.end(), gone->own.begin(), gone->own.end());
  std::sort(p.own.begin(), p.own.end());
  for (const int w : gone->weights) {
    p.weights.push_back(w);
    holder_[w] = {&p, gone->name + "_" + holder_[w].second};
  }
}

void UnitTree::settle(Unit& u) {
  std::vector<Unit*> children;
  for (const auto& c : u.children) children.push_back(c.get());
  for (Unit* c : children)
    if (c->kind != Unit::Kind::layer) settle(*c);
  if (u.is_root()) return;
  const bool callable = is_callable(u);
  if (callable && is_chain(u)) {
    u.kind = Unit::Kind::sequence;
    return;
  }
  const bool numbered = std::any_of(u.children.begin(), u.children.end(),
                                    [](const auto& c) { return is_index(c->name); });
  if (!callable || numbered) dissolve(u);
}

void UnitTree::name_members(Unit& u) {
  std::set<std::string> taken;
  for (const size_t i : u.own)
    if (m_.steps[i].node) taken.merge(functions_of(m_, m_.steps[i]));
  const auto unique = [&](std::string name) {
    name = member_name(name);
    while (!taken.insert(name).second) name += "_";
    return name;
  };
  for (const int w : u.weights) holder_[w].second = unique(holder_[w].second);
  for (const auto& c : u.children) {
    if (u.kind != Unit::Kind::sequence) c->name = unique(c->name);
    if (c->kind == Unit::Kind::layer) continue;
    find_ports(*c);
    name_members(*c);
  }
}

std::vector<Unit*> UnitTree::inner_units() const {
  std::vector<Unit*> out;
  const std::function<void(Unit&)> visit = [&](Unit& u) {
    for (const auto& c : u.children)
      if (c->kind != Unit::Kind::layer) visit(*c);
    out.push_back(&u);
  };
  visit(*root_);
  return out;
}

}  // namespace tandem::edge
