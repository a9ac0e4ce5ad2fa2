// SPDX-License-Identifier: Apache-2.0
// TensorProto: element types packed as specified, in the message or in a separate file. Sizes are
// compared with the available bytes before anything is allocated.
#include "tandem/onnx/import/tensor_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/onnx/import/stored_internal.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/lazy.h"
#include "tandem/tensor/mapped_tensor.h"
#include "tandem/tensor/strided.h"

namespace tandem::onnx {
namespace {

using io::ProtoReader;

struct Fields {
  std::string name;
  std::vector<int64_t> dims;
  OnnxType type = OnnxType::undefined;
  std::string_view raw;
  bool has_raw = false, external = false;
  std::vector<float> floats;
  std::vector<int64_t> ints;  ///< int32_data, int64_data and uint64_data
  std::vector<double> doubles;
  std::vector<std::string> texts;
  std::string location;
  uint64_t offset = 0, length = 0;
  bool has_length = false;
};

uint64_t file_number(const ProtoReader& r, const std::string& text) {
  uint64_t v = 0;
  if (text.empty() || text.size() > 19)
    r.fail("external data has an invalid number '" + text + "'");
  for (const char c : text) {
    if (c < '0' || c > '9') r.fail("external data has an invalid number '" + text + "'");
    v = v * 10 + static_cast<uint64_t>(c - '0');
  }
  return v;
}

void external_entry(ProtoReader m, Fields& f) {
  std::string key, value;
  while (m.next()) {
    if (m.field() == 1) key = m.text();
    if (m.field() == 2) value = m.text();
  }
  if (key == "location") f.location = value;
  if (key == "offset") f.offset = file_number(m, value);
  if (key == "length") {
    f.length = file_number(m, value);
    f.has_length = true;
  }
}

Fields read_fields(ProtoReader& r) {
  Fields f;
  while (r.next()) {
    switch (r.field()) {
      case 1:
        r.append(f.dims);
        break;
      case 2:
        f.type = static_cast<OnnxType>(std::min<uint64_t>(r.unsigned_value(), 255));
        break;
      case 4:
        r.append(f.floats);
        break;
      case 5:
      case 7:
      case 11:
        r.append(f.ints);
        break;
      case 6:
        Budget::take(2 * sizeof(std::string));
        f.texts.push_back(r.text());
        break;
      case 8:
        f.name = r.text();
        break;
      case 9:
        f.raw = r.bytes();
        f.has_raw = true;
        break;
      case 10:
        r.append(f.doubles);
        break;
      case 13:
        external_entry(r.message(), f);
        break;
      case 14:
        f.external = r.unsigned_value() == 1;
        break;
      default:
        break;
    }
  }
  return f;
}

/// Elements of the shape; rejects negative sizes, too many dimensions and overflow.
uint64_t count_of(const ProtoReader& r, const Fields& f) {
  if (f.dims.size() > kMaxRank)
    r.fail(fmt::format("tensor '{}' has {} dimensions, at most {} are possible", f.name,
                       f.dims.size(), kMaxRank));
  uint64_t n = 1;
  bool wide = false, zero = false;
  for (const int64_t d : f.dims) {
    if (d < 0 || d >= int64_t{1} << 62)
      r.fail(fmt::format("tensor '{}' has the size {}", f.name, d));
    zero |= d == 0;
    wide |= __builtin_mul_overflow(n, static_cast<uint64_t>(d), &n);
  }
  if (zero) return 0;
  if (wide || n >> 58) r.fail(fmt::format("tensor '{}' is too large", f.name));
  return n;
}

Tensor empty_of(const Fields& f, DType dtype) {
  return Tensor(Ref<tandem::detail::TensorImpl>::adopt(
      tandem::detail::new_tensor(Shape(f.dims), dtype, cpu)));
}

/// Element i of a stream of `bits` wide numbers, low bits first.
unsigned packed_at(const unsigned char* p, uint64_t i, int bits) {
  const uint64_t at = i * static_cast<uint64_t>(bits);
  return p[at / 8] >> (at % 8) & ((1U << bits) - 1);
}

/// A number of a file's `bits` in its carrier.
void store(Tensor& t, uint64_t i, OnnxType type, uint64_t bits) {
  const OnnxTypeInfo& info = info_of(type);
  void* data = t.impl()->data;
  if (info.floating) {
    static_cast<float*>(data)[i] = decode_small_float(type, static_cast<uint8_t>(bits));
    return;
  }
  auto v = static_cast<int64_t>(bits);
  if (info.is_signed && info.bits < 64 && (v >> (info.bits - 1) & 1)) v -= int64_t{1} << info.bits;
  tandem::detail::convert_elements(&v, DType::i64,
                                   static_cast<char*>(data) + i * size_of(t.dtype()), t.dtype(), 1);
}

constexpr uint64_t kFewBytes = 4096;  ///< are copied

/// A value that refers to the mapped bytes, or copies a few.
OnnxValue show(const Fields& f, const char* data, uint64_t bytes, DType dtype,
               const Ref<MappedFile>& file) {
  const bool mapped = file && file->size() > 0 &&
                      data >= reinterpret_cast<const char*>(file->data()) &&
                      data <= reinterpret_cast<const char*>(file->data()) + file->size();
  if (!mapped || bytes < kFewBytes) {
    Tensor t = empty_of(f, dtype);
    if (bytes) std::memcpy(t.impl()->data, data, bytes);
    return OnnxValue(t, f.type);
  }
  if (reinterpret_cast<uintptr_t>(data) % size_of(dtype) != 0)
    return stored_onnx_value(data, Shape(f.dims), f.type, file);
  return OnnxValue(tandem::detail::mapped_tensor(file, data, Shape(f.dims), dtype), f.type);
}

OnnxValue from_raw(const ProtoReader& r, const Fields& f, uint64_t n, std::string_view raw,
                   const Ref<MappedFile>& file) {
  const OnnxTypeInfo& info = info_of(f.type);
  const uint64_t bytes = (n * info.bits + 7) / 8;
  if (raw.size() != bytes)
    r.fail(fmt::format("tensor '{}' of {} {} needs {} bytes, {} are there", f.name, n, info.name,
                       bytes, raw.size()));
  const auto* p = reinterpret_cast<const unsigned char*>(raw.data());
  if (f.type == OnnxType::b8) {
    Tensor t = empty_of(f, DType::b8);
    for (uint64_t i = 0; i < n; ++i) static_cast<bool*>(t.impl()->data)[i] = p[i] != 0;
    return OnnxValue(t, f.type);
  }
  if (info.native || info.bits == 64) return show(f, raw.data(), bytes, info.carrier, file);
  Tensor t = empty_of(f, info.carrier);
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t bits = 0;
    if (info.bits < 8)
      bits = packed_at(p, i, info.bits);
    else
      std::memcpy(&bits, p + i * info.bits / 8, info.bits / 8);
    store(t, i, f.type, bits);
  }
  return OnnxValue(t, f.type);
}

Tensor from_lists(const ProtoReader& r, const Fields& f, uint64_t n) {
  const OnnxTypeInfo& info = info_of(f.type);
  const bool small = info.bits < 8;
  const uint64_t wanted = small ? (n * info.bits + 7) / 8 : n;
  const uint64_t got = f.type == OnnxType::f32   ? f.floats.size()
                       : f.type == OnnxType::f64 ? f.doubles.size()
                                                 : f.ints.size();
  if (got != wanted)
    r.fail(fmt::format("tensor '{}' needs {} numbers, {} are there", f.name, wanted, got));
  Tensor t = empty_of(f, info.carrier);
  void* data = t.impl()->data;
  if (n == 0) return t;
  if (f.type == OnnxType::f32) {
    std::memcpy(data, f.floats.data(), n * 4);
  } else if (f.type == OnnxType::f64) {
    std::memcpy(data, f.doubles.data(), n * 8);
  } else if (f.type == OnnxType::f16 || f.type == OnnxType::bf16) {
    for (uint64_t i = 0; i < n; ++i)
      static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(f.ints[i]);
  } else if (f.type == OnnxType::b8) {
    for (uint64_t i = 0; i < n; ++i) static_cast<bool*>(data)[i] = f.ints[i] != 0;
  } else if (info.native || info.bits == 64) {
    tandem::detail::convert_elements(f.ints.data(), DType::i64, data, info.carrier,
                                     static_cast<int64_t>(n));
  } else {
    const uint64_t mask = (uint64_t{1} << info.bits) - 1;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t per = small ? 8 / info.bits : 1;
      const auto word = static_cast<uint64_t>(f.ints[i / per]);
      store(t, i, f.type, word >> (i % per * info.bits) & mask);
    }
  }
  return t;
}

