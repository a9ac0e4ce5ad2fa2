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
  std::string bytes;  ///< in the binary form of BYTES
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
    else
      add_element(out.bytes, r.bytes());
  });
  return out;
}

// Typed values become the bytes that a raw tensor has.
void put_contents(AskedInput& in, Contents& contents) {
  constexpr uint32_t kOfBytes = 8;
  const std::string name = one_line(in.name, 64);
  const V2Type* type = v2_type(in.datatype);  // without one, the datatype is refused later
  const bool texts = in.datatype == kBytes;
  if (type && type->contents == 0)
    refuse(400, "input '{}' is {}, which has no contents; send raw_input_contents", name,
           in.datatype);
  const uint32_t own = texts ? kOfBytes : type ? type->contents : contents.field;
  if (contents.field != 0 && contents.field != own)
    refuse(400, "input '{}' is {}, whose values are {}, and has {}", name, in.datatype,
           kContentsNames[own], kContentsNames[contents.field]);
  std::string bytes;
  if (contents.field == 6)
    bytes = bytes_of(contents.floats);
  else if (contents.field == 7)
    bytes = bytes_of(contents.doubles);
  else if (type && contents.field != 0 && contents.field < 6)
    bytes = bytes_of(contents.ints, type->dtype, name);
  else if (texts)
    bytes = std::move(contents.bytes);
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

std::string text_of(io::ProtoReader& entry, const std::string& name) {
  std::string out;
  for_fields_of(entry, [&](io::ProtoReader& r) {
    if (r.field() != 3) refuse(400, "the parameter '{}' is not a text", name);
    out = r.text();
  });
  return out;
}

// A parameter of an input or of a requested output: where in shared memory it lies, or how many
// classes it is asked for.
void read_tensor_parameter(io::ProtoReader& parameters, std::shared_ptr<SharedAsk>& shared,
                           int64_t* classes = nullptr) {
  std::string name;
  const auto place = [&shared]() -> SharedAsk& {
    if (!shared) shared = std::make_shared<SharedAsk>();
    return *shared;
  };
  for_fields_of(parameters, [&](io::ProtoReader& r) {
    if (r.field() == 1) name = r.text();
    if (r.field() != 2) return;
    if (name == "shared_memory_region")
      place().region = text_of(r, name);
    else if (name == "shared_memory_byte_size")
      place().bytes = number_of(r, name);
    else if (name == "shared_memory_offset")
      place().offset = number_of(r, name);
    else if (classes && name == "classification")
      *classes = number_of(r, name);
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
      read_tensor_parameter(r, in.shared);
    } else if (r.field() == 5) {
      contents = read_contents(r, one_line(in.name, 64));
      has_contents = true;
    }
  });
  if (has_contents) put_contents(in, contents);
  typed = typed || contents.field != 0;
  return in;
}

// Raw tensors: one for each input that is not in shared memory, in their order.
void deal_raw(Asked& asked, const std::vector<std::string_view>& raw, bool typed) {
  if (raw.empty()) {
    for (AskedInput& in : asked.inputs)
      if (!in.binary && !in.shared) in.binary = 0;  // no values at all
    return;
  }
  if (typed) refuse(400, "the request has raw_input_contents and contents of inputs");
  size_t next = 0;
  for (AskedInput& in : asked.inputs) {
    if (in.shared) continue;
    const std::string_view bytes = next < raw.size() ? raw[next] : std::string_view();
    ++next;
    in.bytes = bytes;
    in.binary = static_cast<int64_t>(bytes.size());
  }
  if (raw.size() != next)
    refuse(400, "the request has {} inputs and {} raw_input_contents", next, raw.size());
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
          if (f.field() == 2) read_tensor_parameter(f, o.shared, &o.classes);
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

namespace {

// Where an output was written, as the parameters of its tensor.
void add_shared_place(io::ProtoWriter& tensor, const SharedRange& shared, size_t bytes) {
  const auto add = [&tensor](const char* name, const io::ProtoWriter& choice) {
    io::ProtoWriter entry;
    entry.add_bytes(1, name);
    entry.add_message(2, choice);
    tensor.add_message(4, entry);
  };
  io::ProtoWriter region, at, size;
  region.add_bytes(3, shared.region->name());
  at.add_varint(2, shared.at);
  size.add_varint(2, bytes);
  add("shared_memory_region", region);
  add("shared_memory_offset", at);
  add("shared_memory_byte_size", size);
}

}  // namespace

void write_v2_response(io::ProtoWriter& out, const ModelVersion& v, const std::string& id,
                       const std::vector<WantedOutput>& wanted, const JobResult& r) {
  out.add_bytes(1, v.name);
  out.add_bytes(2, std::to_string(v.version));
  if (!id.empty()) out.add_bytes(3, id);
  std::vector<AnsweredOutput> all;
  for (const WantedOutput& w : wanted) {
    AnsweredOutput y = answered_output(v, w, r);
    io::ProtoWriter t;
    t.add_bytes(1, y.name);
    t.add_bytes(2, y.datatype);
    const std::span<const int64_t> sizes = y.sizes();
    t.add_packed(3, std::vector<int64_t>(sizes.begin(), sizes.end()));
    if (w.shared) add_shared_place(t, *w.shared, y.bytes().size());
    out.add_message(5, t);
    all.push_back(std::move(y));
  }
  // Each has its bytes, none of those in shared memory: clients count them.
  for (size_t i = 0; i < all.size(); ++i)
    out.add_bytes(6, wanted[i].shared ? std::string_view() : all[i].bytes());
}

}  // namespace tandem::serve
