// SPDX-License-Identifier: Apache-2.0
// Protocols that hand over a body of any kind: TorchServe's /predictions/NAME, SageMaker's /ping
// and /invocations, Vertex AI's routes. Images and texts are prepared as the model's run prepared
// its samples; arrays come as .npy or JSON.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/recipe.h"
#include "tandem/serve/server_internal.h"

namespace tandem::serve {
namespace {

constexpr std::string_view kNpy = "\x93NUMPY";

bool begins_with_word(const std::string* value, std::string_view word) {
  return value && list_holds(std::string_view(*value).substr(0, value->find(',')), word);
}

// An array of a .npy file in memory.
Tensor read_npy(std::string_view bytes) {
  const int fd = memfd_create("npy", MFD_CLOEXEC);
  if (fd < 0) refuse(503, "not enough memory");
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Tensor out;
  try {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
      if (n <= 0) refuse(503, "not enough memory");
      at += static_cast<size_t>(n);
    }
    out = io::load_npy(path);
  } catch (const Error& e) {
    ::close(fd);
    std::string text = e.message();
    if (const size_t at = text.find(path); at != std::string::npos)
      text.replace(at, path.size(), "the body");
    refuse(400, "{}", text);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  return out;
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_of(const Tensor& value) {
  const Tensor x = value.dtype() == DType::bf16 ? value.to(DType::f32) : value.contiguous();
  const char kind = is_floating(x.dtype())   ? 'f'
                    : x.dtype() == DType::b8 ? 'b'
                    : x.dtype() == DType::u8 ? 'u'
                                             : 'i';
  std::string shape;
  for (int d = 0; d < x.dim(); ++d) shape += fmt::format("{},", x.size(d));
  std::string head =
      fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': ({}), }}",
                  size_of(x.dtype()) == 1 ? '|' : '<', kind, size_of(x.dtype()), shape);
  head.append(64 - (10 + head.size() + 1) % 64, ' ');
  head += '\n';
  std::string out(kNpy);
  out += {'\1', '\0', static_cast<char>(head.size() & 255), static_cast<char>(head.size() >> 8)};
  out += head;
  if (x.numel() > 0)
    out.append(static_cast<const char*>(x.data_ptr()),
               static_cast<size_t>(x.numel()) * size_of(x.dtype()));
  return out;
}

std::string classes_json(const std::vector<recipe::ScoredClass>& row) {
  constexpr size_t kMost = 5;
  std::string out;
  for (size_t i = 0; i < std::min(kMost, row.size()); ++i) {
    out += out.empty() ? "{" : ",";
    write_text(out, row[i].label);
    out += fmt::format(":{}", row[i].score);
  }
  return out + (out.empty() ? "{}" : "}");
}

std::string boxes_json(const std::vector<recipe::PredictedBox>& row) {
  std::string out = "[";
  for (const recipe::PredictedBox& b : row) {
    if (out.size() > 1) out += ',';
    out += "{\"label\":";
    write_text(out, b.label);
    out += fmt::format(",\"score\":{},\"box\":[{},{},{},{}]}}", b.score, b.corners[0], b.corners[1],
                       b.corners[2], b.corners[3]);
  }
  return out + "]";
}

// Outputs by name.
std::string arrays_json(const std::vector<ModelPort>& ports, const std::vector<Tensor>& outputs) {
  std::string out = "{";
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i) out += ',';
    write_text(out, ports[i].name);
    out += ':';
    write_array(out, outputs[i], NonFinite::null, true);
  }
  return out + "}";
}

// What the outputs mean: classes with their chances, likeliest first, boxes, numbers, an image, or
// arrays.
HttpResponse meaning(const ModelVersion& v, const recipe::Prediction& p) {
  using Kind = recipe::PredictionKind;
  if (p.kind == Kind::classes && !p.classes.empty()) return {.body = classes_json(p.classes[0])};
  if (p.kind == Kind::boxes && !p.boxes.empty()) return {.body = boxes_json(p.boxes[0])};
  if (p.kind == Kind::image && p.image.defined())
    return {.content_type = "image/png", .body = io::encode_png(p.image)};
  std::vector<Tensor> outputs;
  for (const auto& [name, y] : p.outputs) outputs.push_back(y);
  if (p.kind == Kind::numbers && !p.numbers.empty())
    return {.body = fmt::format("[{}]", fmt::join(p.numbers[0], ","))};
  return {.body = arrays_json(v.model->outputs(), outputs)};
}

// The part called "data" of a form, or the first one.
std::string_view form_part(std::string_view body, const std::string& type) {
  const size_t at = type.find("boundary=");
  if (at == std::string::npos) refuse(400, "a form without a boundary");
  std::string boundary = type.substr(at + 9, type.find(';', at) - at - 9);
  if (boundary.size() > 1 && boundary.front() == '"')
    boundary = boundary.substr(1, boundary.size() - 2);
  if (boundary.empty()) refuse(400, "a form without a boundary");
  const std::string line = "--" + boundary;
  std::string_view first;
  bool found = false;
  for (size_t from = body.find(line); from != std::string_view::npos;) {
    const size_t head = body.find("\r\n", from), end_of_head = body.find("\r\n\r\n", from);
    const size_t end = body.find("\r\n" + line, from + line.size());
    if (head == std::string_view::npos || end_of_head == std::string_view::npos ||
        end == std::string_view::npos || end < end_of_head + 2)
      break;
    const std::string_view part =
        end >= end_of_head + 4 ? body.substr(end_of_head + 4, end - end_of_head - 4) : "";
    const std::string_view headers = body.substr(head, end_of_head - head);
    if (headers.find("name=\"data\"") != std::string_view::npos) return part;
    if (!found) first = part;
    found = true;
    from = end + 2;
  }
  if (!found) refuse(400, "the form has no part 'data'");
  return first;
}

