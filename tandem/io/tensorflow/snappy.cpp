// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/tensorflow/snappy.h"

#include <cstdint>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"

namespace tandem::io {
namespace {

/// Most bytes that one byte of a stream can stand for: a copy of 64 bytes takes three.
constexpr uint64_t kMostRatio = 22;

class SnappyReader {
 public:
  SnappyReader(std::string_view packed, const std::string& what) : in_(packed), what_(what) {}

  std::string run() {
    uint64_t size = 0;
    for (int shift = 0;; shift += 7) {
      if (shift > 28) fail("its length is not a number");
      const uint64_t byte = take(1);
      size |= (byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    if (size > in_.size() * kMostRatio) fail("its length is beyond what its bytes can hold");
    Budget::take(size);
    Budget::give_back(size);
    out_.reserve(size);
    while (at_ < in_.size()) element(size);
    if (out_.size() != size) fail("it ends early");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    TD_FAIL(Format, "'{}': a snappy block is damaged: {}", what_, why);
  }
  /// A little-endian number of `n` bytes.
  uint64_t take(size_t bytes) {
    if (bytes > in_.size() - at_) fail("it is truncated");
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i)
      v |= uint64_t{static_cast<unsigned char>(in_[at_ + i])} << (8 * i);
    at_ += bytes;
    return v;
  }
  void element(uint64_t size) {
    const uint64_t tag = take(1);
    const int kind = tag & 3;
    uint64_t length = (tag >> 2) + 1, back = 0;
    if (kind == 0) {  // a literal; from 61 on the tag counts the bytes of its length
      if (length > 60) length = take(length - 60) + 1;
    } else if (kind == 1) {
      length = (tag >> 2 & 7) + 4;
      back = (tag >> 5) << 8 | take(1);
    } else {
      back = take(kind == 2 ? 2 : 4);
    }
    if (length > size - out_.size()) fail("it is longer than its length says");
    if (kind == 0) {
      if (length > in_.size() - at_) fail("it is truncated");
      out_.append(in_.substr(at_, length));
      at_ += length;
      return;
    }
    if (back == 0 || back > out_.size()) fail("it copies from before its beginning");
    for (uint64_t i = 0; i < length; ++i) out_ += out_[out_.size() - back];  // may overlap
  }

  std::string_view in_;
  const std::string& what_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string snappy_decompress(std::string_view packed, const std::string& what) {
  return SnappyReader(packed, what).run();
}

}  // namespace tandem::io
