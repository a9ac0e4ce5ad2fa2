// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/tensorflow/tensor_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tandem/base/budget.h"
#include "tandem/base/hash/crc32c.h"
#include "tandem/base/small_float.h"
#include "tandem/io/bytes_internal.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/snappy.h"
#include "tandem/tensor/mapped_tensor.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

constexpr TfTypeInfo kTfTypes[] = {
    {1, "float32", 4, DType::f32, 1, true, "DT_FLOAT", 5},
    {2, "float64", 8, DType::f64, 11, true, "DT_DOUBLE", 6},
    {3, "int32", 4, DType::i32, 6, true, "DT_INT32", 7},
    {4, "uint8", 1, DType::u8, 2, true, "DT_UINT8", 7},
    {5, "int16", 2, DType::i16, 5, true, "DT_INT16", 7},
    {6, "int8", 1, DType::i8, 3, true, "DT_INT8", 7},
    {7, "string", 0, DType::u8, 8, false, "DT_STRING", 0},
    {8, "complex64", 0, DType::f32, 14, false, "DT_COMPLEX64", 0},
    {9, "int64", 8, DType::i64, 7, true, "DT_INT64", 10},
    {10, "bool", 1, DType::b8, 9, true, "DT_BOOL", 11},
    {14, "bfloat16", 2, DType::bf16, 16, true, "DT_BFLOAT16", 13},
    {17, "uint16", 2, DType::i32, 4, false, "DT_UINT16", 0},
    {18, "complex128", 0, DType::f64, 15, false, "DT_COMPLEX128", 0},
    {19, "float16", 2, DType::f16, 10, true, "DT_HALF", 13},
    {20, "resource", 0, DType::u8, 0, false, "DT_RESOURCE", 0},
    {21, "variant", 0, DType::u8, 0, false, "DT_VARIANT", 0},
    {22, "uint32", 4, DType::i64, 12, false, "DT_UINT32", 0},
    {23, "uint64", 8, DType::i64, 13, false, "DT_UINT64", 0},
    {24, "float8_e5m2", 1, DType::f32, 19, false, "DT_FLOAT8_E5M2", 0},
    {25, "float8_e4m3fn", 1, DType::f32, 17, false, "DT_FLOAT8_E4M3FN", 0},
};

uint32_t masked_crc(uint32_t c) { return (c >> 15 | c << 17) + 0xA282EAD8U; }

constexpr uint64_t kTableMagic = 0xDB4775248B80FB57;
constexpr size_t kFooter = 48, kTrailer = 5;

struct BlockHandle {
  uint64_t offset = 0, size = 0;
};

// The sorted table: a footer names the block of the index, whose values name the blocks of entries.
class TableReader {
 public:
  TableReader(std::string_view all, const std::string& what) : all_(all), what_(what) {}

  template <class F>  // void(std::string_view key, std::string_view value)
  void each(F&& f) const {
    std::string_view footer = all_.substr(all_.size() - kFooter);
    handle(footer);  // of the meta index, which is empty here
    const std::string index = block(handle(footer));
    walk(index, [&](const std::string&, std::string_view at) {
      const std::string entries = block(handle(at));
      walk(entries, f);
    });
  }

  [[noreturn]] void fail(const std::string& why) const { TD_FAIL(Format, "'{}': {}", what_, why); }

