// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/protocol/examples_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/ops/ops.h"

namespace tandem::serve {
namespace {

// "float" of DT_FLOAT, as TensorFlow's messages have it.
std::string tf_word(DType dtype) {
  std::string out = io::tf_type_of(dtype).proto;
  out = out.substr(out.find('_') + 1);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string tf_shape(const std::vector<int64_t>& sizes) {
  std::string out;
  for (const int64_t n : sizes) out += (out.empty() ? "" : ",") + (n < 0 ? "?" : std::to_string(n));
  return "[" + out + "]";
}
std::string tf_shape(const Tensor& t) { return tf_shape({t.sizes().begin(), t.sizes().end()}); }

// Where something is wrong with an example, as TensorFlow's parser says it.
struct FeatureAt {
  const ModelPort& port;
  size_t index;
  [[noreturn]] void fail(const std::string& why) const {
    refuse(400, "Name: <unknown>, Key: {}, Index: {}.  {}", port.name, index, why);
  }
  [[noreturn]] void other_type(const char* got) const {
    fail(fmt::format("Data types don't match. Data type: {} but expected type: {}", got,
                     tf_word(port.dtype)));
  }
};

Tensor values_of_feature(const Feature& f, const FeatureAt& at) {
  const DType dtype = at.port.dtype;
  const bool fractions = is_floating(dtype);
  switch (f.kind) {
    case Feature::Kind::json: {
      const size_t first = f.json.find_first_not_of(" \t\r\n[");
      const char c = first == std::string_view::npos ? ']' : f.json[first];
      if (c == '"' || c == '{') at.other_type("string");
      return read_array(f.json, dtype, "feature '" + at.port.name + "'", true).reshape({-1});
    }
    case Feature::Kind::bytes:
      at.other_type("string");
    case Feature::Kind::floats:
      if (!fractions) at.other_type("float");
      return tensor(f.floats).to(dtype);
    case Feature::Kind::ints:
      if (fractions) at.other_type("int64");
      return tensor(f.ints).to(dtype);
  }
  at.fail("the feature has no kind");
}

// A row of the port, whose first size is the batch's.
Tensor row_of(const Tensor& values, const FeatureAt& at) {
  std::vector<int64_t> sizes(at.port.shape.begin() + 1, at.port.shape.end());
  const std::vector<int64_t> asked = sizes;
  int64_t known = 1, open = -1, opens = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0) {
      open = static_cast<int64_t>(d);
      ++opens;
    } else {
      known *= sizes[d];
    }
  }
  if (opens == 1 && known > 0 && values.numel() % known == 0)
    sizes[static_cast<size_t>(open)] = values.numel() / known;
  else if (opens > 0 || values.numel() != known)
    at.fail(fmt::format("Number of {} values != expected.  Values size: {} but output shape: {}",
                        is_floating(at.port.dtype) ? "float" : "int64", values.numel(),
                        tf_shape(asked)));
  sizes.insert(sizes.begin(), 1);
  return values.reshape(Shape(sizes));
}

// ---- REST

Example read_example(JsonCursor& json) {
  Example out;
  JsonKeys keys;
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    std::string name(*key);
    out[std::move(name)] = {.json = json.skip(true)};
  }
  return out;
}

Examples read_examples(std::string_view text) {
  Examples out;
  bool given = false;
  JsonKeys keys;
  JsonCursor json(text, "the body");
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    if (*key == "signature_name") {
      check_signature(json.read_string());
    } else if (*key == "context") {
      out.context = read_example(json);
    } else if (*key == "examples") {
      given = true;
      if (json.peek() != '[') refuse(400, "'examples' is not a list of objects with features");
      json.open('[');
      while (json.next_item()) {
        if (json.peek() != '{') refuse(400, "an example is not an object with features");
        out.rows.push_back(read_example(json));
        if (out.rows.size() > kMostExamples) refuse(400, "there are too many examples");
      }
    } else {
      json.skip(true);
    }
  }
  json.finish();
  if (!given) refuse(400, "the body has no 'examples'");
  return out;
}

// As rapidjson's PrettyWriter breaks the lines.
std::string classes_text(const ClassScores& c) {
  std::string out = "{\n    \"results\": [";
  for (int64_t n = 0; n < c.scores.size(0); ++n) {
    out += n ? ", [" : "[";
    const Tensor row = c.scores.select(0, n);
    for (int64_t k = 0; k < row.size(0); ++k) {
      out += k ? ", [" : "[";
      write_text(out, c.labels[static_cast<size_t>(k)]);
      out += ", ";
      write_row(out, row, k, NonFinite::words);
      out += ']';
    }
    out += ']';
  }
  return out + "\n    ]\n}";
}

std::string values_text(const Tensor& values) {
  std::string out = "{\n    \"results\": [";
  for (int64_t n = 0; n < values.size(0); ++n) {
    if (n) out += ", ";
    write_row(out, values, n, NonFinite::words);
  }
  return out + "]\n}";
}

const Tensor& output_named(const ModelVersion& v, const std::vector<Tensor>& outputs,
                           std::string_view name) {
  const std::vector<ModelPort>& ports = v.model->outputs();
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].name == name) return outputs.at(i);
  return outputs.at(0);
}

