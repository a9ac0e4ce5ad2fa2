// SPDX-License-Identifier: Apache-2.0
// Inference by the Open Inference Protocol V2: tensors as JSON or, after it, as bytes (Triton's
// binary tensor extension).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "tandem/base/append_bytes.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

using namespace std::string_view_literals;  // whose sizes are known

// For messages: what a client calls an input.
std::string said(const std::string& name) { return one_line(name, 64); }

std::vector<int64_t> read_sizes(JsonCursor& json, const std::string& name) {
  std::vector<int64_t> out;
  out.reserve(kMostRank);
  json.open('[');
  while (json.next_item()) {
    if (json.peek() != '-' && (json.peek() < '0' || json.peek() > '9'))
      refuse(400, "input '{}': a size is not a whole number", said(name));
    const std::string_view word = json.read_word();
    if (word.find_first_of(".eE") != std::string_view::npos)
      refuse(400, "input '{}': the size {} is not a whole number", said(name), word.substr(0, 40));
    if (word[0] == '-')
      refuse(400, "input '{}': the size {} is negative", said(name), word.substr(0, 40));
    const auto n = parse_digits(word, static_cast<uint64_t>(kMostElements));
    if (!n) refuse(400, "input '{}': the size {} is too large", said(name), word.substr(0, 40));
    add_size(out, static_cast<int64_t>(*n), name);
  }
  return out;
}

// Reads a parameter that says where in shared memory a tensor lies; false for any other.
bool read_shared(JsonCursor& json, std::string_view name, std::shared_ptr<SharedAsk>& out) {
  if (!name.starts_with(kSharedPrefix)) return false;
  name.remove_prefix(kSharedPrefix.size());
  const bool region = name == "region", bytes = name == "byte_size";
  if (!region && !bytes && name != "offset") return false;
  if (!out) out = std::make_shared<SharedAsk>();
  if (region)
    out->region = json.read_string();
  else if (bytes)
    out->bytes = json.read_int();
  else
    out->offset = json.read_int();
  return true;
}

AskedInput read_input(JsonCursor& json, std::string_view text) {
  AskedInput in;
  JsonKeys keys;
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    if (*key == "name") {
      in.name = json.read_string();
    } else if (*key == "datatype") {
      in.datatype = json.read_string();
    } else if (*key == "shape") {
      in.shape = read_sizes(json, in.name);
    } else if (*key == "data") {
      if (json.peek() != '[') refuse(400, "input '{}': data is not a list", said(in.name));
      // Mostly the dtype has come before: then the text is read once.
      const size_t from = json.at();
      if (const auto dtype = v2_dtype(in.datatype)) in.values = read_list(json, *dtype);
      in.data = in.values.defined() ? text.substr(from, json.at() - from) : json.skip(true);
    } else if (*key == "parameters") {
      json.open('{');
      while (const auto name = json.next_key()) {
        if (*name == "binary_data_size")
          in.binary = json.read_int();
        else if (!read_shared(json, *name, in.shared))
          json.skip();
      }
    } else {
      json.skip();
    }
  }
  return in;
}

AskedOutput read_output(JsonCursor& json) {
  AskedOutput out;
  json.open('{');
  while (const auto key = json.next_key()) {
    if (*key == "name") {
      out.name = json.read_string();
    } else if (*key == "parameters") {
      json.open('{');
      while (const auto name = json.next_key()) {
        if (*name == "binary_data")
          out.binary = json.read_bool();
        else if (*name == "classification")
          out.classes = json.read_int();
        else if (!read_shared(json, *name, out.shared))
          json.skip();
      }
    } else {
      json.skip();
    }
  }
  return out;
}

// A number or a text; 0 and "" stand for none.
void read_sequence_id(JsonCursor& json, SequenceAsk& sequence) {
  sequence.is_text = json.peek() == '"';
  sequence.id = sequence.is_text ? json.read_string() : std::string(json.read_word());
  if (!sequence.is_text && !parse_digits(sequence.id, std::numeric_limits<uint64_t>::max()))
    refuse(400, "'sequence_id' is neither a whole number nor a text");
  if (!sequence.is_text && sequence.id == "0") sequence.id.clear();
}

