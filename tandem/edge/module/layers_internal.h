// SPDX-License-Identifier: Apache-2.0
// What the rules that find layers share: who reads a value, and constructors' arguments as text.
#pragma once

#include "tandem/edge/module/steps_internal.h"

namespace tandem::edge {

/// A list of sizes: one number where all are equal.
Text sizes(const IntList& v, const std::string& hint);
/// A number in C++: 1e-05, 2.0.
std::string real(double v);
void add_options(Text& arguments, std::vector<Option> options);
/// `.dtype = DType::f16`, of layers that are not f32.
Option dtype_option(DType t);

/// The steps of a model, and who reads their values.
class StepGraph {
 public:
  explicit StepGraph(TracedModel& m);
  const Weight* weight(const ModuleStep& s, size_t input) const;
  /// The step that makes it, or nullptr.
  ModuleStep* maker(ValueId v) const;
  const std::vector<ModuleStep*>& readers(ValueId v) const;
  /// The only step that reads it, where it is no output of the model.
  ModuleStep* only_reader(ValueId v) const;
  bool is_op(const ModuleStep* s, const char* row) const;
  template <class A>
  static const A& attrs(const ModuleStep& s) {
    return *static_cast<const A*>(s.node->attrs.get());
  }
  const Spec& spec(ValueId v) const { return m.values[static_cast<size_t>(v)].spec; }

  TracedModel& m;

 private:
  std::map<ValueId, ModuleStep*> maker_;
  std::map<ValueId, std::vector<ModuleStep*>> readers_;
};

/// What a rule has found: the layer, what it reads and gives, and the steps that it replaces.
struct FoundLayer {
  Layer layer;
  std::vector<int> held;  ///< the weights that it takes, in the order of layer.weights
  std::vector<ValueId> in, out;
  std::vector<const ModuleStep*> steps;  ///< the last one's place is the call's
  std::string result = "";
};

/// scope_layers.cpp: layers of several ops that a scope holds: attention, recurrent ones,
/// transposed convolutions, norms of groups. `steps`: all of that scope and below.
std::optional<FoundLayer> layer_of_scope(const StepGraph& g, const std::string& path,
                                         const std::vector<ModuleStep*>& steps);

}  // namespace tandem::edge
