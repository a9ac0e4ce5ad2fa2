// SPDX-License-Identifier: Apache-2.0
// Classify, Regress and MultiInference of tensorflow.serving.PredictionService.
// https://github.com/tensorflow/serving/blob/master/tensorflow_serving/apis/classification.proto,
// inference.proto
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

// An Input: an ExampleList, or one with a context.
Examples read_input_proto(io::ProtoReader& request) {
  Examples out;
  for_fields_of(request, [&](io::ProtoReader& kind) {
    if (kind.field() != 1 && kind.field() != 2) return;
    for_fields_of(kind, [&](io::ProtoReader& list) {
      if (list.field() == 1) out.rows.push_back(read_example_proto(list));
      if (list.field() == 2) out.context = read_example_proto(list);
      if (out.rows.size() > kMostExamples) refuse(400, "there are too many examples");
    });
  });
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

/// Which model is asked, and about what.
struct ExamplesAsk {
  ModelSpec spec;
  Examples examples;
};

// Runs the model once; `write` makes the answer of its outputs.
void run_examples(
    const GrpcCall& call, const ExamplesAsk& ask,
    std::function<io::ProtoWriter(const ModelVersion&, const std::vector<Tensor>&, int64_t)>
        write) {
  const ModelVersionPtr v = picked_version(call.server, ask.spec.name, ask.spec.version);
  const auto n = static_cast<int64_t>(ask.examples.rows.size());
  const size_t most = call.server.options.http.limits.body_bytes;
  size_t left = most;
  std::vector<Tensor> inputs = tensors_of_examples(ask.examples, v->model->inputs(), left);
  if (!call.exchange->hold(most - left)) refuse_held();
  run_inputs(call.exchange, v, std::move(inputs), {.timeout = call.timeout},
             [call, v = v.get(), n, write = std::move(write)](const JobResult& r) {
               if (r.status != 200) return call.fail(r.status, r.error);
               try {
                 call.answer(write(*v, r.outputs, n), {{kTimingHeader, timing_text(r)}});
               } catch (...) {
                 call.fail(std::current_exception());
               }
             });
}

io::ProtoWriter result_of(bool regress, const ModelVersion& v, const std::vector<Tensor>& outputs,
                          int64_t n) {
  return regress ? regression_result(values_of(v, outputs, n))
                 : classification_result(classes_of(v, outputs, n));
}

void answer_examples(const GrpcCall& call, std::string_view message, bool regress) {
  ExamplesAsk ask;
  for_fields(message, regress ? "RegressionRequest" : "ClassificationRequest",
             [&](io::ProtoReader& r) {
               if (r.field() == 1) ask.spec = read_spec(r);
               if (r.field() == 2) ask.examples = read_input_proto(r);
             });
  run_examples(call, ask,
               [regress](const ModelVersion& v, const std::vector<Tensor>& outputs, int64_t n) {
                 io::ProtoWriter out = new_message();
                 out.add_message(1, result_of(regress, v, outputs, n));
                 out.add_message(2, spec_of(v));
                 return out;
               });
}

/// An InferenceTask.
struct ExampleTask {
  ModelSpec spec;
  bool regress = false;
};

ExampleTask read_task(io::ProtoReader& request) {
  ExampleTask out;
  std::string method;
  for_fields_of(request, [&](io::ProtoReader& r) {
    if (r.field() == 1) out.spec = read_spec(r);
    if (r.field() == 2) method = r.text();
  });
  if (out.spec.name.empty()) refuse(400, "Found ModelSpec with an empty model name.");
  out.regress = method == "tensorflow/serving/regress";
  if (!out.regress && method != "tensorflow/serving/classify")
    refuse(501, "Unsupported signature method_name: {}", one_line(method, 64));
  return out;
}

// All tasks are answered from one run. TensorFlow Serving takes the version of the first and passes
// over those of the others; another one than asked for is not what anybody wants.
void check_together(const std::vector<ExampleTask>& tasks) {
  if (tasks.empty()) refuse(400, "the request has no tasks");
  for (size_t i = 1; i < tasks.size(); ++i) {
    const ModelSpec &a = tasks[0].spec, &b = tasks[i].spec;
    if (a.name != b.name)
      refuse(400, "All ModelSpecs in a MultiInferenceRequest must access the same model name.");
    if (!b.version.empty() && a.version != b.version)
      refuse(400, "the tasks of a request ask for different versions of '{}'",
             one_line(a.name, 128));
    for (size_t k = 0; k < i; ++k)
      if (tasks[k].regress == tasks[i].regress)
        refuse(400, "Duplicate evaluation of signature: serving_default");
  }
}

}  // namespace

void classify_examples(const GrpcCall& call, std::string_view message) {
  answer_examples(call, message, false);
}
void regress_examples(const GrpcCall& call, std::string_view message) {
  answer_examples(call, message, true);
}

void multi_inference(const GrpcCall& call, std::string_view message) {
  ExamplesAsk ask;
  std::vector<ExampleTask> tasks;
  constexpr size_t kMostTasks = 16;
  for_fields(message, "MultiInferenceRequest", [&](io::ProtoReader& r) {
    if (r.field() == 1) tasks.push_back(read_task(r));
    if (r.field() == 2) ask.examples = read_input_proto(r);
    if (tasks.size() > kMostTasks) refuse(400, "there are too many tasks");
  });
  check_together(tasks);
  ask.spec = tasks[0].spec;
  run_examples(call, ask,
               [tasks = std::move(tasks)](const ModelVersion& v, const std::vector<Tensor>& outputs,
                                          int64_t n) {
                 constexpr uint32_t kClasses = 2, kValues = 3;
                 io::ProtoWriter out = new_message();
                 for (const ExampleTask& task : tasks) {
                   io::ProtoWriter result;
                   result.add_message(1, spec_of(v));
                   result.add_message(task.regress ? kValues : kClasses,
                                      result_of(task.regress, v, outputs, n));
                   out.add_message(1, result);
                 }
                 return out;
               });
}

}  // namespace tandem::serve
