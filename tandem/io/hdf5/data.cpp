// SPDX-License-Identifier: Apache-2.0
// Types, shapes and elements of HDF5 datasets and attributes.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tandem/io/bytes_internal.h"
#include "tandem/io/hdf5/hdf5_internal.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

constexpr int kSpace = 0x1, kType = 0x3, kFill = 0x5, kLayout = 0x8, kFilters = 0xB;
constexpr uint64_t kMostElements = uint64_t{1} << 40;

struct Filter {
  uint64_t id = 0;
  std::vector<uint64_t> values;
};

std::vector<Filter> filters_of(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages) {
  std::vector<Filter> out;
  const Hdf5Message* m = find_hdf5_message(messages, kFilters);
  if (!m) return out;
  Hdf5Cursor in(f, m->data, "the list of filters");
  const uint64_t version = in.byte(), n = in.byte();
  if (version != 1 && version != 2) f.fail("the list of filters has an unknown version");
  if (version == 1) in.skip(6);
  for (uint64_t i = 0; i < n; ++i) {
    Filter filter;
    filter.id = in.number(2);
    const uint64_t name = version == 1 || filter.id >= 256 ? in.number(2) : 0;
    in.skip(2);
    const uint64_t values = in.number(2);
    in.skip(version == 1 ? (name + 7) / 8 * 8 : name);
    for (uint64_t k = 0; k < values; ++k) filter.values.push_back(in.number(4));
    if (version == 1 && values % 2 == 1) in.skip(4);
    if (filter.id < 1 || filter.id > 3)
      f.lacks(
          fmt::format("the filter {} of a dataset (only deflate, shuffle and Fletcher's "
                      "checksum are)",
                      filter.id));
    out.push_back(std::move(filter));
  }
  return out;
}

std::string inflated(const Hdf5Bytes& f, std::string_view packed, uint64_t size) {
  std::string out(size, '\0');
  z_stream z = {};
  if (packed.size() > kZlibPiece || size > kZlibPiece) f.lacks("a chunk of more than 1 GiB");
  if (inflateInit(&z) != Z_OK) TD_FAIL(Memory, "zlib has no memory");
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(size);
  const int r = inflate(&z, Z_FINISH);
  const uint64_t got = z.total_out;
  inflateEnd(&z);
  if (r != Z_STREAM_END) f.fail("a compressed chunk is damaged or longer than its elements");
  out.resize(got);
  return out;
}

/// Undo the shuffle filter, which stores the first bytes of all elements, then the second ones ...
std::string unshuffled(std::string_view in, uint64_t width) {
  std::string out(in);
  const uint64_t n = width ? in.size() / width : 0;
  for (uint64_t b = 0; b < width; ++b)
    for (uint64_t i = 0; i < n; ++i) out[i * width + b] = in[b * n + i];
  return out;
}

std::string unfiltered(const Hdf5Bytes& f, const std::vector<Filter>& filters, uint64_t mask,
                       std::string_view stored, uint64_t size, uint64_t width) {
  const BudgetHold hold(2 * size);
  std::string out(stored);
  for (size_t i = filters.size(); i-- > 0;) {
    if (i < 32 && mask >> i & 1) continue;
    if (filters[i].id == 1) out = inflated(f, out, size + 4);
    if (filters[i].id == 2)
      out = unshuffled(out, filters[i].values.empty() ? width : filters[i].values[0]);
    if (filters[i].id == 3) {
      if (out.size() < 4) f.fail("a chunk is truncated");
      out.resize(out.size() - 4);
    }
  }
  if (out.size() != size)
    f.fail(fmt::format("a chunk has {} bytes, its elements need {}", out.size(), size));
  return out;
}

/// A dataset's elements in one block.
class DataReader {
 public:
  DataReader(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages, const Hdf5Type& type,
             const Shape& shape)
      : f_(f), messages_(messages), width_(type.size) {
    for (const Dim d : shape) sizes_.push_back(static_cast<uint64_t>(d.value()));
    bytes_ = hdf5_count(f, shape) * width_;
  }

