// SPDX-License-Identifier: Apache-2.0
// A traced model as steps: calls of ops and of layers over numbered values, each in the module that
// made it. graph.cpp reads the trace, layers.cpp finds the layers, tree.cpp the modules, and
// structs.cpp writes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tandem/edge/module.h"
#include "tandem/graph/node.h"

namespace tandem::edge {

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

struct Piece;
/// Text in which numbers stand apart, so that repeated blocks can share it.
using Text = std::vector<Piece>;
/// One of the options `{.stride = 2}`, left out where it has its default.
struct Option {
  std::string name;
  Text value;
  std::string fallback;
};
/// Words, a number that becomes a constructor's parameter `hint` where blocks differ in it, or
/// options in braces after a comma.
struct Piece {
  std::string words;
  std::string hint = {};
  std::vector<Option> options = {};
};
inline Text words(std::string s) { return {{std::move(s)}}; }
inline Text number(int64_t v, std::string hint) { return {{std::to_string(v), std::move(hint)}}; }
void append(Text& t, const Text& more);
inline void append(Text& t, std::string s) { t.push_back({std::move(s)}); }

/// A tensor that the model holds.
struct Weight {
  std::string path;  ///< of its name in the source; "" where it has none
  Tensor value;
  bool trainable = false;
};
struct ModuleValue {
  Spec spec;
  int weight = -1;  ///< which one it is the value of
};
struct Layer {
  std::string path;
  std::string type;  ///< "nn::Conv2d"
  Text arguments;
  std::vector<std::pair<std::string, Tensor>> weights;  ///< by their names in the layer
  bool operator==(const Layer& o) const;
};
struct StepInput {
  ValueId value = kNoValue;  ///< kNoValue: absent, or the number
  bool is_number = false;
  Scalar number = {};
};
struct ModuleStep {
  const Node* node = nullptr;  ///< the op's call
  int layer = -1;              ///< or which layer it calls
  std::string result = "";     ///< of a layer that gives several: "y"
  std::vector<StepInput> in;
  std::vector<ValueId> out;
  std::string path;  ///< of the module that it runs in
};
struct TracedModel {
  Ref<Graph> graph;
  std::vector<ModuleValue> values;
  std::vector<Weight> weights;
  std::vector<Layer> layers;
  std::vector<ModuleStep> steps;
  std::vector<ValueId> inputs, outputs;
  std::map<std::string, std::string> types;  ///< of modules, by path
  std::map<std::string, std::string> arguments;
};

/// What a step reads that is computed: its inputs without weights and numbers.
std::vector<ValueId> computed_inputs(const TracedModel& m, const ModuleStep& s);

/// graph.cpp
TracedModel trace_model(EdgeForward forward, std::span<const EdgePort> inputs,
                        const ModuleOptions& options);
/// permutes.cpp: permutations that undo each other are left out.
void move_permutes(TracedModel& m);
/// layers.cpp: calls of ops over weights become calls of layers.
void find_layers(TracedModel& m);
/// The layer without parameters that does what `s` does.
std::optional<Layer> plain_layer(const TracedModel& m, const ModuleStep& s);
/// tree.cpp and structs.cpp
void write_structs(TracedModel& m, std::span<const EdgePort> inputs, const ModuleOptions& options,
                   ModuleSource& out);

/// "features.0" of "features.0.weight"; "" where there is no point.
std::string parent_path(const std::string& path);
std::string last_part(const std::string& path);
bool is_below(const std::string& path, const std::string& ancestor);

}  // namespace tandem::edge