void read_parameters(JsonCursor& json, Asked& asked) {
  json.open('{');
  while (const auto name = json.next_key()) {
    if (*name == "binary_data_output") {
      asked.binary = json.read_bool();
    } else if (*name == "timeout") {
      const int64_t us = json.read_int();
      if (us < 0) refuse(400, "the timeout is negative");
      asked.terms.timeout = static_cast<double>(us) * 1e-6;
    } else if (*name == "priority") {
      asked.terms.priority = json.read_int();
    } else if (*name == "sequence_id") {
      read_sequence_id(json, asked.terms.sequence);
    } else if (*name == "sequence_start") {
      asked.terms.sequence.start = json.read_bool();
    } else if (*name == "sequence_end") {
      asked.terms.sequence.end = json.read_bool();
    } else {
      json.skip();
    }
  }
}

Asked read_request(std::string_view text) {
  Asked asked;
  JsonKeys keys;
  JsonCursor json(text, "the body");
  bool inputs = false;
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    if (*key == "id") {
      asked.id = json.read_string();
    } else if (*key == "parameters") {
      read_parameters(json, asked);
    } else if (*key == "inputs") {
      inputs = true;
      if (json.peek() != '[') refuse(400, "'inputs' is not a list");
      json.open('[');
      while (json.next_item()) {
        asked.inputs.push_back(read_input(json, text));
        if (asked.inputs.size() > kMostTensors) refuse(400, "there are too many inputs");
      }
    } else if (*key == "outputs") {
      json.open('[');
      while (json.next_item()) {
        asked.outputs.push_back(read_output(json));
        if (asked.outputs.size() > kMostTensors) refuse(400, "there are too many outputs");
      }
    } else {
      json.skip();
    }
  }
  json.finish();
  if (!inputs) refuse(400, "the body has no 'inputs'");
  return asked;
}

// Is all of a request that its head does not say in the bytes after it?
bool comes_again(const Asked& asked) {
  return asked.id.empty() && asked.terms.sequence.id.empty() &&
         std::all_of(asked.inputs.begin(), asked.inputs.end(), [](const AskedInput& in) {
           return in.binary && in.data.empty() && !in.values.defined() && !in.shared;
         });
}

// What a head asks: `own`, or what the last one on this thread asked. Clients that send tensors as
// bytes mostly send the same JSON before them again.
Asked& read_head(std::string_view text, Asked& own) {
  constexpr size_t kMost = 4096;
  thread_local std::string last;
  thread_local Asked asked;
  if (!text.empty() && text == last) return asked;
  own = read_request(text);
  if (text.size() <= kMost && comes_again(own)) {
    last.clear();
    asked = own;
    last = text;
  }
  return own;
}

// Gives each input its part of what follows the JSON.
void deal_bytes(Asked& asked, std::string_view bytes, bool has_length) {
  for (AskedInput& in : asked.inputs) {
    if (!in.binary) continue;
    if (!has_length)
      refuse(400, "input '{}' is binary, and there is no Inference-Header-Content-Length",
             said(in.name));
    if (!in.data.empty()) refuse(400, "input '{}' has data and binary data", said(in.name));
    if (*in.binary < 0 || static_cast<uint64_t>(*in.binary) > bytes.size())
      refuse(400, "input '{}' expects {} bytes of the {} that are left", said(in.name), *in.binary,
             bytes.size());
    in.bytes = bytes.substr(0, static_cast<size_t>(*in.binary));
    bytes.remove_prefix(static_cast<size_t>(*in.binary));
  }
  if (!bytes.empty()) refuse(400, "{} bytes follow the last input", bytes.size());
}

// The length of the JSON in the body.
size_t json_length(const HttpRequest& r, bool& given) {
  const std::string* header = r.header("inference-header-content-length");
  given = header != nullptr;
  if (!header) return r.body.size();
  const auto n = parse_digits(*header, r.body.size());
  if (!n || r.count("inference-header-content-length") > 1)
    refuse(400, "Inference-Header-Content-Length is not a number up to the body's {} bytes",
           r.body.size());
  return static_cast<size_t>(*n);
}

DType dtype_of(const AskedInput& in, const ModelPort& port) {
  if (in.datatype == kBytes)
    refuse(400, "input '{}' takes {}, got BYTES", said(in.name), v2_name(port.dtype));
  const auto dtype = v2_dtype(in.datatype);
  if (!dtype)
    refuse(
        400,
        "input '{}': there is no datatype '{}'; there are BOOL, UINT8, INT8, INT16, INT32, INT64, "
        "FP16, BF16, FP32 and FP64",
        said(in.name), one_line(in.datatype, 32));
  if (*dtype != port.dtype)
    refuse(400, "input '{}' takes {}, got {}", said(in.name), v2_name(port.dtype), in.datatype);
  return *dtype;
}

