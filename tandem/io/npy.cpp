// SPDX-License-Identifier: Apache-2.0
// The header of an .npy file is a Python dict in text form; a small reader parses it, which knows
// only strings, numbers, True, False and tuples.
#include "tandem/io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/io/json.h"
#include "tandem/io/zip_internal.h"
#include "tandem/tensor/dry_memory.h"
#include "tandem/tensor/mapped_tensor.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are read as little-endian");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostHeader = 1 << 16;  // names of records could need more; those are rejected
constexpr size_t kHeaderAlign = 64;

struct Name {
  DType dtype;
  std::string_view text;
};
constexpr Name kNames[] = {{DType::f64, "f8"}, {DType::f32, "f4"}, {DType::f16, "f2"},
                           {DType::i64, "i8"}, {DType::i32, "i4"}, {DType::i16, "i2"},
                           {DType::i8, "i1"},  {DType::u8, "u1"},  {DType::b8, "b1"}};

}  // namespace

std::optional<DType> npy_dtype(std::string_view code) {
  for (const Name& n : kNames)
    if (n.text == code) return n.dtype;
  return {};
}

namespace {

/// A file or a member of one; throws Format errors that name it.
class Place {
 public:
  explicit Place(std::string text) : text_(std::move(text)) {}
  template <class... T>
  [[noreturn]] TD_COLD void fail(fmt::format_string<T...> format, const T&... args) const {
    TD_FAIL(Format, "{}: {}", text_, fmt::vformat(format, fmt::make_format_args(args...)));
  }

 private:
  std::string text_;
};

struct Header {
  DType dtype = DType::f32;
  bool swapped = false, fortran = false;
  Shape shape;
  uint64_t bytes = 0;  ///< of the data
};

/// Reads the dict of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const Place& place) : s_(text), place_(place) {}

  Header run() {
    Header h;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = text("a key");
      expect(':');
      auto once = [&](bool& seen) {
        if (seen) place_.fail("the header has {} twice", quote_json(key));
        seen = true;
      };
      if (key == "descr") {
        once(descr);
        read_dtype(h);
      } else if (key == "fortran_order") {
        once(order);
        h.fortran = boolean();
      } else if (key == "shape") {
        once(shape);
        read_shape(h);
      } else {
        place_.fail("the header has the unknown key {}", quote_json(key));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != s_.size()) place_.fail("the header continues after its dict");
    if (!descr || !order || !shape)
      place_.fail("the header has no {}", !descr ? "descr" : !order ? "fortran_order" : "shape");
    count(h);
    return h;
  }

 private:
  void skip() {
    while (at_ < s_.size() && (s_[at_] == ' ' || s_[at_] == '\n' || s_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c))
      place_.fail(
          "expected '{}' at byte {} of the header, {}", c, at_,
          at_ == s_.size() ? "but it ends => there" : "there is " + quote_json(s_.substr(at_, 1)));
  }
  std::string text(const char* what) {
    skip();
    if (at_ == s_.size() || (s_[at_] != '\'' && s_[at_] != '"'))
      place_.fail("expected {} in quotes at byte {} of the header", what, at_);
    const size_t end = s_.find(s_[at_], at_ + 1);
    if (end == std::string_view::npos) place_.fail("a quote in the header is never closed");
    std::string v(s_.substr(at_ + 1, end - at_ - 1));
    if (v.find('\\') != std::string::npos) place_.fail("the header has escapes in a string");
    at_ = end + 1;
    return v;
  }
  bool boolean() {
    skip();
    for (const bool v : {true, false}) {
      const std::string_view word = v ? "True" : "False";
      if (s_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return v;
      }
    }
    place_.fail("expected True or False at byte {} of the header", at_);
  }
  void read_dtype(Header& h) {
    skip();
    if (at_ < s_.size() && s_[at_] == '[')
      place_.fail("the array holds records of several fields, which are not supported");
    const std::string all = text("an element type");
    std::string_view name = all;
    char order = '|';
    if (!name.empty() && std::string_view("<>=|").find(name[0]) != std::string_view::npos) {
      order = name[0];
      name.remove_prefix(1);
    }
    for (const Name& n : kNames)
      if (n.text == name) {
        h.dtype = n.dtype;
        h.swapped = order == '>' && size_of(n.dtype) > 1;
        return;
      }
    if (name == "O")
      place_.fail(
          "the array holds Python objects, which are not loaded: that would run their code");
    place_.fail(
        "the element type {} is not supported\nTypes are f8 f4 f2 i8 i4 i2 i1 u1 b1: convert "
        "with astype() before saving.",
        quote_json(all));
  }
  void read_shape(Header& h) {
    expect('(');
    while (!take(')')) {
      skip();
      const size_t first = at_;
      int64_t n = 0;
      bool wide = false;
      for (; at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9'; ++at_)
        wide |= __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, s_[at_] - '0', &n);
      if (at_ == first)
        place_.fail("the header has a size that is not a number, at its byte {}", at_);
      if (at_ < s_.size() && s_[at_] == 'L') ++at_;  // as Python 2 wrote them
      // Dims below 2^62 only: larger values could not be told from other Dims.
      if (wide || n >= int64_t{1} << 62)
        place_.fail("the header has the size {}", s_.substr(first, at_ - first));
      if (h.shape.rank() == kMaxRank)
        place_.fail("the array has more than {} dimensions", kMaxRank);
      h.shape.push_back(n);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }
  void count(Header& h) const {
    uint64_t bytes = size_of(h.dtype);
    bool wide = false, zero = false;
    for (const Dim d : h.shape) {
      zero |= d.raw() == 0;
      wide |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(d.raw()), &bytes);
    }
    if (wide && !zero)
      place_.fail("an array of shape {} is more than a file can hold", h.shape.to_string());
    h.bytes = zero ? 0 : bytes;
  }