 private:
  uint64_t varint(std::string_view& in) const {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (in.empty()) fail("the table ends within a number");
      const auto byte = static_cast<unsigned char>(in[0]);
      in.remove_prefix(1);
      v |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return v;
    }
    fail("the table has a number of more than 64 bits");
  }
  BlockHandle handle(std::string_view& in) const {
    BlockHandle h;
    h.offset = varint(in);
    h.size = varint(in);
    return h;
  }
  std::string block(const BlockHandle& h) const {
    if (h.offset > all_.size() || h.size > all_.size() - h.offset ||
        all_.size() - h.offset - h.size < kTrailer)
      fail(fmt::format("a block at {} of {} bytes lies outside of the file", h.offset, h.size));
    const std::string_view bytes = all_.substr(h.offset, h.size + 1);
    if (masked_crc(crc32c(bytes)) != number_at<uint32_t>(all_, h.offset + h.size + 1))
      fail(fmt::format("the block at {} is damaged: its checksum is wrong", h.offset));
    const char kind = bytes.back();
    if (kind != 0 && kind != 1)
      fail(
          fmt::format("the block at {} is compressed in an unknown way ({})", h.offset, int{kind}));
    Budget::take(h.size);  // many entries of the index may name one block
    const std::string_view body = bytes.substr(0, h.size);
    return kind == 1 ? snappy_decompress(body, what_) : std::string(body);
  }
  // Keys share their first bytes with the key before; restarts at the end of a block list the keys
  // that do not, and are not needed to read all.
  template <class F>
  void walk(const std::string& block, F&& f) const {
    if (block.size() < 4) fail("a block is truncated");
    const uint64_t restarts = number_at<uint32_t>(block, block.size() - 4);
    if (restarts > (block.size() - 4) / 4) fail("a block is truncated");
    std::string_view in(block.data(), block.size() - 4 - 4 * restarts);
    std::string key;
    while (!in.empty()) {
      Budget::count();
      const uint64_t shared = varint(in), fresh = varint(in), length = varint(in);
      if (shared > key.size() || fresh > in.size() || length > in.size() - fresh)
        fail("an entry of the table lies outside of its block");
      key.resize(shared);
      key.append(in.substr(0, fresh));
      f(key, in.substr(fresh, length));
      in.remove_prefix(fresh + length);
    }
  }

  std::string_view all_;
  const std::string& what_;
};

std::vector<int64_t> shape_field(ProtoReader m) {
  std::vector<int64_t> dims;
  while (m.next()) {
    if (m.field() != 2) continue;
    ProtoReader dim = m.message();
    int64_t size = 0;
    while (dim.next())
      if (dim.field() == 1) size = dim.int_value();
    dims.push_back(size);
    if (dims.size() > kMaxRank) m.fail("a tensor has too many dimensions");
  }
  return dims;
}

TensorBundle::Entry entry_of(ProtoReader m) {
  TensorBundle::Entry e;
  int64_t type = 0;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        type = m.int_value();
        break;
      case 2:
        for (const int64_t d : shape_field(m.message())) {
          if (d < 0 || d >= int64_t{1} << 48) m.fail(fmt::format("a tensor has the size {}", d));
          e.shape.push_back(d);
        }
        break;
      case 3:
        e.shard = m.int_value();
        break;
      case 4:
        e.offset = m.unsigned_value();
        break;
      case 5:
        e.size = m.unsigned_value();
        break;
      case 6: {
        const float bits = m.float_value();  // a fixed32
        std::memcpy(&e.crc, &bits, sizeof e.crc);
        break;
      }
      case 7:
        e.sliced = true;
        break;
      default:
        break;
    }
  }
  e.type = find_tf_type(type);
  if (!e.type) m.fail(fmt::format("a tensor has the element type {}", type));
  return e;
}

/// Elements of a shape, or nothing where they are too many to count.
bool count_elements(const Shape& shape, uint64_t& n) {
  n = 1;
  for (const Dim d : shape)
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d.value()), &n)) return false;
  return n < uint64_t{1} << 58;
}

template <class From, class To>
void widen_elements(std::string_view bytes, void* to, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i)
    static_cast<To*>(to)[i] = static_cast<To>(number_at<From>(bytes, i * sizeof(From)));
}

}  // namespace

const TfTypeInfo& tf_type_of(DType dtype) {
  for (const TfTypeInfo& t : kTfTypes)
    if (t.native && t.carrier == dtype) return t;
  TD_FAIL(Internal, "TensorFlow has no type {}", to_string(dtype));
}
const TfTypeInfo* find_tf_type(int64_t number) {
  for (const TfTypeInfo& t : kTfTypes)
    if (t.number == number) return &t;
  return nullptr;
}

