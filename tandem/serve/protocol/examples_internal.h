// SPDX-License-Identifier: Apache-2.0
// classify and regress of TensorFlow Serving: examples (tf.Example) whose features are the model's
// inputs by name, and outputs as classes with scores or as one number for each example.
// https://github.com/tensorflow/serving/blob/master/tensorflow_serving/apis/input.proto
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/server_internal.h"

namespace tandem::serve {

/// A feature of an example: JSON, or one of the lists of a tf.train.Feature.
struct Feature {
  enum class Kind : uint8_t { json, bytes, floats, ints };
  Kind kind = Kind::json;
  std::string_view json = {};
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
};
using Example = std::map<std::string, Feature, std::less<>>;

/// What a request asks about: its examples, and the features that all of them have which have none
/// of that name themselves.
struct Examples {
  std::vector<Example> rows;
  Example context;
};
constexpr size_t kMostExamples = 65536;

/// The model's inputs, one row for each example; features that are no inputs are passed over.
/// `left`: bytes that the inputs may have, from which theirs are taken. Throws Refusal worded as
/// TensorFlow's parser of examples does.
std::vector<Tensor> tensors_of_examples(const Examples& examples,
                                        const std::vector<ModelPort>& ports, size_t& left);

/// Classes in the model's order.
struct ClassScores {
  std::vector<std::string> labels;
  Tensor scores;  ///< f32 [n, classes]
};
/// Of a run its probabilities, of any other model the output's own numbers. Throws Refusal for
/// outputs that are no scores of `n` examples.
ClassScores classes_of(const ModelVersion& v, const std::vector<Tensor>& outputs, int64_t n);
/// f32 [n].
Tensor values_of(const ModelVersion& v, const std::vector<Tensor>& outputs, int64_t n);

/// The body of a call of classify or regress by REST, answered as TensorFlow Serving prints it.
void classify_tensorflow(Call& call, const ModelVersionPtr& v, bool regress);

}  // namespace tandem::serve
