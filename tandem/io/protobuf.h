// SPDX-License-Identifier: Apache-2.0
// The wire format of protocol buffers, read and written without a schema: ONNX, event files,
// SavedModel and SentencePiece models use it. The reader returns views of the bytes it is given and
// copies nothing; depth, field counts and lengths are checked before they are trusted.
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::io {

enum class ProtoType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, group = 3, fixed32 = 5 };

struct ProtoLimits {
  int depth = 100;                      ///< messages inside messages
  uint64_t fields = uint64_t{1} << 27;  ///< in all messages together
};

/// The fields of one message, in order. Holds views into the document's bytes, which must outlive
/// what is read. Everything throws Format, naming the document and the byte, for bytes that are not
/// a message and for a field whose wire type differs from the requested one.
class TD_API ProtoReader {
 public:
  /// Advance to the next field; false at the end of the message.
  bool next();
  uint32_t field() const { return field_; }
  ProtoType type() const { return type_; }

  // ---- the value of the current field; read it once
  uint64_t unsigned_value();
  int64_t int_value() { return static_cast<int64_t>(unsigned_value()); }
  bool bool_value() { return unsigned_value() != 0; }
  float float_value();
  double double_value();
  /// A string, bytes field or message as stored in the file.
  std::string_view bytes();
  std::string text() { return std::string(bytes()); }
  ProtoReader message();

  // ---- repeated numbers, packed or one by one: appended
  void append(std::vector<int64_t>& out);
  void append(std::vector<float>& out);
  void append(std::vector<double>& out);

  /// The reader's position in the document, in bytes.
  size_t offset() const { return static_cast<size_t>(at_ - begin_); }
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  friend class ProtoDocument;
  struct State {
    std::string what;
    ProtoLimits limits;
    uint64_t fields = 0;
  };
  ProtoReader(State& state, const char* begin, std::string_view bytes, int depth)
      : state_(&state), begin_(begin), at_(bytes.data()), end_(at_ + bytes.size()), depth_(depth) {}
  uint64_t varint();
  template <class T>
  T fixed();
  void want(ProtoType type);
  void skip();
  void skip_group();

  State* state_;
  const char *begin_, *at_, *end_;
  int depth_;
  uint32_t field_ = 0;
  ProtoType type_ = ProtoType::varint;
  bool pending_ = false;  ///< the value of the current field was not read
};

/// A whole message in memory. `what` names it in errors. Not movable: its readers point to it.
class TD_API ProtoDocument {
 public:
  explicit ProtoDocument(std::string_view bytes, std::string what, ProtoLimits limits = {})
      : bytes_(bytes) {
    state_.what = std::move(what);
    state_.limits = limits;
  }
  ProtoDocument(const ProtoDocument&) = delete;
  ProtoDocument& operator=(const ProtoDocument&) = delete;
  ProtoReader reader() { return ProtoReader(state_, bytes_.data(), bytes_, 0); }

 private:
  std::string_view bytes_;
  ProtoReader::State state_;
};

/// Writes one message; inner messages are written separately and added as bytes.
class TD_API ProtoWriter {
 public:
  ProtoWriter() = default;
  /// `head`: bytes that stand before the message.
  explicit ProtoWriter(std::string head) : out_(std::move(head)) {}
  void add_varint(uint32_t field, uint64_t v);
  void add_int(uint32_t field, int64_t v) { add_varint(field, static_cast<uint64_t>(v)); }
  void add_float(uint32_t field, float v);
  void add_double(uint32_t field, double v);
  void add_bytes(uint32_t field, std::string_view v);
  void add_message(uint32_t field, const ProtoWriter& m) { add_bytes(field, m.str()); }
  void add_packed(uint32_t field, const std::vector<int64_t>& v);
  void add_packed(uint32_t field, const std::vector<float>& v);
  const std::string& str() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void key(uint32_t field, ProtoType type);
  static void put_varint(std::string& out, uint64_t v);
  std::string out_;
};

}  // namespace tandem::io