Tensor tensor_of_tf_bytes(const TfTypeInfo& type, const Shape& shape, std::string_view bytes,
                          const std::string& what) {
  TD_CHECK(type.bytes > 0, Unsupported, "'{}' holds {} elements, which are not numbers here", what,
           type.name);
  uint64_t n = 0;
  TD_CHECK(count_elements(shape, n) && bytes.size() == n * type.bytes, Format,
           "'{}' of shape {} expects {} elements of {} bytes, {} bytes are there", what,
           shape.to_string(), type.name, int{type.bytes}, bytes.size());
  const Tensor out(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, type.carrier, cpu)));
  void* to = out.impl()->data;
  if (n == 0) return out;
  if (type.carrier == DType::b8) {
    for (uint64_t i = 0; i < n; ++i) static_cast<bool*>(to)[i] = bytes[i] != 0;
  } else if (type.native || type.bytes == 8) {
    std::memcpy(to, bytes.data(), bytes.size());
  } else if (type.bytes == 1) {
    const SmallFloat kind = type.onnx == 19 ? SmallFloat::e5m2 : SmallFloat::e4m3fn;
    for (uint64_t i = 0; i < n; ++i)
      static_cast<float*>(to)[i] = decode(kind, static_cast<uint8_t>(bytes[i]));
  } else if (type.bytes == 2) {
    widen_elements<uint16_t, int32_t>(bytes, to, n);
  } else {
    widen_elements<uint32_t, int64_t>(bytes, to, n);
  }
  return out;
}

bool TensorBundle::is_index(std::string_view content) {
  return content.size() >= kFooter &&
         number_at<uint64_t>(content, content.size() - 8) == kTableMagic;
}

TensorBundle::TensorBundle(const FilePath& index) {
  std::string prefix = index.str();
  if (prefix.ends_with(".index")) prefix.resize(prefix.size() - 6);
  const bool bare = !index.str().ends_with(".index") && file_exists(index.str());
  path_ = bare ? index.str() : prefix + ".index";
  const auto file = make_ref<MappedFile>(path_);
  Budget::add_given(file->size());
  TD_CHECK(is_index(file->view()), Format, "'{}': this is not the index of a checkpoint", path_);
  int64_t shards = 1;
  TableReader(file->view(), path_).each([&](const std::string& key, std::string_view value) {
    ProtoDocument document(value, path_);
    ProtoReader m = document.reader();
    if (!key.empty()) {
      if (key[0] == '\0') return;  // a slice of a tensor
      Budget::take(key.size());    // a few bytes of the file stand for all that it shares
      entries_[key] = entry_of(m);
      return;
    }
    while (m.next()) {
      if (m.field() == 1) shards = m.int_value();
      if (m.field() == 2 && m.int_value() != 0) m.fail("the checkpoint is big-endian");
    }
    if (shards < 0 || shards > 65536) m.fail(fmt::format("it has {} shards", shards));
  });
  std::vector<char> used(static_cast<size_t>(shards), 0);
  for (const auto& [name, e] : entries_) {
    TD_CHECK(e.shard >= 0 && e.shard < shards, Format, "'{}': '{}' is in shard {} of {}", path_,
             name, e.shard, shards);
    used[static_cast<size_t>(e.shard)] = 1;
  }
  shards_.resize(static_cast<size_t>(shards));
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    shards_[i] = make_ref<MappedFile>(fmt::format("{}.data-{:05}-of-{:05}", prefix, i, shards));
    Budget::add_given(shards_[i]->size());
  }
}