  /// A view of the file, or of `out`.
  std::string_view run(std::string& out) {
    const Hdf5Message* m = find_hdf5_message(messages_, kLayout);
    if (!m) f_.fail("a dataset has no layout");
    Hdf5Cursor in(f_, m->data, "a layout");
    const uint64_t version = in.byte();
    if (version < 1 || version > 4) f_.fail(fmt::format("a layout has the version {}", version));
    if (version < 3) return old_layout(in, out);
    const uint64_t kind = in.byte();
    if (kind == 0) return plain(in.bytes_of(in.number(2)));
    if (kind == 1) {
      const uint64_t at = in.address();
      return contiguous(at, in.length(), out);
    }
    if (kind != 2) f_.lacks("a virtual dataset");
    version == 3 ? chunked(in, out) : chunked_modern(in, out);
    return out;
  }

 private:
  std::string_view plain(std::string_view data) const {
    if (data.size() < bytes_)
      f_.fail(fmt::format("a dataset has {} bytes, its shape needs {}", data.size(), bytes_));
    return data.substr(0, bytes_);
  }
  std::string_view contiguous(uint64_t at, uint64_t size, std::string& out) {
    if (at == kNoHdf5Address) {  // never written: fill values
      fill(out);
      return out;
    }
    return plain(f_.at(at, size, "a dataset"));
  }
  std::string_view old_layout(Hdf5Cursor& in, std::string& out) {
    const uint64_t rank = in.byte(), kind = in.byte();
    in.skip(5);
    const uint64_t at = kind == 0 ? 0 : in.address();
    std::vector<uint64_t> dims;
    for (uint64_t i = 0; i < rank; ++i) dims.push_back(in.number(4));
    if (kind == 0) return plain(in.bytes_of(in.number(4)));
    if (kind == 1) return contiguous(at, bytes_, out);
    if (kind != 2) f_.fail("a layout is of an unknown kind");
    set_chunk(dims);
    fill(out);
    walk(at, out, 0);
    return out;
  }
  void fill(std::string& out) const {
    Budget::take(bytes_);
    Budget::give_back(bytes_);
    out.assign(bytes_, '\0');
    const Hdf5Message* m = find_hdf5_message(messages_, kFill);
    if (!m) return;
    Hdf5Cursor in(f_, m->data, "a fill value");
    const uint64_t version = in.byte();
    if (version == 1 || version == 2) {
      in.skip(2);
      if (in.byte() == 0 && version == 2) return;
    } else if (version == 3) {
      if (!(in.byte() & 0x20)) return;
    } else {
      f_.fail("a fill value has an unknown version");
    }
    const std::string_view v = in.bytes_of(in.number(4));
    if (v.size() != width_) return;
    for (uint64_t i = 0; i < bytes_; i += width_) std::memcpy(out.data() + i, v.data(), width_);
  }
  void set_chunk(std::vector<uint64_t> dims) {
    if (dims.size() != sizes_.size() + 1 || dims.back() != width_)
      f_.fail("the chunks of a dataset do not fit its shape");
    dims.pop_back();
    chunk_bytes_ = width_;
    for (const uint64_t d : dims)
      if (d == 0 || d > kMostElements || __builtin_mul_overflow(chunk_bytes_, d, &chunk_bytes_) ||
          chunk_bytes_ > uint64_t{1} << 40)
        f_.fail("the chunks of a dataset have impossible sizes");
    chunk_ = std::move(dims);
    filters_ = filters_of(f_, messages_);
  }
  void chunked(Hdf5Cursor& in, std::string& out) {
    const uint64_t rank = in.byte(), at = in.address();
    std::vector<uint64_t> dims;
    for (uint64_t i = 0; i < rank; ++i) dims.push_back(in.number(4));
    set_chunk(std::move(dims));
    fill(out);
    if (at != kNoHdf5Address) walk(at, out, 0);
  }
  void chunked_modern(Hdf5Cursor& in, std::string& out) {
    const uint64_t flags = in.byte(), rank = in.byte();
    const int size = static_cast<int>(in.byte());
    if (size < 1 || size > 8) f_.fail("the chunks of a dataset have impossible sizes");
    std::vector<uint64_t> dims;
    for (uint64_t i = 0; i < rank; ++i) dims.push_back(in.number(size));
    set_chunk(std::move(dims));
    fill(out);
    const uint64_t index = in.byte();
    if (index == 1) {  // one chunk
      uint64_t stored = chunk_bytes_, mask = 0;
      if (flags & 2) {
        stored = in.length();
        mask = in.number(4);
      }
      const uint64_t at = in.address();
      if (at != kNoHdf5Address)
        place(f_.at(at, stored, "a chunk"), mask, std::vector<uint64_t>(sizes_.size(), 0), out);
      return;
    }
    if (index != 2) f_.lacks("a dataset whose chunks grow (index of version 4)");
    const uint64_t at = in.address();  // all chunks in order
    if (at == kNoHdf5Address) return;
    std::vector<uint64_t> place_at(sizes_.size(), 0);
    for (uint64_t i = 0; next(place_at, i); ++i)
      place(f_.at(at + i * chunk_bytes_, chunk_bytes_, "a chunk"), 0, place_at, out);
  }
  /// The offsets of chunk i in row-major order; false after the last one.
  bool next(std::vector<uint64_t>& at, uint64_t i) const {
    for (size_t d = sizes_.size(); d-- > 0;) {
      const uint64_t n = (sizes_[d] + chunk_[d] - 1) / chunk_[d];
      if (n == 0) return false;
      at[d] = i % n * chunk_[d];
      i /= n;
    }
    return i == 0;
  }
  void walk(uint64_t address, std::string& out, int depth) {
    if (depth > kMostHdf5Depth || !seen_.insert(address).second)
      f_.fail("the chunks' tree leads back into itself");
    Hdf5Cursor in(f_, f_.all.substr(std::min<uint64_t>(address, f_.all.size())),
                  "a node of chunks");
    in.signature("TREE");
    if (in.byte() != 1) f_.fail("the chunks' tree has nodes of another kind");
    const uint64_t level = in.byte(), n = in.number(2);
    in.address();
    in.address();
    for (uint64_t i = 0; i < n; ++i) {
      Budget::count();
      const uint64_t stored = in.number(4), mask = in.number(4);
      std::vector<uint64_t> at;
      for (size_t d = 0; d < sizes_.size(); ++d) at.push_back(in.number(8));
      in.skip(8);
      const uint64_t child = in.address();
      if (level > 0)
        walk(child, out, depth + 1);
      else
        place(f_.at(child, stored, "a chunk"), mask, at, out);
    }
  }
  void place(std::string_view stored, uint64_t mask, const std::vector<uint64_t>& at,
             std::string& out) {
    for (size_t d = 0; d < at.size(); ++d)
      if (at[d] >= sizes_[d] || at[d] % chunk_[d] != 0)
        f_.fail("a chunk lies outside of its dataset");
    Budget::work(static_cast<double>(chunk_bytes_));
    Budget::check_time();
    if (filters_.empty() && stored.size() < chunk_bytes_) f_.fail("a chunk is truncated");
    std::string held;
    std::string_view chunk = stored;
    if (!filters_.empty())
      chunk = held = unfiltered(f_, filters_, mask, stored, chunk_bytes_, width_);
    copy(chunk, 0, 0, 0, at, out);
  }
  void copy(std::string_view chunk, size_t d, uint64_t from, uint64_t to,
            const std::vector<uint64_t>& at, std::string& out) const {
    if (d == sizes_.size()) {
      std::memcpy(out.data() + to * width_, chunk.data() + from * width_, width_);
      return;
    }
    const uint64_t n = std::min(chunk_[d], sizes_[d] - at[d]);
    from *= chunk_[d];
    to = to * sizes_[d] + at[d];
    if (d + 1 == sizes_.size()) {
      std::memcpy(out.data() + to * width_, chunk.data() + from * width_, n * width_);
      return;
    }
    for (uint64_t i = 0; i < n; ++i) copy(chunk, d + 1, from + i, to + i, at, out);
  }

