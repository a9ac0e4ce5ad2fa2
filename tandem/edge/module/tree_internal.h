// SPDX-License-Identifier: Apache-2.0
// The modules of a traced model as a tree of members: layers, sequences, structs.
#pragma once

#include <memory>

#include "tandem/edge/module/calls_internal.h"

namespace tandem::edge {

/// A module of the source.
struct Unit {
  enum class Kind : uint8_t { layer, sequence, repeated, structure };
  std::string path;  ///< in the source
  std::string name;  ///< of the member
  Unit* parent = nullptr;
  std::vector<std::unique_ptr<Unit>> children = {};  ///< in the order of their first call
  Kind kind = Kind::structure;
  int layer = -1;
  std::vector<size_t> steps = {};  ///< its own and those below, in program order
  std::vector<size_t> own = {};
  std::vector<int> weights = {};  ///< those that are its members
  std::vector<ValueId> in = {};   ///< what a call reads from outside: inputs of forward()
  std::vector<ValueId> out = {};
  // What structs.cpp found: its type and the arguments of its constructor.
  std::string type = "";
  Text arguments = {};

  bool is_root() const { return !parent; }
  /// The name of a member of this one in the state_dict.
  std::string key(const std::string& member) const {
    return is_root() ? member : parent->key(name) + "." + member;
  }
};

class UnitTree {
 public:
  explicit UnitTree(TracedModel& m);
  Unit& root() { return *root_; }
  /// The unit that has a step of its own.
  Unit& unit_of(size_t step) const { return *of_step_.at(step); }
  /// The unit whose member weight w is, and its name there ("fc.weight" of a layer is "weight").
  std::pair<const Unit*, std::string> holder(int w) const;
  /// All but layers, children first.
  std::vector<Unit*> inner_units() const;
  const std::vector<size_t>& readers(ValueId v) const;

 private:
  void infer_paths();
  void build();
  Unit& at(const std::string& path);
  void find_plain_layers(Unit& u);
  void hold_weights();
  void collect(Unit& u);
  void settle(Unit& u);
  bool is_callable(Unit& u);
  bool is_chain(const Unit& u) const;
  void dissolve(Unit& u);
  void find_ports(Unit& u);
  void name_members(Unit& u);

  TracedModel& m_;
  std::unique_ptr<Unit> root_;
  std::map<std::string, Unit*> by_path_;
  std::map<size_t, Unit*> of_step_;
  std::map<ValueId, std::vector<size_t>> readers_;
  std::map<ValueId, size_t> maker_;
  std::map<int, std::pair<Unit*, std::string>> holder_;
};

/// Characters that are none of a name become _; keywords and names of nn::Module get a _ at the
/// end.
std::string member_name(const std::string& s);
bool is_index(const std::string& s);
std::string plain_text(const Text& t);
/// The functions that a call's text names.
std::set<std::string> functions_of(const TracedModel& m, const ModuleStep& s);

/// bodies.cpp: the lines of forward() of a struct, and how its members are called.
struct ForwardBody {
  std::vector<std::string> parameters;  ///< of forward()
  std::vector<Text> lines;
  size_t calls = 0;  ///< of functions
};
ForwardBody write_body(const TracedModel& m, const UnitTree& tree, const Unit& u,
                       std::span<const std::string> input_names);

}  // namespace tandem::edge
