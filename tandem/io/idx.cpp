// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/io/gzip.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

struct IdxType {
  unsigned char code;
  DType dtype;
};
constexpr IdxType kIdxTypes[] = {{0x08, DType::u8},  {0x09, DType::i8},  {0x0B, DType::i16},
                                 {0x0C, DType::i32}, {0x0D, DType::f32}, {0x0E, DType::f64}};

/// Convert big-endian elements to the host's byte order, or back.
void swap_bytes(unsigned char* p, size_t size, int64_t n) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  if (size == 1) return;
  for (int64_t i = 0; i < n; ++i, p += size) std::reverse(p, p + size);
}

void read_all(InputFile& in, void* to, size_t bytes, const char* what) {
  const size_t got = in.read(to, bytes);
  TD_CHECK(got == bytes, Format, "'{}' is truncated: its {} should have {} bytes, {} are there",
           in.path(), what, bytes, got);
}

DType dtype_of_magic(const unsigned char (&magic)[4], const std::string& path) {
  TD_CHECK(magic[0] == 0 && magic[1] == 0, Format,
           "'{}' is not an IDX file: it begins with {:02x} {:02x} {:02x} {:02x}, not with 00 00",
           path, magic[0], magic[1], magic[2], magic[3]);
  for (const IdxType& c : kIdxTypes)
    if (c.code == magic[2]) return c.dtype;
  TD_FAIL(Format, "'{}': IDX has no element type {:#04x}", path, magic[2]);
}

}  // namespace

Tensor load_idx(const FilePath& path, uint64_t limit, const BudgetLimits& limits) {
  InputFile in(path);
  const Budget budget(in.path(), in.size(), limits);
  unsigned char magic[4];
  read_all(in, magic, sizeof magic, "head");
  const DType dtype = dtype_of_magic(magic, in.path());
  const int rank = magic[3];
  TD_CHECK(rank >= 1 && rank <= kMaxRank, Format, "'{}' has {} dimensions, 1 to {} are possible",
           in.path(), rank, kMaxRank);
  unsigned char sizes[4 * kMaxRank];
  read_all(in, sizes, 4 * static_cast<size_t>(rank), "list of sizes");
  Shape shape;
  uint64_t bytes = size_of(dtype);
  bool wide = false;
  for (int i = 0; i < rank; ++i) {
    const unsigned char* s = sizes + 4 * i;
    const uint32_t n = uint32_t{s[0]} << 24 | uint32_t{s[1]} << 16 | uint32_t{s[2]} << 8 | s[3];
    shape.push_back(n);
    wide |= __builtin_mul_overflow(bytes, uint64_t{n}, &bytes);
  }
  // Before anything is allocated: a file cannot hold more than its size on disk allows.
  TD_CHECK(!wide && bytes <= limit, Format,
           "'{}' says it holds {} elements of shape {}, more than the {} bytes allowed here",
           in.path(), to_string(dtype), shape.to_string(), limit);
  TD_CHECK(bytes <= in.most_bytes(), Format,
           "'{}' is truncated: {} elements of shape {} need {} bytes, the file cannot hold them",
           in.path(), to_string(dtype), shape.to_string(), bytes);
  Tensor x(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, cpu)));
  unsigned char* data = static_cast<unsigned char*>(x.impl()->data);
  read_all(in, data, static_cast<size_t>(bytes), "data");
  char more;
  TD_CHECK(in.read(&more, 1) == 0, Format, "'{}' has more data than its shape {} needs", in.path(),
           shape.to_string());
  swap_bytes(data, size_of(dtype), x.numel());
  return x;
}

void save_idx(const Tensor& x, const FilePath& path) {
  const IdxType* code = std::find_if(std::begin(kIdxTypes), std::end(kIdxTypes),
                                     [&](const IdxType& c) { return c.dtype == x.dtype(); });
  TD_CHECK(code != std::end(kIdxTypes), DType,
           "IDX holds uint8, int8, int16, int32, float32 and float64, got {}\nConvert with to().",
           to_string(x.dtype()));
  TD_CHECK(!x.is_symbolic(), Unsupported, "a value inside a trace cannot be saved");
  TD_CHECK(x.dim() >= 1, Shape, "IDX needs at least one dimension, got a scalar");
  std::string head{'\0', '\0', static_cast<char>(code->code), static_cast<char>(x.dim())};
  for (const int64_t n : x.sizes()) {
    TD_CHECK(n <= int64_t{UINT32_MAX}, Shape, "IDX sizes fit 32 bits, got {}", n);
    for (int shift = 24; shift >= 0; shift -= 8) head += static_cast<char>(n >> shift & 0xFF);
  }
  const size_t size = size_of(x.dtype());
  std::vector<unsigned char> data(static_cast<size_t>(x.numel()) * size);
  detail::copy_row_major(*x.impl(), data.data(), x.dtype());
  swap_bytes(data.data(), size, x.numel());
  AtomicFile file(path, head.size() + data.size());
  file.write(head);
  file.write(data.data(), data.size());
  file.commit();
}

}  // namespace tandem::io