OnnxValue from_texts(const ProtoReader& r, Fields& f, uint64_t n) {
  if (f.texts.size() != n)
    r.fail(fmt::format("tensor '{}' needs {} strings, {} are there", f.name, n, f.texts.size()));
  return OnnxValue(OnnxStrings{f.dims, std::move(f.texts)});
}

}  // namespace

Ref<MappedFile> open_external(const std::string& folder, const std::string& location,
                              const std::string& what) {
  auto refuse = [&](const char* why) {
    TD_FAIL(Format,
            "'{}': external data at '{}' is rejected: {}\nIt must be a plain file below "
            "the model's folder.",
            what, location, why);
  };
  if (folder.empty()) refuse("the model was not read from a file");
  if (location.empty() || location.size() > 4096 || location.find('\0') != std::string::npos)
    refuse("this is not a path");
  if (location[0] == '/' || location.find('\\') != std::string::npos) refuse("it is absolute");
  // Walk down folder by folder: no link below the model's folder is followed.
  int at = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  TD_CHECK(at >= 0, Io, "cannot open '{}'", folder);
  std::string part;
  size_t from = 0;
  while (from <= location.size()) {
    const size_t slash = std::min(location.find('/', from), location.size());
    part = location.substr(from, slash - from);
    from = slash + 1;
    const bool last = slash == location.size();
    if (part == "." || (part.empty() && !last)) continue;
    if (part == ".." || part.empty()) {
      ::close(at);
      refuse("it leaves the folder");
    }
    const int next =
        ::openat(at, part.c_str(),
                 O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY));
    const bool missing = next < 0 && errno == ENOENT;
    ::close(at);
    if (missing) refuse("there is no such file");
    if (next < 0) refuse("it cannot be opened without following links");
    at = next;
  }
  struct stat info {};
  const bool plain = ::fstat(at, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1;
  if (!plain) {
    ::close(at);
    refuse("it is not a plain file, or it has a second name");
  }
  Ref<MappedFile> file;
  try {
    file = Ref<MappedFile>::adopt(new MappedFile(fmt::format("/proc/self/fd/{}", at)));
  } catch (...) {
    ::close(at);
    throw;
  }
  ::close(at);
  return file;
}

