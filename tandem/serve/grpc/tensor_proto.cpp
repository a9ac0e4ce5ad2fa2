// SPDX-License-Identifier: Apache-2.0
// https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/tensor.proto
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/serve/grpc/tensor_proto_internal.h"

namespace tandem::serve {
namespace {

/// The values of a TensorProto in the field that its dtype has.
struct TypedValues {
  uint32_t field = 0;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<double> doubles;
};

std::vector<int64_t> read_shape(io::ProtoReader& tensor, const std::string& name) {
  std::vector<int64_t> out;
  for_fields_of(tensor, [&](io::ProtoReader& r) {
    if (r.field() == 3 && r.bool_value()) refuse(400, "input '{}' has no shape", name);
    if (r.field() != 2) return;
    int64_t size = 0;
    for_fields_of(r, [&](io::ProtoReader& dim) {
      if (dim.field() == 1) size = dim.int_value();
    });
    add_size(out, size, name);
  });
  return out;
}

void read_values(io::ProtoReader& r, TypedValues& out, const std::string& name) {
  if (out.field != 0 && out.field != r.field())
    refuse(400, "input '{}' has values in the fields {} and {}", name, out.field, r.field());
  out.field = r.field();
  if (r.field() == 5)
    r.append(out.floats);
  else if (r.field() == 6)
    r.append(out.doubles);
  else
    r.append(out.ints);
}

[[noreturn]] void refuse_size(const std::string& name, size_t most) {
  refuse(400, "input '{}' asks for more than {} bytes, which this request has left", name, most);
}

// One value, or the last of a few, stands for all that are missing.
void fill_up(std::string& bytes, const std::vector<int64_t>& shape, size_t element, size_t most,
             const std::string& name) {
  size_t count = 1;
  for (const int64_t n : shape) {
    const auto size = static_cast<size_t>(n);
    if (size > 0 && count > most / size) refuse_size(name, most);
    count *= size;
  }
  if (bytes.size() < element || bytes.size() / element >= count) return;
  if (count > most / element) refuse_size(name, most);
  size_t done = bytes.size();
  const size_t last = done - element;
  bytes.resize(count * element);
  while (done < bytes.size()) {  // each time twice as much
    const size_t n = std::min(done - last, bytes.size() - done);
    std::memcpy(bytes.data() + done, bytes.data() + last, n);
    done += n;
  }
}

}  // namespace

AskedInput read_tensor_proto(const std::string& name, std::string_view message, size_t& left) {
  AskedInput in{.name = name};
  in.shape.emplace();
  const std::string said = one_line(name, 64);
  const io::TfTypeInfo* type = nullptr;
  int64_t number = 0;
  std::optional<std::string_view> content;
  TypedValues values;
  std::optional<std::string> texts;
  for_fields(message, "TensorProto", [&](io::ProtoReader& r) {
    const uint32_t field = r.field();
    if (field == 1) {
      number = r.int_value();
      type = io::find_tf_type(number);
    } else if (field == 2) {
      in.shape = read_shape(r, said);
    } else if (field == 4) {
      content = r.bytes();
    } else if (field == 8) {
      if (!texts) texts.emplace();
      add_element(*texts, r.bytes());
    } else if ((field >= 5 && field <= 7) || field == 10 || field == 11 || field == 13) {
      read_values(r, values, said);
    }
  });
  constexpr int64_t kStrings = 7;
  if (number == kStrings) {
    in.datatype = kBytes;
    in.own = std::make_shared<const std::string>(texts.value_or(""));
    in.bytes = *in.own;
    in.binary = static_cast<int64_t>(in.bytes.size());
    return in;
  }
  if (texts) refuse(400, "input '{}' takes numbers, got texts", said);
  if (!type || !type->native)
    refuse(400, "input '{}' has the dtype {}, which no model takes", said, number);
  in.datatype = v2_name(type->carrier);
  if (content && !content->empty()) {
    if (values.field != 0) refuse(400, "input '{}' has tensor_content and values", said);
    in.bytes = *content;
  } else {
    if (values.field != 0 && values.field != type->values)
      refuse(400, "input '{}' is {}, whose values are in the field {}, not {}", said, type->proto,
             type->values, values.field);
    std::string bytes = values.field == 5   ? bytes_of(values.floats)
                        : values.field == 6 ? bytes_of(values.doubles)
                        : values.field != 0 ? bytes_of(values.ints, type->carrier, said)
                                            : std::string();
    if (bytes.size() > left) refuse_size(said, left);
    fill_up(bytes, *in.shape, size_of(type->carrier), left, said);
    left -= bytes.size();
    in.own = std::make_shared<const std::string>(std::move(bytes));
    in.bytes = *in.own;
  }
  in.binary = static_cast<int64_t>(in.bytes.size());
  return in;
}

io::ProtoWriter write_shape_proto(const std::vector<int64_t>& sizes) {
  io::ProtoWriter out;
  for (const int64_t n : sizes) {
    io::ProtoWriter dim;
    dim.add_int(1, n);
    out.add_message(2, dim);
  }
  return out;
}

// ovmsclient and TensorFlow itself read tensor_content.
io::ProtoWriter write_tensor_proto(const Tensor& t) {
  const Tensor x = t.contiguous();
  io::ProtoWriter out;
  out.add_int(1, io::tf_type_of(x.dtype()).number);
  std::vector<int64_t> sizes;
  for (int d = 0; d < x.dim(); ++d) sizes.push_back(x.size(d));
  out.add_message(2, write_shape_proto(sizes));
  if (x.numel() > 0)
    out.add_bytes(4, {static_cast<const char*>(x.data_ptr()),
                      static_cast<size_t>(x.numel()) * size_of(x.dtype())});
  return out;
}

}  // namespace tandem::serve
