// SPDX-License-Identifier: Apache-2.0
// Calls of functions of keras.ops as nodes. In the file such a call is an operation: a class, its
// settings, and arguments that are values or numbers.
#include <fmt/format.h>

#include "tandem/onnx/tensorflow/keras_operation_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

using io::Json;
using Values = KerasBuilder::Values;

namespace {
bool is_class(const Json* j, const char* name) {
  return j && j->as_object() && io::text_of(j->find("class_name")) == name;
}
}  // namespace

// x[a:b:c, ..., None, i] as TensorFlow's strided slice with its masks.
Values KerasOperation::slices() {
  std::vector<const Json*> entries;
  for (size_t i = 1; i < c.arguments.size(); ++i) {
    const Json* a = c.arguments[i];
    if (!a) lacks("an index that is a value");
    if (const Json::Array* list = a->as_array())
      for (const Json& e : *list) entries.push_back(&e);
    else
      entries.push_back(a);
  }
  std::vector<int64_t> begin, end, step;
  int64_t masks[5] = {};  // begin, end, ellipsis, new axis, shrink axis
  for (size_t i = 0; i < entries.size() && i < 32; ++i) {
    const Json* e = entries[i];
    const auto bit = int64_t{1} << i;
    int64_t from = 0, to = 0, by = 1;
    if (e->as_int()) {
      from = *e->as_int();
      check_onnx_list({from});
      to = from + 1;
      masks[4] |= bit;
    } else if (e->is_null()) {
      masks[3] |= bit;
    } else if (is_class(e, "__ellipsis__")) {
      masks[2] |= bit;
    } else if (is_class(e, "__slice__")) {
      const auto part = [&](const char* key, int64_t& v) {
        const Json* j = keras_member(*e, "config").find(key);
        if (j && j->as_int()) v = *j->as_int();
        return j && j->as_int();
      };
      if (!part("start", from)) masks[0] |= bit;
      if (!part("stop", to)) masks[1] |= bit;
      part("step", by);
    } else {
      lacks("this index");
    }
    begin.push_back(from);
    end.push_back(to);
    step.push_back(by);
  }
  return {tf("StridedSlice", {x(), ints(begin), ints(end), ints(step)},
             {onnx_int("begin_mask", masks[0]), onnx_int("end_mask", masks[1]),
              onnx_int("ellipsis_mask", masks[2]), onnx_int("new_axis_mask", masks[3]),
              onnx_int("shrink_axis_mask", masks[4])})};
}

bool KerasBuilder::has_operation(std::string_view type) { return KerasOperation::find(type); }

// What Keras calls an operation is not a layer: it has no variables and takes no place among them.
// Files of the older layout do not name its module, but a layer's configuration is longer.
bool KerasBuilder::is_operation(const Json& layer) {
  if (const Json* module = layer.find("module"))
    return io::text_of(module).find(".ops") != std::string::npos;
  const std::string type = io::text_of(layer.find("class_name"));
  const Json& config = keras_member(layer, "config");
  return config.as_object() && !config.find("trainable") && has_operation(type);
}

Values KerasBuilder::operation(const KerasCall& c) {
  const KerasOperation::Row* row = KerasOperation::find(c.type);
  if (!row) lacks(c, "this function of keras.ops");
  using Takes = KerasOperation::Takes;
  KerasOperation o{*this, c, {}};
  const auto add_number = [&](const Json& v) {
    if (v.as_int() && row->takes != Takes::floats)
      o.in.push_back(constant("number", full(Shape(), *v.as_int(), DType::i64)));
    else
      o.in.push_back(number(io::number_of(&v)));
  };
  size_t next = 0;
  for (const Json* a : c.arguments) {
    if (!a) {
      o.in.push_back(c.in(next++));
    } else if (a->as_int() || a->as_double()) {
      add_number(*a);
    } else if (row->takes == Takes::lists && a->as_array()) {
      std::vector<int64_t> at;
      for (const Json& v : *a->as_array()) at.push_back(io::whole_of(&v));
      o.in.push_back(numbers(at));
    } else if (row->takes != Takes::indices && !a->is_null()) {
      lacks(c, "an argument that is not a number");
    }
  }
  if (c.arguments.empty()) o.in = c.inputs;
  if (row->function) {
    if (!c.constants.empty())
      lacks(c, fmt::format("a number for the argument '{}'", c.constants[0].first));
    return row->function(o);
  }
  // The names of these ops' arguments ascend in their order: condition, x1, x2.
  std::map<std::string, const Json*> constants(c.constants.begin(), c.constants.end());
  std::map<std::string, std::string> named(c.named.begin(), c.named.end());
  for (const auto& [key, v] : constants) named.emplace(key, "");
  for (const auto& [key, value] : named)
    if (value.empty()) {
      add_number(*constants.at(key));
    } else {
      o.in.push_back(value);
    }
  if (row->key) {
    const double v = c.number(row->key, row->otherwise);
    if (*row->attribute)
      return {node(c, row->op, std::move(o.in), {onnx_float(row->attribute, v)}, row->domain)};
    o.in.push_back(number(v));
  }
  return {node(c, row->op, std::move(o.in), {}, row->domain)};
}

Values KerasBuilder::several(const KerasCall& c, const char* op, Values inputs,
                             OnnxAttributes attributes, size_t n) {
  Values out{node(c, op, std::move(inputs), std::move(attributes))};
  for (size_t i = 1; i < n; ++i) {
    out.push_back(fmt::format("{}:{}", out[0], i));
    used_.insert(out.back());
  }
  model_.graph.nodes.back().outputs = out;
  return out;
}

}  // namespace tandem::onnx
