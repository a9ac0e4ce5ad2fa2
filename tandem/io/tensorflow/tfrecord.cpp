// SPDX-License-Identifier: Apache-2.0
// The messages are those of tensorflow/core/example/example.proto and feature.proto.
#include "tandem/io/tensorflow/tfrecord.h"

#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/files/mapped_pages.h"
#include "tandem/base/hash/crc32c.h"
#include "tandem/io/bytes_internal.h"
#include "tandem/io/protobuf.h"

namespace tandem::io {
namespace {

constexpr uint64_t kHead = 12, kFoot = 4;

uint32_t masked(std::string_view bytes) {
  const uint32_t c = crc32c(bytes);
  return (c >> 15 | c << 17) + 0xA282EAD8U;
}

TFFeature read_feature(ProtoReader feature) {
  TFFeature out;
  while (feature.next()) {
    const uint32_t kind = feature.field();
    if (kind < 1 || kind > 3) continue;
    // The last field of a oneof wins.
    out = TFFeature{};
    out.kind = static_cast<TFFeature::Kind>(kind);
    ProtoReader list = feature.message();
    while (list.next()) {
      if (list.field() != 1) continue;
      Budget::take(2 * sizeof(std::string_view));
      if (kind == 1)
        out.bytes.push_back(list.bytes());
      else if (kind == 2)
        list.append(out.floats);
      else
        list.append(out.ints);
    }
  }
  return out;
}

}  // namespace

std::string tfrecord(std::string_view bytes) {
  std::string out;
  append_number(out, static_cast<uint64_t>(bytes.size()));
  append_number(out, masked(out));
  out += bytes;
  append_number(out, masked(bytes));
  return out;
}

TFRecordFile::TFRecordFile(const FilePath& path, TFRecordFileOptions options)
    : file_(make_ref<MappedFile>(path)) {
  const std::string_view all = file_->view();
  for (uint64_t at = 0; at < all.size();) {
    const uint64_t left = all.size() - at;
    uint64_t length = 0;
    if (left < kHead + kFoot) {
      damage_ = fmt::format("record {} is truncated: {} bytes are left", size(), left);
    } else {
      length = number_at<uint64_t>(all, at);
      if (masked(all.substr(at, 8)) != number_at<uint32_t>(all, at + 8))
        damage_ = fmt::format("the length of record {} is damaged, or this is not a TFRecord file",
                              size());
      else if (length > left - kHead - kFoot)
        damage_ = fmt::format("record {} is truncated: {} bytes are needed, {} are left", size(),
                              length, left - kHead - kFoot);
    }
    TD_CHECK(damage_.empty() || options.keep_whole, Format, "'{}': {}", this->path(), damage_);
    if (!damage_.empty()) return;
    passed_mapped(all.data() + at, kHead);
    places_.add(at);
    at += kHead + length + kFoot;
  }
}

std::string_view TFRecordFile::record(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "record {} of a file of {}", i, size());
  const std::string_view all = file_->view();
  uint64_t at = places_.before(i);
  for (int64_t left = i % places_.every(); left > 0; --left)
    at += kHead + number_at<uint64_t>(all, at) + kFoot;
  const auto length = number_at<uint64_t>(all, at);
  const std::string_view bytes = all.substr(at + kHead, length);
  passed_mapped(all.data() + at, kHead + length + kFoot);
  TD_CHECK(masked(bytes) == number_at<uint32_t>(all, at + kHead + length), Format,
           "'{}': record {} is damaged: its checksum is wrong", path(), i);
  return bytes;
}

TFExample parse_tf_example(std::string_view bytes, const std::string& name) {
  const Budget budget(name, bytes.size());
  ProtoDocument document(bytes, name);
  TFExample out;
  ProtoReader example = document.reader();
  while (example.next()) {
    if (example.field() != 1) continue;
    ProtoReader features = example.message();
    while (features.next()) {
      if (features.field() != 1) continue;
      Budget::take(2 * sizeof(TFExample::value_type));
      ProtoReader entry = features.message();
      std::string key;
      TFFeature value;
      while (entry.next()) {
        if (entry.field() == 1)
          key = entry.text();
        else if (entry.field() == 2)
          value = read_feature(entry.message());
      }
      out[key] = std::move(value);
    }
  }
  return out;
}

std::string write_tf_example(const TFExample& example) {
  ProtoWriter features;
  for (const auto& [key, value] : example) {
    ProtoWriter list, feature, entry;
    if (value.kind == TFFeature::Kind::bytes)
      for (const std::string_view b : value.bytes) list.add_bytes(1, b);
    else if (value.kind == TFFeature::Kind::floats)
      list.add_packed(1, value.floats);
    else if (value.kind == TFFeature::Kind::ints)
      list.add_packed(1, value.ints);
    if (value.kind != TFFeature::Kind::none)
      feature.add_message(static_cast<uint32_t>(value.kind), list);
    entry.add_bytes(1, key);
    entry.add_message(2, feature);
    features.add_message(1, entry);
  }
  ProtoWriter out;
  out.add_message(1, features);
  return out.str();
}

}  // namespace tandem::io
