// SPDX-License-Identifier: Apache-2.0
// Classify and Regress of tensorflow.serving.PredictionService.
// https://github.com/tensorflow/serving/blob/master/tensorflow_serving/apis/classification.proto
#include "tandem/serve/grpc/tensorflow_internal.h"
#include "tandem/serve/protocol/examples_internal.h"

namespace tandem::serve {
namespace {

// A tf.train.Feature: one of three lists.
Feature read_feature(io::ProtoReader& entry) {
  Feature out{.kind = Feature::Kind::bytes};
  for_fields_of(entry, [&](io::ProtoReader& kind) {
    const uint32_t field = kind.field();
    if (field < 1 || field > 3) return;
    out = {.kind = field == 1   ? Feature::Kind::bytes
                   : field == 2 ? Feature::Kind::floats
                                : Feature::Kind::ints};
    for_fields_of(kind, [&](io::ProtoReader& list) {
      if (list.field() != 1) return;
      if (field == 2) list.append(out.floats);
      if (field == 3) list.append(out.ints);
    });
  });
  return out;
}

// A tf.train.Example: features by name.
Example read_example_proto(io::ProtoReader& list) {
  Example out;
  for_fields_of(list, [&](io::ProtoReader& example) {
    if (example.field() != 1) return;
    for_fields_of(example, [&](io::ProtoReader& features) {
      if (features.field() != 1) return;
      std::string name;
      Feature value;
      for_fields_of(features, [&](io::ProtoReader& entry) {
        if (entry.field() == 1) name = entry.text();
        if (entry.field() == 2) value = read_feature(entry);
      });
      out[name] = std::move(value);
    });
  });
  return out;
}

// An Input: an ExampleList, or one with a context whose features all examples have.
std::vector<Example> read_input_proto(io::ProtoReader& request) {
  std::vector<Example> out;
  Example context;
  for_fields_of(request, [&](io::ProtoReader& kind) {
    if (kind.field() != 1 && kind.field() != 2) return;
    for_fields_of(kind, [&](io::ProtoReader& list) {
      if (list.field() == 1) out.push_back(read_example_proto(list));
      if (list.field() == 2) context = read_example_proto(list);
      if (out.size() > kMostExamples) refuse(400, "there are too many examples");
    });
  });
  for (Example& e : out) e.insert(context.begin(), context.end());
  return out;
}

io::ProtoWriter classification_result(const ClassScores& c) {
  io::ProtoWriter out;
  for (int64_t n = 0; n < c.scores.size(0); ++n) {
    const std::vector<float> row = c.scores.select(0, n).to_vector<float>();
    io::ProtoWriter classes;
    for (size_t k = 0; k < row.size(); ++k) {
      io::ProtoWriter one;
      one.add_bytes(1, c.labels[k]);
      one.add_float(2, row[k]);
      classes.add_message(1, one);
    }
    out.add_message(1, classes);
  }
  return out;
}

io::ProtoWriter regression_result(const Tensor& values) {
  io::ProtoWriter out;
  for (const float v : values.to_vector<float>()) {
    io::ProtoWriter one;
    one.add_float(1, v);
    out.add_message(1, one);
  }
  return out;
}

void answer_examples(const GrpcCall& call, std::string_view message, bool regress) {
  ModelSpec spec;
  std::vector<Example> examples;
  for_fields(message, regress ? "RegressionRequest" : "ClassificationRequest",
             [&](io::ProtoReader& r) {
               if (r.field() == 1) spec = read_spec(r);
               if (r.field() == 2) examples = read_input_proto(r);
             });
  const ModelVersionPtr v = picked_version(call.server, spec.name, spec.version);
  const auto n = static_cast<int64_t>(examples.size());
  run_inputs(call.exchange, v, tensors_of_examples(examples, v->model->inputs()), call.timeout,
             [call, v = v.get(), n, regress](const JobResult& r) {
               if (r.status != 200) return call.fail(r.status, r.error);
               try {
                 io::ProtoWriter out = new_message();
                 out.add_message(1, regress ? regression_result(values_of(*v, r.outputs, n))
                                            : classification_result(classes_of(*v, r.outputs, n)));
                 out.add_message(2, spec_of(*v));
                 call.answer(std::move(out), {{"tandem-timing", timing_text(r)}});
               } catch (...) {
                 call.fail(std::current_exception());
               }
             });
}

}  // namespace

void classify_examples(const GrpcCall& call, std::string_view message) {
  answer_examples(call, message, false);
}
void regress_examples(const GrpcCall& call, std::string_view message) {
  answer_examples(call, message, true);
}

}  // namespace tandem::serve
