// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/flatbuffer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/io/bytes_internal.h"

namespace tandem::io {

void FlatDocument::fail(uint64_t at, const std::string& reason) const {
  TD_FAIL(Format, "'{}': byte {}: {}", what_, at, reason);
}

std::string_view FlatDocument::identifier() const {
  return bytes_.size() < 8 ? std::string_view() : bytes_.substr(4, 4);
}

/// What an offset at byte `at` leads to. Offsets are unsigned and lead forwards.
uint64_t FlatDocument::offset_at(uint64_t at) const {
  if (bytes_.size() < 4 || at > bytes_.size() - 4) fail(at, "an offset is not in the file");
  const uint64_t to = at + number_at<uint32_t>(bytes_, at);
  if (to == at || to > bytes_.size() - 4) fail(at, "an offset leads out of the file");
  return to;
}

FlatTable FlatDocument::root() const { return {*this, offset_at(0)}; }

FlatTable::FlatTable(const FlatDocument& document, uint64_t at) : document_(&document), at_(at) {
  Budget::count();
  const std::string_view all = document.bytes_;
  if (all.size() < 4 || at > all.size() - 4) document.fail(at, "a table is not in the file");
  const int64_t vtable = static_cast<int64_t>(at) - number_at<int32_t>(all, at);
  if (vtable < 0 || vtable > static_cast<int64_t>(all.size()) - 4)
    document.fail(at, "a table's list of fields is not in the file");
  vtable_ = static_cast<uint64_t>(vtable);
  vtable_bytes_ = number_at<uint16_t>(all, vtable_);
  table_bytes_ = number_at<uint16_t>(all, vtable_ + 2);
  if (vtable_bytes_ < 4 || vtable_bytes_ % 2 != 0 || vtable_bytes_ > all.size() - vtable_)
    document.fail(vtable_, "a table's list of fields has an impossible size");
  if (table_bytes_ < 4 || table_bytes_ > all.size() - at)
    document.fail(at, "a table has an impossible size");
}

uint64_t FlatTable::field_at(int field, uint64_t bytes) const {
  const uint64_t entry = 4 + 2 * static_cast<uint64_t>(field);
  if (entry + 2 > vtable_bytes_) return 0;
  const uint16_t from = number_at<uint16_t>(document_->bytes_, vtable_ + entry);
  if (from == 0) return 0;
  if (from < 4 || from + bytes > table_bytes_)
    document_->fail(at_, fmt::format("field {} is not in its table", field));
  return at_ + from;
}

FlatTable::Vector FlatTable::vector(int field, uint64_t width, uint64_t most) const {
  const uint64_t at = exists() ? field_at(field, 4) : 0;
  if (at == 0) return {};
  const uint64_t to = document_->offset_at(at);
  const uint64_t n = number_at<uint32_t>(document_->bytes_, to);
  if (n > (document_->bytes_.size() - to - 4) / width)
    document_->fail(to, fmt::format("{} entries of a vector are not in the file", n));
  if (n > most)
    document_->fail(to, fmt::format("a vector has {} entries, at most {} are possible", n, most));
  Budget::count(1 + n / 16);
  Budget::take(n * width);
  return {to + 4, n};
}

std::string_view FlatTable::bytes(int field) const {
  const uint64_t at = exists() ? field_at(field, 4) : 0;
  if (at == 0) return {};
  const uint64_t to = document_->offset_at(at);
  const uint64_t n = number_at<uint32_t>(document_->bytes_, to);
  if (n > document_->bytes_.size() - to - 4)
    document_->fail(to, fmt::format("{} bytes of a vector are not in the file", n));
  return document_->bytes_.substr(to + 4, n);
}

FlatTable FlatTable::table(int field) const {
  const uint64_t at = exists() ? field_at(field, 4) : 0;
  return at == 0 ? FlatTable() : FlatTable(*document_, document_->offset_at(at));
}

FlatTable FlatTable::entry(int field, uint64_t i) const {
  const uint64_t to = document_->offset_at(field_at(field, 4));  // size() has looked at it
  return {*document_, document_->offset_at(to + 4 + 4 * i)};
}

// ---- writing

void FlatWriter::add_vector(int field, std::string_view bytes, uint64_t count, uint64_t alignment) {
  fields_.push_back(
      {field, Kind::vector, std::string(bytes), count, std::max<uint64_t>(4, alignment)});
}
void FlatWriter::add_text(int field, std::string_view v) {
  add_vector(field, v, v.size(), 4);
  fields_.back().bytes.push_back('\0');
}
void FlatWriter::add_bytes(int field, std::string_view v, uint64_t alignment) {
  add_vector(field, v, v.size(), alignment);
}
void FlatWriter::add_table(int field, FlatWriter t) {
  fields_.push_back({field, Kind::table, std::string(4, '\0')});
  fields_.back().tables.push_back(std::move(t));
}
void FlatWriter::add_tables(int field, std::vector<FlatWriter> t) {
  fields_.push_back({field, Kind::tables, std::string(4, '\0'), t.size()});
  fields_.back().tables = std::move(t);
}

namespace {
void pad_flat(std::string& out, uint64_t alignment, uint64_t ahead = 0) {
  out.append((alignment - (out.size() + ahead) % alignment) % alignment, '\0');
}
void set_offset(std::string& out, uint64_t at, uint64_t to) {
  TD_CHECK(to >> 31 == 0, Value, "a flatbuffer holds less than 2 GB");
  const auto offset = static_cast<uint32_t>(to - at);
  std::memcpy(out.data() + at, &offset, sizeof offset);
}
}  // namespace

uint64_t FlatWriter::write_field(std::string& out, const Field& f) {
  if (f.kind == Kind::table) return f.tables[0].write(out);
  pad_flat(out, f.alignment, 4);
  const uint64_t at = out.size();
  append_number(out, static_cast<uint32_t>(f.count));
  if (f.kind == Kind::vector) {
    out += f.bytes;
    return at;
  }
  out.append(4 * f.tables.size(), '\0');
  for (uint64_t i = 0; i < f.tables.size(); ++i) {
    const uint64_t entry = f.tables[i].write(out);
    set_offset(out, at + 4 + 4 * i, entry);
  }
  return at;
}

// The list of fields, then the table, then what its offsets lead to: all of them lead forwards.
uint64_t FlatWriter::write(std::string& out) const {
  uint64_t fields = 0;
  for (const Field& f : fields_) fields = std::max(fields, static_cast<uint64_t>(f.number) + 1);
  std::string table(4, '\0');
  std::vector<uint16_t> vtable(2 + fields);
  std::vector<uint64_t> places;
  for (const Field& f : fields_) {
    const uint64_t width = f.kind == Kind::number ? f.bytes.size() : 4;
    pad_flat(table, width);
    places.push_back(table.size());
    vtable[2 + static_cast<size_t>(f.number)] = static_cast<uint16_t>(table.size());
    table += f.kind == Kind::number ? f.bytes : std::string(4, '\0');
  }
  vtable[0] = static_cast<uint16_t>(2 * vtable.size());
  vtable[1] = static_cast<uint16_t>(table.size());
  pad_flat(out, 8, vtable[0]);
  const uint64_t at = out.size() + vtable[0];
  const auto back = static_cast<int32_t>(vtable[0]);
  std::memcpy(table.data(), &back, sizeof back);
  out.append(reinterpret_cast<const char*>(vtable.data()), vtable[0]);
  out += table;
  for (size_t i = 0; i < fields_.size(); ++i)
    if (fields_[i].kind != Kind::number)
      set_offset(out, at + places[i], write_field(out, fields_[i]));
  return at;
}

std::string FlatWriter::finish(std::string_view identifier) const {
  std::string out(4, '\0');
  out += identifier;
  const uint64_t root = write(out);
  set_offset(out, 0, root);
  return out;
}

}  // namespace tandem::io