  std::string_view s_;
  const Place& place_;
  size_t at_ = 0;
};

/// The header at the start of `all`; `at` receives where the data begins.
Header parse_header(std::string_view all, const Place& place, uint64_t& at) {
  if (all.starts_with("PK\x03\x04"))
    place.fail("this is a zip file, not an .npy file\nRead it with load_npz().");
  if (all.size() < 10 || !all.starts_with(kMagic))
    place.fail("this is not an .npy file: it does not begin with \\x93NUMPY");
  const int major = static_cast<unsigned char>(all[6]), minor = static_cast<unsigned char>(all[7]);
  if (major < 1 || major > 3 || minor != 0)
    place.fail("the .npy file is of version {}.{}, versions 1.0 to 3.0 can be read", major, minor);
  uint32_t length = 0;
  const size_t width = major == 1 ? 2 : 4;
  if (all.size() < 8 + width) place.fail("the file is truncated inside its header");
  std::memcpy(&length, all.data() + 8, width);
  if (length > kMostHeader)
    place.fail("the header claims to have {} bytes, the limit is {}", length, kMostHeader);
  at = 8 + width + length;
  if (at > all.size()) place.fail("the file is truncated: its header has {} bytes", length);
  return HeaderReader(all.substr(8 + width, length), place).run();
}

void check_size(const Header& h, uint64_t there, const Place& place) {
  if (h.bytes > there)
    place.fail("the file is truncated: {} elements of shape {} need {} bytes, {} are there",
               to_string(h.dtype), h.shape.to_string(), h.bytes, there);
  if (h.bytes < there)
    place.fail("there are {} bytes after the data of shape {}", there - h.bytes,
               h.shape.to_string());
}

void check_bools(const unsigned char* data, uint64_t n, const Place& place) {
  for (uint64_t i = 0; i < n; ++i)
    if (data[i] > 1) place.fail("the array is bool, but element {} is the byte {}", i, data[i]);
}

/// `flat` [n] as a tensor with the header's shape and order.
Tensor shaped(const detail::TensorImpl& flat, const Header& h) {
  Strides s = contiguous_strides(h.shape);
  if (h.fortran && h.bytes > 0) {
    int64_t step = 1;
    for (int i = 0; i < h.shape.rank(); ++i) {
      s[i] = step;
      step *= std::max<int64_t>(h.shape[i].raw(), 1);
    }
  }
  return Tensor(
      Ref<detail::TensorImpl>::adopt(detail::new_view(flat, h.shape, s, flat.data, h.dtype)));
}

using Impl = Ref<detail::TensorImpl>;

Impl flat_of(const Header& h) {
  return Impl::adopt(detail::new_tensor(Shape(h.bytes / size_of(h.dtype)), h.dtype, cpu));
}

void finish(const Header& h, unsigned char* data, const Place& place) {
  if (h.swapped)
    for (uint64_t i = 0; i < h.bytes; i += size_of(h.dtype))
      std::reverse(data + i, data + i + size_of(h.dtype));
  if (h.dtype == DType::b8) check_bools(data, h.bytes, place);
}

/// The array in `all`, a part of the mapped `file`.
Tensor mapped(const Ref<MappedFile>& file, std::string_view all, const Place& place) {
  uint64_t at;
  const Header h = parse_header(all, place, at);
  check_size(h, all.size() - at, place);
  const auto* data = reinterpret_cast<const unsigned char*>(all.data()) + at;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % size_of(h.dtype) == 0;
  if (h.bytes == 0 || !aligned || h.swapped) {
    Impl flat = flat_of(h);
    auto* to = static_cast<unsigned char*>(flat->data);
    if (h.bytes > 0) std::memcpy(to, data, h.bytes);
    finish(h, to, place);
    return shaped(*flat, h);
  }
  if (h.dtype == DType::b8) check_bools(data, h.bytes, place);
  const auto elements = static_cast<int64_t>(h.bytes / size_of(h.dtype));
  return shaped(*detail::mapped_tensor(file, data, Shape{elements}, h.dtype).impl(), h);
}