// A list of numbers, or an object of TensorFlow's or V2's form.
void predict_json(Call& call, const ModelVersionPtr& v) {
  JsonCursor json(call.request().body, "the body");
  if (json.peek() == '[') {
    if (v->model->inputs().size() != 1)
      refuse(400, "the model has {} inputs: give an object with their names",
             v->model->inputs().size());
    const ModelPort& port = v->model->inputs()[0];
    Tensor x = read_array(call.request().body, port.dtype, "the body", true);
    if (x.dim() + 1 == static_cast<int>(port.shape.size())) x = x.unsqueeze(0);
    return infer(call, v, {x}, {}, [v = v.get()](const JobResult& r) {
      return HttpResponse{.body = arrays_json(v->model->outputs(), r.outputs)};
    });
  }
  // V2 has a list of objects under "inputs", TensorFlow numbers or an object.
  bool v2 = false;
  json.open('{');
  while (const auto key = json.next_key()) {
    const bool inputs = *key == "inputs";
    const std::string_view value = json.skip(true);
    JsonCursor inside(value, "inputs");
    if (inputs && inside.peek() == '[') {
      inside.open('[');
      v2 = inside.next_item() && inside.peek() == '{';
    }
  }
  if (v2) return infer_v2(call, v);
  predict_tensorflow(call, v);
}

void predict_array(Call& call, const ModelVersionPtr& v) {
  const std::vector<ModelPort>& ports = v->model->inputs();
  if (ports.size() != 1) refuse(400, "one array was given, the model has {} inputs", ports.size());
  Tensor x = read_npy(call.request().body).to(ports[0].dtype);
  if (x.dim() + 1 == static_cast<int>(ports[0].shape.size())) x = x.unsqueeze(0);
  const bool as_npy = begins_with_word(call.request().header("accept"), "application/x-npy") ||
                      begins_with_word(call.request().header("accept"), "*/*") ||
                      !call.request().header("accept");
  infer(call, v, {x}, {}, [v = v.get(), as_npy](const JobResult& r) {
    if (as_npy && r.outputs.size() == 1)
      return HttpResponse{.content_type = "application/x-npy", .body = npy_of(r.outputs[0])};
    return HttpResponse{.body = arrays_json(v->model->outputs(), r.outputs)};
  });
}

void ping(Call& call) {
  call.only("GET");
  const bool ready = !call.server.draining() && call.server.repository.ready() &&
                     !call.server.repository.all().empty();
  call.answer({.status = ready ? 200 : 503,
               .body = ready ? "{\"status\":\"Healthy\"}" : "{\"status\":\"Unhealthy\"}"});
}

}  // namespace

void infer_file(const Call& call, const ModelVersionPtr& v, std::string_view bytes) {
  if (bytes.empty()) refuse(400, "the body is empty");
  if (!v->model->takes_files()) refuse(415, "model '{}' takes arrays: send JSON or .npy", v->name);
  auto prepared =
      std::make_shared<recipe::PreparedBatch>(v->model->predictor().prepare(bytes, "the body"));
  std::vector<Tensor> inputs(prepared->fields.begin(), prepared->fields.end());
  infer(call, v, std::move(inputs), {}, [v = v.get(), prepared](const JobResult& r) {
    return meaning(*v, v->model->predictor().answer(r.outputs, prepared.get()));
  });
}

void predict_body(Call& call, const ModelVersionPtr& v) {
  const HttpRequest& r = call.request();
  const std::string* type = r.header("content-type");
  if (std::string_view(r.body).starts_with(kNpy)) return predict_array(call, v);
  if (begins_with_word(type, "multipart/form-data"))
    return infer_file(call, v, form_part(r.body, *type));
  const bool json = begins_with_word(type, "application/json");
  if (json || (!v->model->takes_files() && !r.body.empty())) return predict_json(call, v);
  infer_file(call, v, r.body);
}

bool handle_predictions(Call& call) {
  const HttpRequest& r = call.request();
  const ServerOptions& o = call.server.options;
  const std::vector<std::string>& p = call.path;
  const bool health = !o.health_route.empty() && r.path == o.health_route;
  const bool predict = !o.predict_route.empty() && r.path == o.predict_route;
  if (health || (p.size() == 1 && p[0] == "ping")) {
    ping(call);
  } else if (predict || (p.size() == 1 && p[0] == "invocations")) {
    call.only("POST");
    predict_body(call, default_version(call));
  } else if ((p.size() == 2 || p.size() == 3) && p[0] == "predictions") {
    call.only("POST");
    predict_body(call, picked_version(call, p[1], p.size() == 3 ? p[2] : ""));
  } else {
    return false;
  }
  return true;
}

}  // namespace tandem::serve