Tensor tensor_of(const AskedInput& in, const ModelPort& port, const SharedMemory& shared) {
  const DType dtype = dtype_of(in, port);
  const int64_t count = count_of(in);
  const Shape shape(*in.shape);
  if (in.binary || in.shared) {
    const auto wanted = static_cast<size_t>(count) * size_of(dtype);
    const SharedRange range = in.shared ? range_of(in, shared) : SharedRange();
    const size_t got = in.shared ? range.bytes : in.bytes.size();
    if (got != wanted)
      refuse(400, "input '{}' of shape {} has {} bytes, got {}", said(in.name),
             recipe::shape_text(shape), wanted, got);
    const Tensor x(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, {})));
    if (wanted > 0 && in.shared)
      range.region->read(range.at, static_cast<char*>(x.impl()->data), wanted);
    else if (wanted > 0)
      copy_bytes(x.impl()->data, in.bytes.data(), wanted);
    return x;
  }
  const std::string name = said(in.name);
  if (in.data.empty()) refuse(400, "input '{}' has no data", name);
  const Tensor x = in.values.defined() && in.values.dtype() == dtype
                       ? in.values
                       : read_array(in.data, dtype, "input '" + name + "': data");
  if (x.numel() != count)
    refuse(400, "input '{}' of shape {} has {} elements, got {}", name, recipe::shape_text(shape),
           count, x.numel());
  if (x.dim() > 1 && x.shape() != shape)
    refuse(400, "input '{}' has the shape {}, its data has {}", name, recipe::shape_text(shape),
           recipe::shape_text(x.shape()));
  return x.shape() == shape ? x : x.reshape(shape);
}

// The JSON of an output; bytes follow the JSON of all.
void put_output(std::string& head, const WantedOutput& wanted, const AnsweredOutput& y) {
  head.append("{\"name\":"sv);
  write_text(head, y.name);
  head.append(",\"datatype\":\""sv).append(y.datatype).append("\",\"shape\":["sv);
  const std::span<const int64_t> sizes = y.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d) head += ',';
    head += std::to_string(sizes[d]);
  }
  head += ']';
  const size_t bytes = y.bytes().size();
  if (wanted.shared) {
    head.append(",\"parameters\":{\"shared_memory_region\":"sv);
    write_text(head, wanted.shared->region->name());
    head += fmt::format(",\"shared_memory_offset\":{},\"shared_memory_byte_size\":{}}}}}",
                        wanted.shared->at, bytes);
    return;
  }
  if (wanted.binary) {
    head.append(",\"parameters\":{\"binary_data_size\":"sv).append(std::to_string(bytes));
    head.append("}}"sv);
    return;
  }
  head += ",\"data\":";
  if (y.numbers.defined()) {
    write_array(head, y.numbers, NonFinite::null, false);
  } else {
    for (size_t i = 0; i < y.texts.size(); ++i) {
      head += i ? ',' : '[';
      write_text(head, y.texts[i]);
    }
    head += y.texts.empty() ? "[]" : "]";
  }
  head += '}';
}

HttpResponse answer_of(const ModelVersion& v, const std::string& id,
                       const std::vector<WantedOutput>& wanted, const JobResult& r) {
  constexpr size_t kUsual = 384;
  HttpResponse out;
  std::string& body = out.body;
  body.reserve(kUsual);
  body.append("{\"model_name\":\""sv).append(v.name);
  body.append("\",\"model_version\":\""sv).append(std::to_string(v.version)).append("\""sv);
  if (!id.empty()) {
    body.append(",\"id\":"sv);
    write_text(body, id);
  }
  body.append(",\"outputs\":["sv);
  std::vector<AnsweredOutput> binaries;
  size_t bytes = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i) body += ',';
    AnsweredOutput y = answered_output(v, wanted[i], r);
    put_output(body, wanted[i], y);
    if (!wanted[i].binary || wanted[i].shared) continue;
    bytes += y.bytes().size();
    binaries.push_back(std::move(y));
  }
  body.append("]}"sv);
  if (binaries.empty()) return out;
  out.content_type = "application/octet-stream";
  out.headers.emplace_back("Inference-Header-Content-Length", std::to_string(body.size()));
  body.reserve(body.size() + bytes);
  for (const AnsweredOutput& y : binaries) append_bytes(body, y.bytes());
  return out;
}