/// The array of a deflated member.
Tensor inflated(const ZipReader& zip, const ZipMember& m, const Place& place) {
  ZipStream stream(zip, m);
  std::string head(10, '\0');
  head.resize(stream.read(head.data(), head.size()));
  if (head.size() == 10 && head.starts_with(kMagic)) {
    const size_t width = head[6] == 1 ? 2 : 4;
    uint32_t length = 0;
    if (width == 4) {
      head.resize(12);
      head.resize(10 + stream.read(head.data() + 10, 2));
    }
    if (head.size() == 8 + width) std::memcpy(&length, head.data() + 8, width);
    const size_t had = head.size();
    head.resize(had + std::min<size_t>(length, kMostHeader + 1));
    head.resize(had + stream.read(head.data() + had, head.size() - had));
  }
  uint64_t at;
  const Header h = parse_header(head, place, at);
  check_size(h, m.size - at, place);
  Impl flat = flat_of(h);
  auto* data = static_cast<unsigned char*>(flat->data);
  const size_t got = stream.read(data, h.bytes);
  if (got != h.bytes) place.fail("the data ends after {} of {} bytes", got, h.bytes);
  finish(h, data, place);
  return shaped(*flat, h);
}

std::string make_header(const Tensor& x, const std::string& name) {
  TD_CHECK(x.defined(), Value, "{}: the tensor was never given a value", name);
  TD_CHECK(!x.is_symbolic(), Unsupported, "{}: this is a value inside a trace\nSave outside it.",
           name);
  const Name* known = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const Name& n) { return n.dtype == x.dtype(); });
  TD_CHECK(known != std::end(kNames), DType,
           "{}: NumPy has no {}\nConvert it with to(float32), or save() a safetensors file.", name,
           to_string(x.dtype()));
  std::string shape;
  for (const int64_t n : x.sizes()) shape += fmt::format("{}, ", n);
  if (x.dim() > 1) shape.resize(shape.size() - 2);
  if (x.dim() == 1) shape.pop_back();
  std::string dict = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 size_of(x.dtype()) == 1 ? '|' : '<', known->text, shape);
  // Padding that is never empty, and room to write a longer first size in place: NumPy's bytes.
  if (x.dim() > 0) dict.append(21 - std::to_string(x.size(0)).size(), ' ');
  dict.append(kHeaderAlign - (kMagic.size() + 4 + dict.size() + 1) % kHeaderAlign, ' ');
  dict += '\n';
  const auto length = static_cast<uint16_t>(dict.size());
  std::string head = std::string(kMagic) + std::string("\1\0", 2);
  head.append(reinterpret_cast<const char*>(&length), 2);
  return head + dict;
}

/// The elements in row-major order: the tensor's own bytes, or `copy`, filled with them.
std::string_view bytes_of(const Tensor& x, std::string& copy) {
  const size_t bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype());
  detail::check_has_bytes(*x.impl(), "save");
  if (x.is_contiguous() && is_host(x.device()))
    return {static_cast<const char*>(x.impl()->data), bytes};
  copy.resize(bytes);
  detail::copy_row_major(*x.impl(), copy.data(), x.dtype());
  return copy;
}

}  // namespace

Tensor load_npy(const FilePath& path) {
  const auto file = make_ref<MappedFile>(path);
  const Budget budget(path.str(), file->size());
  return mapped(file, file->view(), Place(fmt::format("'{}'", path.str())));
}

void save_npy(const Tensor& x, const FilePath& path) {
  const std::string head = make_header(x, "save_npy");
  std::string copy;
  const std::string_view data = bytes_of(x, copy);
  AtomicFile file(path, head.size() + data.size());
  file.write(head);
  file.write(data);
  file.commit();
}

StateDict load_npz(const FilePath& path, const BudgetLimits& limits) {
  const ZipReader zip(path);
  const Budget budget(path.str(), zip.file()->size(), limits);
  StateDict arrays;
  for (const ZipMember& m : zip.members()) {
    const Place place(fmt::format("'{}': {}", path.str(), quote_json(m.name)));
    if (!m.name.ends_with(".npy")) place.fail("this member is not an .npy file");
    if (!is_utf8(m.name)) place.fail("the name is not UTF-8");
    const std::string name = m.name.substr(0, m.name.size() - 4);
    if (arrays.contains(name)) place.fail("the name appears twice");
    arrays[name] = m.deflated ? inflated(zip, m, place) : mapped(zip.file(), zip.stored(m), place);
  }
  return arrays;
}

void save_npz(const StateDict& arrays, const FilePath& path, SaveNpzOptions options) {
  std::vector<std::string> heads;  // all are checked before anything is written
  for (const auto& [name, x] : arrays) {
    TD_CHECK(is_utf8(name), Value, "save_npz: the name {} is not UTF-8", quote_json(name));
    heads.push_back(make_header(x, fmt::format("save_npz: '{}'", name)));
  }
  ZipWriter zip(path);
  size_t i = 0;
  for (const auto& [name, x] : arrays) {
    std::string copy;
    const std::string_view data = bytes_of(x, copy);
    zip.add(name + ".npy", {heads[i], data}, options.compressed, heads[i].size());
    ++i;
  }
  zip.commit();
}

}  // namespace tandem::io
