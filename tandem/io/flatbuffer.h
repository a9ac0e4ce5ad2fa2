// SPDX-License-Identifier: Apache-2.0
// FlatBuffers read and written without a schema: the tables of a file by the numbers of their
// fields. The reader copies nothing and trusts nothing: every offset, vtable and vector is compared
// with the bytes before it is followed. https://flatbuffers.dev/internals
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::io {

class FlatDocument;

/// One table. A view of the document, which must outlive it. An absent table has no fields, so that
/// every read gives its default. Everything throws Format, naming the document, the byte and the
/// reason, where the bytes are no such thing.
class TD_API FlatTable {
 public:
  FlatTable() = default;
  bool exists() const { return document_ != nullptr; }
  bool has(int field) const { return exists() && field_at(field, 1) != 0; }

  /// A number or, with T of one byte, an enumerator, a condition or a union's type.
  template <class T>
  T number(int field, T otherwise = {}) const {
    const uint64_t at = exists() ? field_at(field, sizeof(T)) : 0;
    if (at == 0) return otherwise;
    T v;
    std::memcpy(&v, begin() + at, sizeof v);
    return v;
  }
  /// The entries of a vector of numbers, at most `most`; none where it is absent.
  template <class T>
  std::vector<T> numbers(int field, uint64_t most = uint64_t{1} << 28) const {
    const Vector v = vector(field, sizeof(T), most);
    std::vector<T> out(v.size);
    if (v.size) std::memcpy(out.data(), begin() + v.at, v.size * sizeof(T));
    return out;
  }
  /// A vector of bytes or a string, as it stands in the file.
  std::string_view bytes(int field) const;
  std::string text(int field) const { return std::string(bytes(field)); }
  /// A table or a union's value.
  FlatTable table(int field) const;
  /// Entries of a vector of tables, and one of them.
  uint64_t size(int field) const { return vector(field, 4, uint64_t{1} << 28).size; }
  FlatTable entry(int field, uint64_t i) const;

 private:
  friend class FlatDocument;
  struct Vector {
    uint64_t at = 0, size = 0;
  };
  FlatTable(const FlatDocument& document, uint64_t at);
  const char* begin() const;
  /// Where a field of that many bytes lies; 0: it has its default.
  uint64_t field_at(int field, uint64_t bytes) const;
  Vector vector(int field, uint64_t width, uint64_t most) const;

  const FlatDocument* document_ = nullptr;
  uint64_t at_ = 0, vtable_ = 0;
  uint16_t vtable_bytes_ = 0, table_bytes_ = 0;
};

/// A whole file in memory. `what` names it in errors. Not movable: its tables point to it.
class TD_API FlatDocument {
 public:
  FlatDocument(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}
  FlatDocument(const FlatDocument&) = delete;
  FlatDocument& operator=(const FlatDocument&) = delete;
  FlatTable root() const;
  /// The four letters after the root's offset that name a kind of file; "" for a short one.
  std::string_view identifier() const;
  std::string_view bytes() const { return bytes_; }
  [[noreturn]] void fail(uint64_t at, const std::string& reason) const;

 private:
  friend class FlatTable;
  uint64_t offset_at(uint64_t at) const;
  std::string_view bytes_;
  std::string what_;
};

/// A table that is being made, with all that it holds.
class TD_API FlatWriter {
 public:
  template <class T>
  void add(int field, T v) {
    fields_.push_back(
        {field, Kind::number, std::string(reinterpret_cast<const char*>(&v), sizeof v)});
  }
  void add_text(int field, std::string_view v);
  /// A vector of bytes; their place in the file is a multiple of `alignment`.
  void add_bytes(int field, std::string_view v, uint64_t alignment = 4);
  template <class T>
  void add_numbers(int field, const std::vector<T>& v) {
    add_vector(field, {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)}, v.size(),
               sizeof(T));
  }
  void add_table(int field, FlatWriter t);
  void add_tables(int field, std::vector<FlatWriter> t);
  /// The file whose root this is. Throws Value beyond 2 GB.
  std::string finish(std::string_view identifier) const;

 private:
  enum class Kind : uint8_t { number, vector, table, tables };
  struct Field {
    int number = 0;
    Kind kind = Kind::number;
    std::string bytes;
    uint64_t count = 0, alignment = 4;
    std::vector<FlatWriter> tables = {};
  };
  void add_vector(int field, std::string_view bytes, uint64_t count, uint64_t alignment);
  uint64_t write(std::string& out) const;
  static uint64_t write_field(std::string& out, const Field& f);
  std::vector<Field> fields_;
};

inline const char* FlatTable::begin() const { return document_->bytes_.data(); }

}  // namespace tandem::io