std::string raw_bytes(const OnnxValue& v) {
  const OnnxTypeInfo& info = info_of(v.type());
  const Tensor t = v.tensor().cpu().contiguous();
  TD_CHECK(tandem::detail::readable(t), Unsupported,
           "reads the bytes of {}, which are not known while the model is traced", v.describe());
  const auto n = static_cast<uint64_t>(t.numel());
  std::string out((n * info.bits + 7) / 8, '\0');
  if (n == 0) return out;
  if (info.native || info.bits == 64) {
    std::memcpy(out.data(), t.impl()->data, out.size());
    return out;
  }
  const std::vector<float> floats = info.floating ? t.to_vector<float>() : std::vector<float>();
  const std::vector<int64_t> ints = info.floating ? std::vector<int64_t>() : t.to_vector<int64_t>();
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t bits =
        info.floating ? encode_small_float(v.type(), floats[i]) : static_cast<uint64_t>(ints[i]);
    bits &= (uint64_t{1} << info.bits) - 1;
    for (uint64_t b = 0; b < info.bits; ++b) {
      const uint64_t at = i * info.bits + b;
      if (bits >> b & 1) out[at / 8] = static_cast<char>(out[at / 8] | 1 << (at % 8));
    }
  }
  return out;
}

OnnxValue from_raw_bytes(OnnxType type, const std::vector<int64_t>& dims, std::string_view raw) {
  io::ProtoDocument document({}, "tensor");
  Fields f;
  f.dims = dims;
  f.type = type;
  const ProtoReader r = document.reader();
  return from_raw(r, f, count_of(r, f), raw, {});
}