void check_float(const Tensor& y) {
  if (y.dtype() != DType::f32)
    refuse(400, "Expected output Tensor of DT_FLOAT.  Got: {}", io::tf_type_of(y.dtype()).proto);
}

}  // namespace

std::vector<Tensor> tensors_of_examples(const Examples& examples,
                                        const std::vector<ModelPort>& ports, size_t& left) {
  if (examples.rows.empty()) refuse(400, "Input is empty.");
  std::vector<Tensor> out;
  for (const ModelPort& port : ports) {
    if (port.shape.empty() || port.shape[0] >= 0)
      refuse(400, "input '{}' of shape {} has no rows, and examples are rows", port.name,
             tf_shape(port.shape));
    const auto shared = examples.context.find(port.name);
    Tensor of_context;  // made once for all rows
    std::vector<Tensor> rows;
    for (size_t i = 0; i < examples.rows.size(); ++i) {
      const FeatureAt at{port, i};
      const Example& own = examples.rows[i];
      if (const auto found = own.find(port.name); found != own.end()) {
        rows.push_back(row_of(values_of_feature(found->second, at), at));
      } else if (shared != examples.context.end()) {
        if (!of_context.defined()) of_context = row_of(values_of_feature(shared->second, at), at);
        rows.push_back(of_context);
      } else {
        refuse(400,
               "Name: <unknown>, Feature: {} (data type: {}) is required but could not be found.",
               port.name, tf_word(port.dtype));
      }
      if (rows.back().shape() != rows[0].shape())
        at.fail(fmt::format("Number of values != expected.  Values size: {} but output shape: {}",
                            rows.back().numel(), tf_shape(rows[0])));
      const size_t bytes = static_cast<size_t>(rows.back().numel()) * size_of(port.dtype);
      if (bytes > left) refuse(400, "the examples ask for larger inputs than a body may have");
      left -= bytes;
    }
    out.push_back(rows.size() == 1 ? rows[0] : cat(rows, 0));
  }
  return out;
}

ClassScores classes_of(const ModelVersion& v, const std::vector<Tensor>& outputs, int64_t n) {
  recipe::Predictor& predictor = v.model->predictor();
  const recipe::LoadedModel& model = predictor.model();
  ClassScores out;
  if (model.opened) {
    const recipe::Prediction p = predictor.answer(outputs);
    if (p.kind != recipe::PredictionKind::classes)
      refuse(400,
             "Expected classification signature method_name to be tensorflow/serving/classify. "
             "Was: tensorflow/serving/predict");
    std::vector<float> scores;
    for (std::vector<recipe::ScoredClass> row : p.classes) {
      std::sort(row.begin(), row.end(),
                [](const auto& a, const auto& b) { return a.index < b.index; });
      for (const recipe::ScoredClass& c : row) {
        if (scores.size() < row.size()) out.labels.push_back(c.label);
        scores.push_back(static_cast<float>(c.score));
      }
    }
    out.scores = tensor(scores).reshape({static_cast<int64_t>(p.classes.size()), -1});
  } else {
    out.scores = output_named(v, outputs, "scores");
  }
  check_float(out.scores);
  if (out.scores.dim() != 2)
    refuse(400, "Expected Tensor shape: [batch_size num_classes] but got {}", tf_shape(out.scores));
  if (out.scores.size(0) != n)
    refuse(400, "Input batch size did not match output batch size: {} vs. {}", n,
           out.scores.size(0));
  for (auto k = static_cast<int64_t>(out.labels.size()); k < out.scores.size(1); ++k) {
    const auto at = static_cast<size_t>(k);
    out.labels.push_back(at < model.labels.size() ? model.labels[at] : std::to_string(k));
  }
  return out;
}

Tensor values_of(const ModelVersion& v, const std::vector<Tensor>& outputs, int64_t n) {
  const Tensor& y = output_named(v, outputs, "outputs");
  if (!(y.dim() == 1 || (y.dim() == 2 && y.size(1) == 1)))
    refuse(400,
           "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {}",
           tf_shape(y));
  if (y.size(0) != n)
    refuse(400, "Input batch size did not match output batch size: {} vs. {}", n, y.size(0));
  check_float(y);
  return y.reshape({-1});
}

void classify_tensorflow(Call& call, const ModelVersionPtr& v, bool regress) {
  const Examples examples = read_examples(call.request().body);
  const auto n = static_cast<int64_t>(examples.rows.size());
  const size_t most = call.server.options.http.limits.body_bytes;
  size_t left = most;
  std::vector<Tensor> inputs = tensors_of_examples(examples, v->model->inputs(), left);
  if (!call.exchange->hold(most - left)) refuse_held();
  infer(call, v, std::move(inputs), {}, [v = v.get(), n, regress](const JobResult& r) {
    return HttpResponse{.body = regress ? values_text(values_of(*v, r.outputs, n))
                                        : classes_text(classes_of(*v, r.outputs, n))};
  });
}

}  // namespace tandem::serve