  const Hdf5Bytes& f_;
  const std::vector<Hdf5Message>& messages_;
  uint64_t width_, bytes_ = 0, chunk_bytes_ = 0;
  std::vector<uint64_t> sizes_, chunk_;
  std::vector<Filter> filters_;
  std::set<uint64_t> seen_;
};

struct Stored {
  DType dtype;
  bool direct;  ///< the bytes are those of the dtype
};

Stored stored_as(const Hdf5Bytes& f, const Hdf5Type& t) {
  if (t.kind == Hdf5Type::Kind::boolean) return {DType::b8, true};
  if (t.kind == Hdf5Type::Kind::floating) {
    if (t.size == 4 && t.exponent == 8 && t.mantissa == 23) return {DType::f32, true};
    if (t.size == 8 && t.exponent == 11 && t.mantissa == 52) return {DType::f64, true};
    if (t.size == 2 && t.exponent == 5 && t.mantissa == 10) return {DType::f16, true};
    if (t.size == 2 && t.exponent == 8 && t.mantissa == 7) return {DType::bf16, true};
  } else if (t.kind == Hdf5Type::Kind::integer) {
    if (t.size == 1) return {t.is_signed ? DType::i8 : DType::u8, true};
    if (t.size == 2) return {t.is_signed ? DType::i16 : DType::i32, t.is_signed};
    if (t.size == 4) return {t.is_signed ? DType::i32 : DType::i64, t.is_signed};
    if (t.size == 8) return {DType::i64, true};
  }
  f.lacks("a dataset of another type than numbers and booleans");
}

}  // namespace

