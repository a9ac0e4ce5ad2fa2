// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/protobuf.h"

#include <cstring>

#include "tandem/base/append_bytes.h"
#include "tandem/base/error.h"

namespace tandem::io {

void ProtoReader::fail(const std::string& reason) const {
  TD_FAIL(Format, "'{}' is damaged or of another kind: {} (byte {})", state_->what, reason,
          offset());
}

uint64_t ProtoReader::varint() {
  uint64_t v = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == end_) fail("a number is truncated");
    const auto byte = static_cast<unsigned char>(*at_++);
    if (shift == 63 && byte > 1) fail("a number has more than 64 bits");
    v |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return v;
  }
  fail("a number has more than 64 bits");
}

template <class T>
T ProtoReader::fixed() {
  if (static_cast<size_t>(end_ - at_) < sizeof(T)) fail("a number is truncated");
  T v;
  std::memcpy(&v, at_, sizeof(T));
  at_ += sizeof(T);
  return v;
}

bool ProtoReader::next() {
  if (pending_) skip();
  if (at_ == end_) return false;
  if (++state_->fields > state_->limits.fields)
    fail(fmt::format("it has more than {} fields", state_->limits.fields));
  const uint64_t key = varint();
  const uint64_t number = key >> 3;
  if (number == 0 || number > (1U << 29) - 1) fail(fmt::format("there is no field {}", number));
  const auto wire = static_cast<unsigned>(key & 7);
  if (wire > 5 || wire == 4) fail(fmt::format("field {} has the wire type {}", number, wire));
  field_ = static_cast<uint32_t>(number);
  type_ = static_cast<ProtoType>(wire);
  pending_ = true;
  return true;
}

void ProtoReader::want(ProtoType type) {
  if (!pending_ || type_ != type)
    fail(fmt::format("field {} has the wire type {}, not {}", field_, static_cast<int>(type_),
                     static_cast<int>(type)));
  pending_ = false;
}

uint64_t ProtoReader::unsigned_value() {
  want(ProtoType::varint);
  return varint();
}

float ProtoReader::float_value() {
  want(ProtoType::fixed32);
  return fixed<float>();
}

double ProtoReader::double_value() {
  want(ProtoType::fixed64);
  return fixed<double>();
}

std::string_view ProtoReader::bytes() {
  want(ProtoType::bytes);
  const uint64_t n = varint();
  if (n > static_cast<uint64_t>(end_ - at_))
    fail(fmt::format("field {} claims {} bytes, {} are left", field_, n, end_ - at_));
  const std::string_view v(at_, static_cast<size_t>(n));
  at_ += n;
  return v;
}

ProtoReader ProtoReader::message() {
  const std::string_view inside = bytes();
  if (depth_ + 1 > state_->limits.depth)
    fail(fmt::format("messages are nested more than {} deep", state_->limits.depth));
  return ProtoReader(*state_, begin_, inside, depth_ + 1);
}

void ProtoReader::append(std::vector<int64_t>& out) {
  if (type_ == ProtoType::varint) {
    out.push_back(int_value());
    return;
  }
  ProtoReader inner(*state_, begin_, bytes(), depth_);
  while (inner.at_ != inner.end_) out.push_back(static_cast<int64_t>(inner.varint()));
}

void ProtoReader::append(std::vector<float>& out) {
  if (type_ == ProtoType::fixed32) {
    out.push_back(float_value());
    return;
  }
  const std::string_view v = bytes();
  if (v.size() % sizeof(float) != 0) fail("a list of floats is truncated");
  const size_t n = out.size();
  out.resize(n + v.size() / sizeof(float));
  if (!v.empty()) std::memcpy(out.data() + n, v.data(), v.size());
}

void ProtoReader::append(std::vector<double>& out) {
  if (type_ == ProtoType::fixed64) {
    out.push_back(double_value());
    return;
  }
  const std::string_view v = bytes();
  if (v.size() % sizeof(double) != 0) fail("a list of doubles is truncated");
  const size_t n = out.size();
  out.resize(n + v.size() / sizeof(double));
  if (!v.empty()) std::memcpy(out.data() + n, v.data(), v.size());
}

void ProtoReader::skip() {
  switch (type_) {
    case ProtoType::varint:
      (void)unsigned_value();
      return;
    case ProtoType::fixed64:
      want(type_);
      (void)fixed<uint64_t>();
      return;
    case ProtoType::fixed32:
      want(type_);
      (void)fixed<uint32_t>();
      return;
    case ProtoType::bytes:
      (void)bytes();
      return;
    case ProtoType::group:
      skip_group();
      return;
  }
}

// Groups end with a key of wire type 4 and may be nested.
void ProtoReader::skip_group() {
  pending_ = false;
  std::vector<uint64_t> open{field_};
  while (!open.empty()) {
    if (++state_->fields > state_->limits.fields) fail("it has too many fields");
    const uint64_t key = varint();
    const auto wire = static_cast<unsigned>(key & 7);
    if (wire == 4) {
      if (open.back() != key >> 3) fail("a group ends that was never opened");
      open.pop_back();
    } else if (wire == 3) {
      open.push_back(key >> 3);
      if (static_cast<int>(open.size()) + depth_ > state_->limits.depth)
        fail("groups are nested too deep");
    } else if (wire > 5) {
      fail("a field in a group has no wire type");
    } else {
      type_ = static_cast<ProtoType>(wire);
      pending_ = true;
      skip();
    }
  }
}

void ProtoWriter::put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}

void ProtoWriter::key(uint32_t field, ProtoType type) {
  put_varint(out_, uint64_t{field} << 3 | static_cast<uint64_t>(type));
}

void ProtoWriter::add_varint(uint32_t field, uint64_t v) {
  key(field, ProtoType::varint);
  put_varint(out_, v);
}

void ProtoWriter::add_float(uint32_t field, float v) {
  key(field, ProtoType::fixed32);
  out_.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void ProtoWriter::add_double(uint32_t field, double v) {
  key(field, ProtoType::fixed64);
  out_.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void ProtoWriter::add_bytes(uint32_t field, std::string_view v) {
  key(field, ProtoType::bytes);
  put_varint(out_, v.size());
  append_bytes(out_, v);
}

void ProtoWriter::add_packed(uint32_t field, const std::vector<int64_t>& v) {
  std::string inside;
  for (const int64_t x : v) put_varint(inside, static_cast<uint64_t>(x));
  add_bytes(field, inside);
}

void ProtoWriter::add_packed(uint32_t field, const std::vector<float>& v) {
  add_bytes(field, {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)});
}

}  // namespace tandem::io
