// SPDX-License-Identifier: Apache-2.0
// TensorFlow Serving's REST API: predict in row and column form, status and metadata; examples.cpp
// has classify and regress.
// https://github.com/tensorflow/serving/blob/master/tensorflow/serving/g3doc/api_rest.md
#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/protocol/examples_internal.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

const ModelPort& port_named(const std::vector<ModelPort>& ports, const std::string& name) {
  for (const ModelPort& p : ports)
    if (p.name == name) return p;
  refuse(400, "the model has no input '{}'", one_line(name, 64));
}
size_t place_of(const std::vector<ModelPort>& ports, const std::string& name) {
  return static_cast<size_t>(&port_named(ports, name) - ports.data());
}

Tensor read_port(std::string_view text, const ModelPort& port) {
  if (text.front() == '{')
    refuse(400, "input '{}' takes numbers; text and {{\"b64\"}} have no place in it", port.name);
  return read_array(text, port.dtype, "input '" + port.name + "'", true);
}

// "instances" of a model with several inputs: objects with one row each.
std::vector<Tensor> rows_of_objects(std::string_view text, const std::vector<ModelPort>& ports) {
  std::vector<std::vector<Tensor>> parts(ports.size());
  JsonCursor json(text, "instances");
  json.open('[');
  while (json.next_item()) {
    size_t seen = 0;
    JsonKeys keys;
    json.open('{');
    while (const auto key = json.next_key(&keys)) {
      const size_t at = place_of(ports, std::string(*key));
      parts[at].push_back(read_port(json.skip(true), ports[at]).unsqueeze(0));
      ++seen;
    }
    if (seen != ports.size())
      refuse(400, "an instance has {} of the {} inputs", seen, ports.size());
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (parts[i].empty()) refuse(400, "there are no instances");
    for (const Tensor& p : parts[i])
      if (p.shape() != parts[i][0].shape())
        refuse(400, "the rows of input '{}' differ in shape", ports[i].name);
    out.push_back(cat(parts[i], 0));
  }
  return out;
}

std::vector<Tensor> columns(std::string_view text, const std::vector<ModelPort>& ports) {
  JsonCursor json(text, "inputs");
  if (json.peek() != '{') {
    if (ports.size() != 1)
      refuse(400, "the model has {} inputs: give an object with their names", ports.size());
    return {read_port(text, ports[0])};
  }
  std::vector<Tensor> out(ports.size());
  JsonKeys keys;
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    const size_t at = place_of(ports, std::string(*key));
    out[at] = read_port(json.skip(true), ports[at]);
  }
  for (size_t i = 0; i < ports.size(); ++i)
    if (!out[i].defined()) refuse(400, "input '{}' is missing", ports[i].name);
  return out;
}

std::vector<Tensor> rows(std::string_view text, const std::vector<ModelPort>& ports) {
  JsonCursor json(text, "instances");
  if (json.peek() != '[') refuse(400, "'instances' is not a list");
  json.open('[');
  if (!json.next_item()) refuse(400, "there are no instances");
  if (json.peek() == '{') return rows_of_objects(text, ports);
  if (ports.size() != 1)
    refuse(400, "the model has {} inputs: an instance is an object with their names", ports.size());
  return {read_port(text, ports[0])};
}

// {"predictions": [...]}: a row for each instance, as an object if there are several outputs.
std::string row_answer(const std::vector<ModelPort>& ports, const JobResult& r) {
  std::string out = "{\"predictions\":[";
  const int64_t n = r.outputs.at(0).dim() > 0 ? r.outputs[0].size(0) : 0;
  for (const Tensor& y : r.outputs)
    if (y.dim() == 0 || y.size(0) != n)
      refuse(400, "the outputs have no rows; ask with 'inputs' in place of 'instances'");
  for (int64_t row = 0; row < n; ++row) {
    if (row) out += ',';
    if (r.outputs.size() == 1) {
      write_row(out, r.outputs[0], row, NonFinite::words);
      continue;
    }
    for (size_t i = 0; i < r.outputs.size(); ++i) {
      out += i ? "," : "{";
      write_text(out, ports[i].name);
      out += ':';
      write_row(out, r.outputs[i], row, NonFinite::words);
    }
    out += '}';
  }
  return out + "]}";
}

std::string column_answer(const std::vector<ModelPort>& ports, const JobResult& r) {
  std::string out = "{\"outputs\":";
  for (size_t i = 0; i < r.outputs.size(); ++i) {
    if (r.outputs.size() > 1) {
      out += i ? "," : "{";
      write_text(out, ports[i].name);
      out += ':';
    }
    write_array(out, r.outputs[i], NonFinite::words, true);
  }
  return out + (r.outputs.size() > 1 ? "}}" : "}");
}

