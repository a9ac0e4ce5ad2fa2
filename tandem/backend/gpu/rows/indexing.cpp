// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tandem/backend/gpu/rows/indexing_internal.h"
#include "tandem/base/hash/hash.h"

namespace tandem::gpu {
namespace {

// Offsets, and the count of threads of a launch, stay below this where 32 bits do.
constexpr int64_t kMostNarrow = (int64_t{1} << 31) - 4 * kThreads;

}  // namespace

DType word_of(DType t) {
  switch (t) {
    case DType::f16:
    case DType::bf16:
      return DType::i16;
    case DType::b8:
      return DType::u8;
    default:
      return t;
  }
}

std::string td_type(DType t) { return fmt::format("td_{}", short_name(t)); }

size_t span_of(const Array& a) {
  if (a.numel == 0) return 0;
  int64_t last = 0;
  for (int d = 0; d < a.rank; ++d) last += (a.shape[d] - 1) * a.strides[d];
  return static_cast<size_t>(last + 1) * size_of(a.dtype);
}

bool lies_on_groups(const Array& a, int e) {
  const size_t bytes = static_cast<size_t>(e) * size_of(a.dtype);
  return address_of(a.data) % std::min<size_t>(bytes, 16) == 0;
}

Walk::Walk(const int64_t* shape, int rank, const Array* const* arrays, int n, int leader)
    : loop_(codegen::TileLoop::make(shape, rank, arrays, n, leader)),
      rank_(loop_.rank),
      n_arrays_(n) {
  count_ = loop_.rows() * loop_.inner();
  wide_ = count_ > kMostNarrow;
  for (int k = 0; k < n; ++k) {
    if (arrays[k]->data) wide_ |= static_cast<int64_t>(span_of(*arrays[k])) > kMostNarrow;
  }
  set_ways();
}

Walk::Walk(int64_t n, const Array* const* arrays, int n_arrays)
    : n_arrays_(n_arrays), count_(n), wide_(n > kMostNarrow) {
  for (int k = 0; k < n_arrays; ++k) {
    const Way w = arrays[k]->is_scalar || (arrays[k]->numel == 1 && n != 1) ? one : dense;
    ways_ |= uint64_t{w} << 2 * k;
  }
}

Walk::Walk(const codegen::TileLoop& loop, int64_t largest_span)
    : loop_(loop), rank_(loop.rank), n_arrays_(loop.n_arrays) {
  count_ = loop.rows() * loop.inner();
  wide_ = std::max(count_, largest_span) > kMostNarrow;
  set_ways();
}

void Walk::set_ways() {
  for (int k = 0; k < n_arrays_; ++k) {
    const Way w = loop_.constant(k) ? one : loop_.dense(k) ? dense : strided;
    ways_ |= uint64_t{w} << 2 * k;
    flat_ &= w != strided;
  }
  if (flat_) rank_ = 1;
}

bool Walk::group(int e) {
  const int inner = rank_ - 1;
  if (!flat_ && loop_.size[inner] % e != 0) return false;
  uint64_t ways = ways_;
  for (int k = 0; k < n_arrays_; ++k) {
    if (way(k) == one) continue;
    bool side_by_side = true;
    if (!flat_ && loop_.stride[k][inner] == 0) {
      ways |= uint64_t{held} << 2 * k;
      continue;
    }
    if (!flat_) side_by_side = loop_.stride[k][inner] == 1;
    for (int d = 0; !flat_ && d < inner; ++d) side_by_side &= loop_.stride[k][d] % e == 0;
    if (!side_by_side) return false;
  }
  ways_ = ways;
  group_ = e;
  elements_ = count_;
  count_ = (count_ + e - 1) / e;
  if (flat_) return true;
  loop_.size[inner] /= e;
  for (int k = 0; k < n_arrays_; ++k) {
    for (int d = 0; in_groups(k) && d < inner; ++d) loop_.stride[k][d] /= e;
  }
  return true;
}

void Walk::fit(int other_parameters) {
  int n = other_parameters + rank_;
  for (int k = 0; k < n_arrays_; ++k) n += walks(k) ? rank_ : 0;
  literal_ = !flat_ && n > Arguments::kMost;
}

uint64_t Walk::shape_key() const {
  if (!literal_) return static_cast<uint64_t>(rank_) << 1 | wide_;
  std::string all;
  for (int d = 0; d < rank_; ++d) {
    all += fmt::format("{} ", loop_.size[d]);
    for (int k = 0; k < n_arrays_; ++k) all += fmt::format("{} ", loop_.stride[k][d]);
  }
  return hash_string(all) << 1 | wide_;
}

void Walk::declare(KernelSource& k, const std::string& p) const {
  const DType t = wide_ ? DType::i64 : DType::i32;
  k.parameters.push_back({Parameter::value, t, p + "n"});
  if (has_tail()) k.parameters.push_back({Parameter::value, t, p + "elements"});
  if (flat_ || literal_) return;
  for (int d = 1; d < rank_; ++d) {
    k.parameters.push_back({Parameter::value, t, fmt::format("{}n{}", p, d)});
  }
  for (int a = 0; a < n_arrays_; ++a) {
    for (int d = 0; d < rank_ && walks(a); ++d) {
      k.parameters.push_back({Parameter::value, t, fmt::format("{}s{}_{}", p, a, d)});
    }
  }
}

void Walk::argue(Arguments& a) const {
  const auto add = [&](int64_t v) { wide_ ? a.value(v) : a.value(static_cast<int32_t>(v)); };
  add(count_);
  if (has_tail()) add(elements_);
  if (flat_ || literal_) return;
  for (int d = 1; d < rank_; ++d) add(loop_.size[d]);
  for (int k = 0; k < n_arrays_; ++k) {
    for (int d = 0; d < rank_ && walks(k); ++d) add(loop_.stride[k][d]);
  }
}

std::string Walk::lines(const std::string& p, const std::string& i) const {
  std::string s;
  if (i.empty()) {
    s = fmt::format(
        "  const {0} {1}i = ({0})td_block(x) * ({0})td_threads(x) + ({0})td_thread(x);\n"
        "  if ({1}i >= {1}n) return;\n",
        index(), p);
  } else {
    s = fmt::format("  const {} {}i = {};\n", index(), p, i);
  }
  if (flat_) return s;
  const auto size = [&](int d) {
    return literal_ ? std::to_string(loop_.size[d]) : fmt::format("{}n{}", p, d);
  };
  std::string left = p + "i";
  for (int d = rank_ - 1; d > 0; --d) {
    s += fmt::format("  const {0} {1}c{2} = {3} % {4}, {1}r{2} = {3} / {4};\n", index(), p, d, left,
                     size(d));
    left = fmt::format("{}r{}", p, d);
  }
  s += fmt::format("  const {} {}c0 = {};\n", index(), p, left);
  for (int a = 0; a < n_arrays_; ++a) {
    if (!walks(a)) continue;
    s += fmt::format("  const {} {}at{} = ", index(), p, a);
    for (int d = 0; d < rank_; ++d) {
      const std::string stride =
          literal_ ? std::to_string(loop_.stride[a][d]) : fmt::format("{}s{}_{}", p, a, d);
      s += fmt::format("{}{}c{} * {}", d ? " + " : "", p, d, stride);
    }
    s += ";\n";
  }
  return s;
}

std::string Walk::place(int array, const std::string& p) const {
  const Way w = way(array);
  return w == dense ? p + "i" : w == one ? "0" : fmt::format("{}at{}", p, array);
}

void launch_each(Engine& e, KernelRef kernel, int64_t n, const Arguments& a, Stream stream) {
  e.launch(kernel, blocks_of(n), {kThreads}, a, e.stream(stream));
}

}  // namespace tandem::gpu