OnnxValue parse_tensor(ProtoReader r, OnnxTensorSource& source, std::string* name) {
  Fields f = read_fields(r);
  if (name) *name = f.name;
  const uint64_t n = count_of(r, f);
  if (f.type == OnnxType::string) return from_texts(r, f, n);
  if (static_cast<unsigned>(f.type) > static_cast<unsigned>(OnnxType::i2) ||
      f.type == OnnxType::undefined)
    r.fail(
        fmt::format("tensor '{}' has the element type {}", f.name, static_cast<unsigned>(f.type)));
  if (f.external) {
    Ref<MappedFile>& file = source.external[f.location];
    if (!file) {
      file = open_external(source.folder, f.location, source.what);
      Budget::add_given(file->size());
    }
    if (f.offset > file->size() || (f.has_length && f.length > file->size() - f.offset))
      r.fail(fmt::format("tensor '{}' is at {} to {} of '{}', which has {} bytes", f.name, f.offset,
                         f.offset + f.length, f.location, file->size()));
    const uint64_t bytes = (n * info_of(f.type).bits + 7) / 8;
    const uint64_t length = f.has_length ? f.length : std::min(bytes, file->size() - f.offset);
    return from_raw(r, f, n, file->view().substr(f.offset, length), file);
  }
  if (f.has_raw) return from_raw(r, f, n, f.raw, source.file);
  return OnnxValue(from_lists(r, f, n), f.type);
}

OnnxValue parse_sparse_tensor(ProtoReader r, OnnxTensorSource& source, std::string* name) {
  OnnxValue values, indices;
  Fields f;
  while (r.next()) {
    if (r.field() == 1) values = parse_tensor(r.message(), source, name);
    if (r.field() == 2) indices = parse_tensor(r.message(), source, nullptr);
    if (r.field() == 3) r.append(f.dims);
  }
  const uint64_t n = count_of(r, f);
  if (!values.is_tensor() || !indices.is_tensor() || indices.type() != OnnxType::i64 ||
      values.tensor().dim() != 1)
    r.fail("a sparse tensor expects a vector of values and int64 indices");
  Tensor at = indices.tensor();
  const int64_t count = values.tensor().size(0);
  if (at.dim() == 2) {
    if (at.size(0) != count || at.size(1) != static_cast<int64_t>(f.dims.size()))
      r.fail("a sparse tensor's indices do not fit");
    Tensor flat = zeros({count}, DType::i64);
    for (size_t d = 0; d < f.dims.size(); ++d)
      flat = flat * f.dims[d] + at.select(1, static_cast<int64_t>(d));
    at = flat;
  }
  if (at.dim() != 1 || at.size(0) != count) r.fail("a sparse tensor's indices do not fit");
  for (const int64_t i : at.to_vector<int64_t>())
    if (i < 0 || static_cast<uint64_t>(i) >= n) r.fail("an index of a sparse tensor is outside");
  const Tensor dense = put(zeros(Shape(n), values.tensor().dtype()), at, values.tensor());
  return OnnxValue(dense.reshape(Shape(f.dims)), values.type());
}

}  // namespace tandem::onnx