// Of a model as a whole the object has the fields of KServe's V1 protocol, too: who reads the one
// passes over the fields of the other.
void status(Call& call, const std::string& name, const std::string& version, bool whole) {
  std::string out, fields;
  for (const ModelVersionPtr& v : call.server.repository.versions(name))
    if (version.empty() || std::to_string(v->version) == version)
      out += fmt::format(
          "{}{{\"version\":\"{}\",\"state\":\"AVAILABLE\",\"status\":{{\"error_code\":\"OK\","
          "\"error_message\":\"\"}}}}",
          out.empty() ? "" : ",", v->version);
  if (out.empty()) refuse(404, "there is no model '{}' of that version", one_line(name, 128));
  if (whole) {
    write_text(fields, name);
    fields = fmt::format("\"name\":{},\"ready\":{},", fields, !call.server.draining());
  }
  call.json("{" + fields + "\"model_version_status\":[" + out + "]}");
}

void tensorflow_metadata(Call& call, const ModelVersion& v) {
  const auto list = [](const std::vector<ModelPort>& ports) {
    std::string out;
    for (const ModelPort& p : ports) {
      std::string dims;
      for (const int64_t n : p.shape)
        dims += fmt::format("{}{{\"size\":\"{}\",\"name\":\"\"}}", dims.empty() ? "" : ",", n);
      std::string name;
      write_text(name, p.name);
      out += fmt::format(
          "{}{}:{{\"dtype\":\"{}\",\"tensor_shape\":{{\"dim\":[{}],\"unknown_rank\":false}},"
          "\"name\":{}}}",
          out.empty() ? "" : ",", name, io::tf_type_of(p.dtype).proto, dims, name);
    }
    return out;
  };
  std::string name;
  write_text(name, v.name);
  call.json(fmt::format(
      "{{\"model_spec\":{{\"name\":{},\"signature_name\":\"\",\"version\":\"{}\"}},\"metadata\":"
      "{{\"signature_def\":{{\"signature_def\":{{\"serving_default\":{{\"inputs\":{{{}}},"
      "\"outputs\":{{{}}},\"method_name\":\"tensorflow/serving/predict\"}}}}}}}}}}",
      name, v.version, list(v.model->inputs()), list(v.model->outputs())));
}

// A segment "NAME:predict" in its two parts.
std::string cut_verb(std::string& segment) {
  const size_t colon = segment.rfind(':');
  if (colon == std::string::npos) return "";
  std::string verb = segment.substr(colon + 1);
  segment.resize(colon);
  return verb;
}

}  // namespace

void check_signature(const std::string& name) {
  if (name != "serving_default" && !name.empty())
    refuse(400, "there is no signature '{}'; there is serving_default", one_line(name, 64));
}

void predict_tensorflow(Call& call, const ModelVersionPtr& v) {
  const std::vector<ModelPort>& ports = v->model->inputs();
  std::string_view instances, inputs;
  JsonCursor json(call.request().body, "the body");
  JsonKeys keys;
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    if (*key == "instances") {
      instances = json.skip(true);
    } else if (*key == "inputs") {
      inputs = json.skip(true);
    } else if (*key == "signature_name") {
      check_signature(json.read_string());
    } else {
      json.skip(true);
    }
  }
  json.finish();
  if (instances.empty() == inputs.empty())
    refuse(400, "the body expects one of 'instances' and 'inputs'");
  const bool row_form = !instances.empty();
  auto respond = [v = v.get(), row_form](const JobResult& r) {
    return HttpResponse{.body = row_form ? row_answer(v->model->outputs(), r)
                                         : column_answer(v->model->outputs(), r)};
  };
  if (const auto texts = bytes_of_tensorflow(row_form ? instances : inputs, bytes_input_of(*v)))
    return run_asked(call.exchange, call.server, v, *texts, {}, answer_with(call, respond));
  infer(call, v, row_form ? rows(instances, ports) : columns(inputs, ports), {}, respond);
}

bool handle_tensorflow(Call& call) {
  std::vector<std::string> p = call.path;
  if (p.size() < 3 || p[0] != "v1" || p[1] != "models") return false;
  const bool metadata = p.back() == "metadata" && p.size() > 3;
  if (metadata) p.pop_back();
  const std::string verb = cut_verb(p.back());
  const bool chosen = p.size() == 5 && (p[3] == "versions" || p[3] == "labels");
  if (p.size() != 3 && !chosen) refuse(404, "there is nothing at this path");
  const std::string version = chosen ? p[4] : "";
  if (metadata) {
    call.only("GET");
    tensorflow_metadata(call, *version_of(call, p[2], version));
  } else if (verb.empty()) {
    call.only("GET");
    const ModelVersionPtr label = chosen ? version_of(call, p[2], version) : nullptr;
    status(call, p[2], label ? std::to_string(label->version) : "", !chosen);
  } else if (verb == "predict") {
    call.only("POST");
    predict_tensorflow(call, picked_version(call, p[2], version));
  } else if (verb == "classify" || verb == "regress") {
    call.only("POST");
    classify_tensorflow(call, picked_version(call, p[2], version), verb == "regress");
  } else {
    refuse(404, "there is nothing at this path");
  }
  return true;
}

}  // namespace tandem::serve