Hdf5Type hdf5_type(const Hdf5Bytes& f, std::string_view data) {
  Hdf5Cursor in(f, data, "a type");
  const uint64_t head = in.byte(), bits = in.number(3);
  Hdf5Type t;
  t.size = in.number(4);
  t.big_endian = bits & 1;
  switch (head & 15) {
    case 0:
      t.kind = Hdf5Type::Kind::integer;
      t.is_signed = bits & 8;
      break;
    case 1:
      t.kind = Hdf5Type::Kind::floating;
      in.skip(5);
      t.exponent = static_cast<int>(in.byte());
      in.skip(1);
      t.mantissa = static_cast<int>(in.byte());
      if (bits & 0x40) f.lacks("a floating type in VAX order");
      break;
    case 3:
      t.kind = Hdf5Type::Kind::text;
      break;
    case 8: {  // an enumeration: h5py's booleans are one over a byte
      const Hdf5Type base = hdf5_type(f, in.rest());
      t.kind = base.size == 1 && t.size == 1 ? Hdf5Type::Kind::boolean : Hdf5Type::Kind::other;
      break;
    }
    case 9:
      t.kind = (bits & 15) == 1 ? Hdf5Type::Kind::variable_text : Hdf5Type::Kind::other;
      break;
    default:
      break;
  }
  if (t.size == 0 || t.size > (uint64_t{1} << 24)) {
    if (t.kind != Hdf5Type::Kind::text || t.size > (uint64_t{1} << 31))
      f.fail(fmt::format("a type has elements of {} bytes", t.size));
  }
  return t;
}

Shape hdf5_shape(const Hdf5Bytes& f, std::string_view data) {
  Hdf5Cursor in(f, data, "a dataspace");
  const uint64_t version = in.byte(), rank = in.byte();
  in.skip(1);
  if (version != 1 && version != 2) f.fail("a dataspace has an unknown version");
  if (version == 2 && in.byte() == 2) return Shape(0);
  if (version == 1) in.skip(5);
  if (rank > kMaxRank)
    f.fail(fmt::format("a dataset has {} dimensions, at most {} are possible", rank, kMaxRank));
  Shape s;
  for (uint64_t i = 0; i < rank; ++i) {
    const uint64_t d = in.length();
    if (d > kMostElements) f.fail(fmt::format("a dataset has a dimension of size {}", d));
    s.push_back(static_cast<int64_t>(d));
  }
  return s;
}