// The whole body is the only input.
Asked raw_request(const HttpRequest& r, const std::vector<ModelPort>& ports) {
  if (ports.size() != 1) refuse(400, "a body of bytes alone expects a model of one input");
  AskedInput in{.name = ports[0].name, .datatype = v2_name(ports[0].dtype)};
  const auto elements = static_cast<int64_t>(r.body.size() / size_of(ports[0].dtype));
  int64_t known = 1, open = -1;
  for (size_t d = 0; d < ports[0].shape.size(); ++d) {
    if (ports[0].shape[d] >= 0) {
      known *= ports[0].shape[d];
    } else {
      if (open >= 0) refuse(400, "the sizes of '{}' do not follow from its bytes", in.name);
      open = static_cast<int64_t>(d);
    }
  }
  in.shape = ports[0].shape;
  if (open >= 0) (*in.shape)[static_cast<size_t>(open)] = known > 0 ? elements / known : 0;
  in.binary = static_cast<int64_t>(r.body.size());
  return {.binary = true, .inputs = {in}};
}

}  // namespace

void add_size(std::vector<int64_t>& shape, int64_t size, const std::string& name) {
  if (size < 0) refuse(400, "input '{}': the size {} is negative", name, size);
  if (size > kMostElements) refuse(400, "input '{}': the size {} is too large", name, size);
  shape.push_back(size);
  if (shape.size() > kMostRank)
    refuse(400, "input '{}' has more than {} dimensions", name, kMostRank);
}

int64_t count_of(const AskedInput& in) {
  if (!in.shape) refuse(400, "input '{}' has no shape", said(in.name));
  int64_t count = 1;
  for (const int64_t n : *in.shape) {
    if (n > 0 && count > kMostElements / n)
      refuse(400, "input '{}' has more than 2^31 elements", said(in.name));
    count *= n;
  }
  return count;
}

SharedRange range_of(const AskedInput& in, const SharedMemory& shared) {
  if (!in.data.empty() || in.values.defined() || in.binary)
    refuse(400, "input '{}' has data and lies in shared memory: give one of them", said(in.name));
  return shared.range(*in.shared, "input '" + said(in.name) + "'");
}

std::string known_names(const std::vector<ModelPort>& ports) {
  std::string out;
  for (const ModelPort& p : ports) out += (out.empty() ? "'" : ", '") + p.name + "'";
  return out;
}

std::vector<Tensor> tensors_of(const Asked& asked, const std::vector<ModelPort>& ports,
                               const SharedMemory& shared) {
  std::vector<Tensor> out(ports.size());
  for (const AskedInput& in : asked.inputs) {
    size_t at = 0;
    while (at < ports.size() && ports[at].name != in.name) ++at;
    if (at == ports.size())
      refuse(400, "the model has no input '{}'; it has {}", one_line(in.name, 64),
             known_names(ports));
    if (out[at].defined()) refuse(400, "input '{}' is given twice", in.name);
    out[at] = tensor_of(in, ports[at], shared);
  }
  for (size_t i = 0; i < ports.size(); ++i)
    if (!out[i].defined()) refuse(400, "input '{}' is missing", ports[i].name);
  return out;
}

void infer_v2(Call& call, const ModelVersionPtr& picked) {
  const HttpRequest& r = call.request();
  bool has_length = false;
  const size_t length = json_length(r, has_length);
  const std::string_view body = r.body;
  const bool raw = has_length && length == 0;
  Asked own = raw ? raw_request(r, picked->model->inputs()) : Asked();
  Asked& asked = raw ? own : read_head(body.substr(0, length), own);
  deal_bytes(asked, body.substr(length), has_length);
  if (call.exchange->access) call.exchange->access->called(asked.id);
  const ModelVersionPtr v = version_of_step(picked, asked.terms.sequence);
  auto wanted = wanted_outputs(asked, *v, call.server.shared_memory);
  auto respond = [v = v.get(), id = asked.id, wanted = std::move(wanted)](const JobResult& result) {
    return answer_of(*v, id, wanted, result);
  };
  run_asked(call.exchange, call.server, v, asked, asked.terms,
            answer_with(call, std::move(respond)));
}

}  // namespace tandem::serve
