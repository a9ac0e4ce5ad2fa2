// SPDX-License-Identifier: Apache-2.0
// What the rows that read and write by index share: a call's arrays over the dimensions that it
// walks, and the text that finds a place.
#pragma once

#include <algorithm>
#include <string>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index/index.h"

namespace tandem::gpu {

// An array seen with other strides, which it owns.
struct View : Array {
  int64_t own_shape[kMaxRank] = {}, own_strides[kMaxRank] = {};

  View(const Array& of, const int64_t* shape, int rank_) : Array(of) {
    std::copy(shape, shape + rank_, own_shape);
    rank = static_cast<uint8_t>(rank_);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  // After own_strides are set.
  const Array* seen() {
    shape = own_shape;
    strides = own_strides;
    numel = 1;
    for (int d = 0; d < rank; ++d) numel *= own_shape[d];
    return this;
  }
};

/// "{ ... at += c * step; }" for index `name`, which is checked.
std::string add_index(const std::string& index, const std::string& size, const std::string& step,
                      bool wrap);
/// The sum y + v of elements as stored, rounded to what is stored.
std::string added(const std::string& y, const std::string& v, DType t);

// One call of index, index_put or index_backward: v has the dims of the index tensors in place of
// x's indexed ones, [outer | index dims | inner].
struct IndexCall {
  const Array &x, &v;
  const KernelCall& c;
  const IndexAttrs& attrs;
  int first, n, d, index_rank;

  IndexCall(const KernelCall& call, const Array& x_, const Array& v_, int first_)
      : x(x_),
        v(v_),
        c(call),
        attrs(call.get_attrs<IndexAttrs>()),
        first(first_),
        n(call.n_in - first_),
        d(normalize_dim(attrs.dim, x_.rank)),
        index_rank(v_.rank - (x_.rank - n)) {}

  // x at index 0 over v's dims, without the index dims if `outer` only.
  void place_x(View& view) const {
    for (int i = 0; i < d; ++i) view.own_strides[i] = x.strides[i];
    for (int i = d + n; i < x.rank; ++i) {
      view.own_strides[i - n + view.rank - (x.rank - n)] = x.strides[i];
    }
  }
  // Index tensor k over v's dims.
  void place_index(int k, View& view) const {
    const Array& index = c.in[first + k];
    for (int r = 0; r < index.rank; ++r) {
      if (index.shape[r] != 1) view.own_strides[d + index_rank - index.rank + r] = index.strides[r];
    }
  }
  void argue_places(Arguments& a) const {
    for (int k = 0; k < n; ++k) a.value(x.shape[d + k]).value(x.strides[d + k]);
  }
  void declare_places(KernelSource& s) const {
    for (int k = 0; k < n; ++k) {
      s.parameters.push_back({Parameter::value, DType::i64, fmt::format("size{}", k)});
      s.parameters.push_back({Parameter::value, DType::i64, fmt::format("by{}", k)});
    }
  }
  void declare_indices(KernelSource& s) const {
    for (int k = 0; k < n; ++k) {
      s.parameters.push_back({Parameter::in, c.in[first + k].dtype, fmt::format("index{}", k)});
    }
  }
  void argue_indices(Arguments& a) const {
    for (int k = 0; k < n; ++k) argue_array(a, c.in[first + k]);
  }
  uint64_t types() const {
    uint64_t bits = static_cast<uint64_t>(x.dtype) | uint64_t{attrs.wrap} << 4;
    for (int k = 0; k < n; ++k) bits = bits << 1 | (c.in[first + k].dtype == DType::i64);
    return bits << 4 | static_cast<uint64_t>(n);
  }
};

/// y[at e] = or += v[e] for every index e in order.
void write_places(const KernelCall& c, const Array& v, int first, bool add);
/// The plan of such a call.
std::shared_ptr<const Plan> prepare_places(const KernelCall& c, const Array& v, int first);

}  // namespace tandem::gpu
