// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/container.h"

namespace tandem::nn {
namespace {

void check_name(const std::string& name) {
  TD_CHECK(!name.empty() && name.find('.') == std::string::npos, Value,
           "a member's name must not be empty or contain a dot, got '{}'", name);
}

template <class List>
auto& at(List& list, int64_t i, const char* type) {
  auto n = static_cast<int64_t>(list.size());
  TD_CHECK(i >= -n && i < n, Index, "{} holds {} entries, index {} is out of range", type, n, i);
  return list[static_cast<size_t>(i < 0 ? i + n : i)];
}

template <class List>
auto* find(List& list, const std::string& name) {
  for (auto& [own, v] : list)
    if (own == name) return &v;
  return static_cast<decltype(&list.front().second)>(nullptr);
}

template <class List>
std::string names_of(const List& list) {
  std::string s;
  for (const auto& [name, v] : list) s += (s.empty() ? "" : ", ") + name;
  return s.empty() ? "nothing" : s;
}

void check_chain(const Module& m) {
  TD_CHECK(m.state().forward, Value,
           "Sequential takes modules with `Tensor forward(Tensor)`, {} has none\nCall it in the "
           "forward of a module of your own.",
           m.type().empty() ? "this one" : m.type());
}

}  // namespace

namespace {
// A list of (name, member) in `self` whose members are registered under those names.
template <class List>
void register_list(Module* self, List& list, detail::VisitFn visit) {
  self->state().members.push_back(
      {"items", reinterpret_cast<char*>(&list) - reinterpret_cast<char*>(self), visit});
}
}  // namespace

void detail::ModuleContainer::register_items() {
  register_list(this, items, [](void* list, const std::string&, MemberVisitor& v) {
    for (auto& [name, m] : *static_cast<decltype(items)*>(list)) v.child(name, m.module());
  });
}

Sequential::Sequential() {
  this->register_members(this, "");
  register_items();
}
Sequential Sequential::named(std::vector<std::pair<std::string, AnyModule>> modules) {
  Sequential s;
  for (auto& [name, m] : modules) {
    check_name(name);
    TD_CHECK(!find(s.items, name), Value, "Sequential: the name '{}' appears twice", name);
    check_chain(m.module());
    s.items.emplace_back(name, std::move(m));
  }
  return s;
}
Sequential& Sequential::append(AnyModule m) {
  check_chain(m.module());
  items.emplace_back(std::to_string(items.size()), std::move(m));
  return *this;
}
Tensor Sequential::forward(Tensor x) {
  for (auto& [name, m] : items) x = m(std::move(x));
  return x;
}
AnyModule& Sequential::operator[](int64_t i) { return at(items, i, "Sequential").second; }

ModuleList::ModuleList() {
  this->register_members(this, "");
  register_items();
}
ModuleList::ModuleList(std::vector<AnyModule> modules) : ModuleList() {
  for (AnyModule& m : modules) append(std::move(m));
}
ModuleList& ModuleList::append(AnyModule m) {
  items.emplace_back(std::to_string(items.size()), std::move(m));
  return *this;
}
AnyModule& ModuleList::operator[](int64_t i) { return at(items, i, "ModuleList").second; }

ModuleDict::ModuleDict() {
  this->register_members(this, "");
  register_items();
}
ModuleDict::ModuleDict(std::vector<std::pair<std::string, AnyModule>> modules) : ModuleDict() {
  for (auto& [name, m] : modules) insert(name, std::move(m));
}
ModuleDict& ModuleDict::insert(const std::string& name, AnyModule m) {
  check_name(name);
  TD_CHECK(!contains(name), Value, "ModuleDict already holds '{}'", name);
  items.emplace_back(name, std::move(m));
  return *this;
}
bool ModuleDict::contains(const std::string& name) const { return find(items, name) != nullptr; }
AnyModule& ModuleDict::operator[](const std::string& name) {
  AnyModule* m = find(items, name);
  TD_CHECK(m, Value, "ModuleDict has no '{}'\nIt holds {}.", name, names_of(items));
  return *m;
}

ParameterList::ParameterList(std::vector<Param> p) : params(std::move(p)) {
  TD_REGISTER(params);
  state().members.back().visit = [](void* list, const std::string&, MemberVisitor& v) {
    size_t i = 0;
    for (Param& q : *static_cast<std::vector<Param>*>(list)) v.param(std::to_string(i++), q);
  };
}
ParameterList& ParameterList::append(Param p) {
  params.push_back(std::move(p));
  return *this;
}
Param& ParameterList::operator[](int64_t i) { return at(params, i, "ParameterList"); }

ParameterDict::ParameterDict(std::vector<std::pair<std::string, Param>> p) {
  for (auto& [name, q] : p) insert(name, q);
  this->register_members(this, "");
  register_list(this, params, [](void* list, const std::string&, MemberVisitor& v) {
    for (auto& [name, q] : *static_cast<decltype(ParameterDict::params)*>(list)) v.param(name, q);
  });
}
ParameterDict& ParameterDict::insert(const std::string& name, Param p) {
  check_name(name);
  TD_CHECK(!find(params, name), Value, "ParameterDict already holds '{}'", name);
  params.emplace_back(name, std::move(p));
  return *this;
}
Param& ParameterDict::operator[](const std::string& name) {
  Param* p = find(params, name);
  TD_CHECK(p, Value, "ParameterDict has no '{}'\nIt holds {}.", name, names_of(params));
  return *p;
}

}  // namespace tandem::nn