const TensorBundle::Entry* TensorBundle::find(const std::string& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

const TensorBundle::Entry& TensorBundle::entry(const std::string& name) const {
  const Entry* e = find(name);
  TD_CHECK(e, Value, "'{}': there is no tensor '{}' in this checkpoint", path_, name);
  TD_CHECK(!e->sliced, Unsupported,
           "'{}': '{}' is stored in slices, as partitioned variables are, which is not supported",
           path_, name);
  return *e;
}

std::string_view TensorBundle::bytes_of(const std::string& name, const Entry& e) const {
  const std::string_view all = shards_[static_cast<size_t>(e.shard)]->view();
  TD_CHECK(e.offset <= all.size() && e.size <= all.size() - e.offset, Format,
           "'{}': '{}' is at {} to {} of '{}', which has {} bytes", path_, name, e.offset,
           e.offset + e.size, shards_[static_cast<size_t>(e.shard)]->path(), all.size());
  return all.substr(e.offset, e.size);
}

Tensor TensorBundle::tensor(const std::string& name) const {
  const Entry& e = entry(name);
  const std::string_view bytes = bytes_of(name, e);
  TD_CHECK(e.type->bytes > 0, Unsupported,
           "'{}': '{}' holds {} elements, which are not numbers here", path_, name, e.type->name);
  TD_CHECK(masked_crc(crc32c(bytes)) == e.crc, Format,
           "'{}': '{}' is damaged: its checksum is wrong", path_, name);
  uint64_t n = 0;
  const bool whole = count_elements(e.shape, n) && n * e.type->bytes == bytes.size();
  if (!whole || !e.type->native || e.type->carrier == DType::b8 || n == 0 ||
      reinterpret_cast<uintptr_t>(bytes.data()) % e.type->bytes != 0)
    return tensor_of_tf_bytes(*e.type, e.shape, bytes, path_ + ": " + name);
  return detail::mapped_tensor(shards_[static_cast<size_t>(e.shard)], bytes.data(), e.shape,
                               e.type->carrier);
}

// Lengths as varints, a checksum over them as 32-bit numbers, the texts; the checksum of the entry
// covers the lengths as 32-bit numbers, that checksum and the texts.
std::vector<std::string> TensorBundle::strings(const std::string& name) const {
  const Entry& e = entry(name);
  const std::string where = fmt::format("'{}': '{}'", path_, name);
  TD_CHECK(e.type->number == 7, Format, "{} holds {} elements, not strings", where, e.type->name);
  std::string_view in = bytes_of(name, e);
  uint64_t n = 0;
  TD_CHECK(count_elements(e.shape, n) && n <= in.size(), Format, "{} is truncated", where);
  std::vector<uint64_t> lengths;
  uint32_t crc = 0;
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t length = 0;
    for (int shift = 0;; shift += 7) {
      TD_CHECK(!in.empty() && shift < 35, Format, "{} has no valid lengths", where);
      const auto byte = static_cast<unsigned char>(in[0]);
      in.remove_prefix(1);
      length |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    const auto narrow = static_cast<uint32_t>(length);
    crc = crc32c({reinterpret_cast<const char*>(&narrow), sizeof narrow}, crc);
    lengths.push_back(length);
  }
  TD_CHECK(in.size() >= 4, Format, "{} is truncated", where);
  TD_CHECK(masked_crc(crc) == number_at<uint32_t>(in, 0), Format,
           "{} is damaged: the checksum of its lengths is wrong", where);
  crc = crc32c(in.substr(0, 4), crc);
  in.remove_prefix(4);
  TD_CHECK(masked_crc(crc32c(in, crc)) == e.crc, Format, "{} is damaged: its checksum is wrong",
           where);
  std::vector<std::string> out;
  for (const uint64_t length : lengths) {
    TD_CHECK(length <= in.size(), Format, "{} is truncated", where);
    Budget::take(sizeof(std::string) + length);
    Budget::give_back(sizeof(std::string) + length);
    out.emplace_back(in.substr(0, length));
    in.remove_prefix(length);
  }
  TD_CHECK(in.empty(), Format, "{} has more bytes than its strings", where);
  return out;
}

}  // namespace tandem::io
