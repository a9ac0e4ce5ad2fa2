// SPDX-License-Identifier: Apache-2.0
// ModelInferRequest and ModelInferResponse: field numbers as in
// https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/open_inference_grpc.proto
#include <fmt/format.h>

#include "tandem/serve/grpc/v2_messages_internal.h"

namespace tandem::serve {
namespace {

/// The fields of InferTensorContents.
constexpr const char* kContentsNames[] = {"",
                                          "bool_contents",
                                          "int_contents",
                                          "int64_contents",
                                          "uint_contents",
                                          "uint64_contents",
                                          "fp32_contents",
                                          "fp64_contents",
                                          "bytes_contents"};

/// An input's contents as they came; the datatype may follow later.
struct Contents {
  uint32_t field = 0;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<double> doubles;
};

Contents read_contents(io::ProtoReader& input, const std::string& name) {
  Contents out;
  for_fields_of(input, [&](io::ProtoReader& r) {
    if (r.field() > 8) return;
    if (out.field != 0 && out.field != r.field())
      refuse(400, "input '{}' has {} and {}", name, kContentsNames[out.field],
             kContentsNames[r.field()]);
    out.field = r.field();
    if (r.field() < 6)
      r.append(out.ints);
    else if (r.field() == 6)
      r.append(out.floats);
    else if (r.field() == 7)
      r.append(out.doubles);
  });
  return out;
}

// Typed values become the bytes that a raw tensor has.
void put_contents(AskedInput& in, const Contents& contents) {
  const std::string name = one_line(in.name, 64);
  const V2Type* type = v2_type(in.datatype);  // without one, the datatype is refused later
  if (type && type->contents == 0)
    refuse(400, "input '{}' is {}, which has no contents; send raw_input_contents", name,
           in.datatype);
  if (type && contents.field != 0 && contents.field != type->contents)
    refuse(400, "input '{}' is {}, whose values are {}, and has {}", name, in.datatype,
           kContentsNames[type->contents], kContentsNames[contents.field]);
  std::string bytes;
  if (contents.field == 6)
    bytes = bytes_of(contents.floats);
  else if (contents.field == 7)
    bytes = bytes_of(contents.doubles);
  else if (type && contents.field != 0 && contents.field < 6)
    bytes = bytes_of(contents.ints, type->dtype, name);
  in.own = std::make_shared<const std::string>(std::move(bytes));
  in.bytes = *in.own;
  in.binary = static_cast<int64_t>(in.own->size());
}

// The one value of an InferParameter that has a number.
int64_t number_of(io::ProtoReader& entry, const std::string& name) {
  int64_t out = 0;
  for_fields_of(entry, [&](io::ProtoReader& r) {
    if (r.field() != 2 && r.field() != 5 && r.field() != 1)
      refuse(400, "the parameter '{}' is not a whole number", name);
    out = r.int_value();
  });
  return out;
}

bool flag_of(io::ProtoReader& entry, const std::string& name) {
  bool out = false;
  for_fields_of(entry, [&](io::ProtoReader& r) {
    if (r.field() != 1) refuse(400, "the parameter '{}' is not true or false", name);
    out = r.bool_value();
  });
  return out;
}

// A number or a text; 0 and "" stand for none, which clients send with calls of no sequence, too.
void read_sequence_id(io::ProtoReader& entry, SequenceAsk& sequence) {
  for_fields_of(entry, [&](io::ProtoReader& r) {
    if (r.field() == 3) {
      sequence.is_text = true;
      sequence.id = r.text();
    } else if (r.field() == 2 || r.field() == 5) {
      const uint64_t number = r.unsigned_value();
      if (r.field() == 2 && number >> 63) refuse(400, "'sequence_id' is negative");
      sequence.id = number == 0 ? "" : std::to_string(number);
    } else {
      refuse(400, "'sequence_id' is neither a whole number nor a text");
    }
  });
}

void read_parameter(io::ProtoReader& parameters, Asked& asked) {
  std::string name;
  for_fields_of(parameters, [&](io::ProtoReader& r) {
    if (r.field() == 1) name = r.text();
    if (r.field() != 2) return;
    if (name == "timeout") {
      const int64_t us = number_of(r, name);
      if (us < 0) refuse(400, "the timeout is negative");
      asked.terms.timeout = static_cast<double>(us) * 1e-6;
    } else if (name == "priority") {
      asked.terms.priority = number_of(r, name);
    } else if (name == "sequence_id") {
      read_sequence_id(r, asked.terms.sequence);
    } else if (name == "sequence_start") {
      asked.terms.sequence.start = flag_of(r, name);
    } else if (name == "sequence_end") {
      asked.terms.sequence.end = flag_of(r, name);
    }
  });
}

void check_parameter_of_input(io::ProtoReader& parameters) {
  for_fields_of(parameters, [&](io::ProtoReader& r) {
    if (r.field() == 1 && r.bytes().starts_with("shared_memory"))
      refuse(501, "tensors in shared memory are not read");
  });
}

void read_output_parameter(io::ProtoReader& parameters) {
  for_fields_of(parameters, [&](io::ProtoReader& r) {
    if (r.field() != 1) return;
    const std::string_view name = r.bytes();
    if (name == "classification") refuse(501, "outputs as classes are not given; take the tensor");
    if (name.starts_with("shared_memory")) refuse(501, "tensors in shared memory are not written");
  });
}

AskedInput read_input(io::ProtoReader& request, bool& typed) {
  AskedInput in;
  in.shape.emplace();
  Contents contents;
  bool has_contents = false;
  for_fields_of(request, [&](io::ProtoReader& r) {
    if (r.field() == 1) {
      in.name = r.text();
    } else if (r.field() == 2) {
      in.datatype = r.text();
    } else if (r.field() == 3) {
      std::vector<int64_t> sizes;
      r.append(sizes);
      for (const int64_t n : sizes) add_size(*in.shape, n, one_line(in.name, 64));
    } else if (r.field() == 4) {
      check_parameter_of_input(r);
    } else if (r.field() == 5) {
      contents = read_contents(r, one_line(in.name, 64));
      has_contents = true;
    }
  });
  if (has_contents) put_contents(in, contents);
  typed = typed || contents.field != 0;
  return in;
}

// Raw tensors: one for each input, in their order.
void deal_raw(Asked& asked, const std::vector<std::string_view>& raw, bool typed) {
  if (raw.empty()) {
    for (AskedInput& in : asked.inputs)
      if (!in.binary) in.binary = 0;  // no values at all
    return;
  }
  if (typed) refuse(400, "the request has raw_input_contents and contents of inputs");
  if (raw.size() != asked.inputs.size())
    refuse(400, "the request has {} inputs and {} raw_input_contents", asked.inputs.size(),
           raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    asked.inputs[i].bytes = raw[i];
    asked.inputs[i].binary = static_cast<int64_t>(raw[i].size());
  }
}

}  // namespace

V2Request read_v2_request(std::string_view message) {
  V2Request out;
  out.asked.binary = true;
  std::vector<std::string_view> raw;
  bool typed = false;
  for_fields(message, "ModelInferRequest", [&](io::ProtoReader& r) {
    switch (r.field()) {
      case 1:
        out.model = r.text();
        break;
      case 2:
        out.version = r.text();
        break;
      case 3:
        out.asked.id = r.text();
        break;
      case 4:
        read_parameter(r, out.asked);
        break;
      case 5:
        out.asked.inputs.push_back(read_input(r, typed));
        if (out.asked.inputs.size() > kMostTensors) refuse(400, "there are too many inputs");
        break;
      case 6: {
        AskedOutput o;
        for_fields_of(r, [&](io::ProtoReader& f) {
          if (f.field() == 1) o.name = f.text();
          if (f.field() == 2) read_output_parameter(f);
        });
        out.asked.outputs.push_back(std::move(o));
        if (out.asked.outputs.size() > kMostTensors) refuse(400, "there are too many outputs");
        break;
      }
      case 7:
        raw.push_back(r.bytes());
        if (raw.size() > kMostTensors) refuse(400, "there are too many inputs");
        break;
      default:
        break;
    }
  });
  deal_raw(out.asked, raw, typed);
  return out;
}

void write_v2_response(io::ProtoWriter& out, const ModelVersion& v, const std::string& id,
                       const std::vector<std::pair<size_t, bool>>& wanted, const JobResult& r) {
  out.add_bytes(1, v.name);
  out.add_bytes(2, std::to_string(v.version));
  if (!id.empty()) out.add_bytes(3, id);
  std::vector<Tensor> tensors;
  for (const auto& [at, binary] : wanted) {
    const Tensor x = r.outputs.at(at).contiguous();
    io::ProtoWriter t;
    t.add_bytes(1, v.model->outputs()[at].name);
    t.add_bytes(2, v2_name(x.dtype()));
    std::vector<int64_t> shape;
    for (int d = 0; d < x.dim(); ++d) shape.push_back(x.size(d));
    t.add_packed(3, shape);
    out.add_message(5, t);
    tensors.push_back(x);
  }
  for (const Tensor& x : tensors)
    out.add_bytes(6, x.numel() == 0
                         ? std::string_view()
                         : std::string_view(static_cast<const char*>(x.data_ptr()),
                                            static_cast<size_t>(x.numel()) * size_of(x.dtype())));
}

}  // namespace tandem::serve