uint64_t hdf5_count(const Hdf5Bytes& f, const Shape& shape) {
  uint64_t n = 1;
  for (const Dim d : shape)
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d.value()), &n) || n > kMostElements)
      f.fail(fmt::format("a dataset of shape {} is too large", shape.to_string()));
  return n;
}

std::vector<std::string> hdf5_texts(const Hdf5Bytes& f, const Hdf5Type& type, uint64_t count,
                                    std::string_view bytes) {
  uint64_t all = 0;
  if (__builtin_mul_overflow(count, type.size, &all) || all > bytes.size())
    f.fail("an attribute's strings are truncated");
  std::vector<std::string> out;
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view text = bytes.substr(i * type.size, type.size);
    if (type.kind == Hdf5Type::Kind::variable_text) {  // length, address and number in a heap
      Hdf5Cursor in(f, text, "a string");
      const uint64_t length = in.number(4), heap = in.address(), wanted = in.number(4);
      text = {};
      if (length > 0) {
        Hdf5Cursor h(f, f.all.substr(std::min<uint64_t>(heap, f.all.size())), "a heap of strings");
        h.signature("GCOL");
        h.skip(4);
        const uint64_t head = 8 + static_cast<uint64_t>(f.length_size), size = h.length();
        Hdf5Cursor objects(f, h.bytes_of(size < head ? 0 : size - head), "a heap of strings");
        for (;;) {
          Budget::count();
          const uint64_t index = objects.number(2);
          objects.skip(6);
          const uint64_t n = objects.length();
          if (index == 0) f.fail("a string is not in its heap");
          if (n > objects.left()) f.fail("a heap of strings is truncated");
          const std::string_view object =
              objects.bytes_of(std::min<uint64_t>((n + 7) / 8 * 8, objects.left()));
          if (index != wanted) continue;
          if (length > n) f.fail("a string is longer than its bytes");
          text = object.substr(0, length);
          break;
        }
      }
    }
    Budget::take(sizeof(std::string) + text.size());
    Budget::give_back(sizeof(std::string) + text.size());
    out.emplace_back(text.substr(0, text.find('\0')));
  }
  return out;
}

Tensor read_hdf5_dataset(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages) {
  const Hdf5Message *type_at = find_hdf5_message(messages, kType),
                    *space_at = find_hdf5_message(messages, kSpace);
  if (!type_at || !space_at) f.fail("this is a group, not a dataset");
  const Hdf5Type type = hdf5_type(f, type_at->data);
  const Shape shape = hdf5_shape(f, space_at->data);
  const Stored as = stored_as(f, type);
  const auto n = static_cast<int64_t>(hdf5_count(f, shape));
  std::string held;
  std::string_view bytes = DataReader(f, messages, type, shape).run(held);
  if (type.big_endian && type.size > 1) {
    std::string turned(bytes);
    for (size_t i = 0; i < turned.size(); i += type.size)
      std::reverse(turned.begin() + static_cast<std::ptrdiff_t>(i),
                   turned.begin() + static_cast<std::ptrdiff_t>(i + type.size));
    held = std::move(turned);
    bytes = held;
  }
  const Tensor out(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, as.dtype, cpu)));
  void* to = out.impl()->data;
  if (n == 0) return out;
  if (type.kind == Hdf5Type::Kind::boolean) {
    for (int64_t i = 0; i < n; ++i) static_cast<bool*>(to)[i] = bytes[static_cast<size_t>(i)] != 0;
  } else if (as.direct) {
    std::memcpy(to, bytes.data(), bytes.size());
    if (type.kind == Hdf5Type::Kind::integer && type.size == 8 && !type.is_signed)
      for (int64_t i = 0; i < n; ++i)
        if (static_cast<int64_t*>(to)[i] < 0) f.fail("a number is beyond 2^63 - 1");
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(i) * type.size;
      if (type.size == 2)
        static_cast<int32_t*>(to)[i] = number_at<uint16_t>(bytes, at);
      else
        static_cast<int64_t*>(to)[i] = number_at<uint32_t>(bytes, at);
    }
  }
  return out;
}

}  // namespace tandem::io
