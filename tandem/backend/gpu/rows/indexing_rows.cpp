// SPDX-License-Identifier: Apache-2.0
// Rows that read and write by index. An index out of range is reported and clamped. Writes to equal
// places happen in the order of the indices, so sums are deterministic and have the CPU's bits: a
// thread owns a column of the result, or a part of its rows, and walks all indices.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kThreadsWanted = 1 << 15;

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

// "{ ... at += c * step; }" for index `name`, which is checked.
std::string add_index(const std::string& index, const std::string& size, const std::string& step,
                      bool wrap) {
  return fmt::format(
      "  {{\n    const td_i64 v = {0};\n"
      "    td_i64 c = {1};\n"
      "    if (c < 0 || c >= {2}) {{\n      td_report(1, v);\n"
      "      c = c < 0 ? 0 : {2} - 1;\n    }}\n"
      "    at += c * {3};\n  }}\n",
      index, wrap ? fmt::format("v < 0 ? v + {} : v", size) : "v", size, step);
}

std::string added(const std::string& y, const std::string& v, DType t) {
  if (t == DType::b8) return fmt::format("{} | {}", y, v);
  if (is_floating(t)) {
    return stored(fmt::format("{} + {}", loaded(y, t), loaded(v, t)), t);
  }
  return fmt::format("({})((td_u64){} + (td_u64){})", td_type(t), y, v);
}

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

void run_index(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const IndexCall call(c, x, y, 1);
  std::vector<std::unique_ptr<View>> views;
  const Array* arrays[2 + kMaxRank] = {&y};
  for (int k = -1; k < call.n; ++k) {
    View& view =
        *views.emplace_back(std::make_unique<View>(k < 0 ? x : c.in[1 + k], y.shape, y.rank));
    k < 0 ? call.place_x(view) : call.place_index(k, view);
    arrays[2 + k] = view.seen();
  }
  const Walk walk(y.shape, y.rank, arrays, 2 + call.n, -1);
  const KernelId id{&op::index, walk.ways(), call.types() << 8 | walk.shape_key()};
  const KernelRef k = plain_kernel(e, id, [&] {
    const DType word = word_of(y.dtype);
    KernelSource s{.name = "index",
                   .parameters = {{Parameter::out, word, "y"}, {Parameter::in, word, "x"}}};
    call.declare_indices(s);
    call.declare_places(s);
    walk.declare(s);
    declare_reports(s);
    s.body = walk.lines() + fmt::format("  td_i64 at = {};\n", walk.place(1));
    for (int i = 0; i < call.n; ++i) {
      s.body += add_index(fmt::format("index{}[{}]", i, walk.place(2 + i)),
                          fmt::format("size{}", i), fmt::format("by{}", i), call.attrs.wrap);
    }
    s.body += fmt::format("  y[{}] = x[at];\n", walk.place(0));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  call.argue_indices(a);
  call.argue_places(a);
  walk.argue(a);
  argue_reports(a, e, c);
  launch_each(e, k, walk.count(), a, c.stream);
}

// The text of write_places(): `kept` walks [outer | inner] of y and v, `indices` the index dims of
// v and the index tensors.
struct WriteText {
  const IndexCall& call;
  const Walk &kept, &indices;
  DType dtype;
  bool add, skips;

  KernelSource source() const;
};

KernelSource WriteText::source() const {
  const DType word = word_of(dtype);
  KernelSource s{.name = "index_put",
                 .parameters = {{Parameter::out, word, "y"}, {Parameter::in, word, "v"}},
                 .prelude = true};
  call.declare_indices(s);
  call.declare_places(s);
  kept.declare(s);
  indices.declare(s, "q");
  for (const char* name : {"rows", "parts", "skip"}) {
    s.parameters.push_back({Parameter::value, DType::i64, name});
  }
  declare_reports(s);
  const std::string id_line =
      "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
      "  if (me >= (td_i64)n * parts) return;\n"
      "  const td_i64 part = me / n;\n"
      "  const td_i64 from = rows * part / parts, to = rows * (part + 1) / parts;\n";
  s.body = id_line + kept.lines("", fmt::format("({})(me % n)", kept.index()));
  s.body += fmt::format("  for ({} j = 0; j < qn; ++j) {{\n", indices.index());
  s.body += indices.lines("q", "j");
  const auto at_index = [&](int i) {
    return fmt::format("index{}[{}]", i, indices.place(1 + i, "q"));
  };
  if (skips) s.body += fmt::format("  if ({} == skip) continue;\n", at_index(call.n - 1));
  s.body += "  td_i64 at = 0;\n" + add_index(at_index(0), "size0", "1", call.attrs.wrap) +
            "  if (at < from || at >= to) continue;\n  at *= by0;\n";
  for (int i = 1; i < call.n; ++i) {
    s.body +=
        add_index(at_index(i), fmt::format("size{}", i), fmt::format("by{}", i), call.attrs.wrap);
  }
  const std::string to = fmt::format("y[{} + at]", kept.place(0));
  const std::string value = fmt::format("v[{} + {}]", kept.place(1), indices.place(0, "q"));
  s.body += fmt::format("  {} = {};\n  }}\n", to, add ? added(to, value, dtype) : value);
  return s;
}

// y[at e] = or += v[e] for every index e in order. A thread has one element of [outer | inner], and
// one of `parts` ranges of the first indexed dimension.
void write_places(const KernelCall& c, const Array& v, int first, bool add) {
  const Array& y = c.out[0];
  Engine& e = engine_of(c.device);
  const IndexCall call(c, y, v, first);
  int64_t kept_shape[kMaxRank], index_shape[kMaxRank];
  int kept_rank = 0;
  for (int i = 0; i < v.rank; ++i) {
    const bool indexed = i >= call.d && i < call.d + call.index_rank;
    if (!indexed) kept_shape[kept_rank++] = v.shape[i];
    if (indexed) index_shape[i - call.d] = v.shape[i];
  }
  View y_kept(y, kept_shape, kept_rank), v_kept(v, kept_shape, kept_rank);
  View v_index(v, index_shape, call.index_rank);
  call.place_x(y_kept);
  for (int i = 0, k = 0; i < v.rank; ++i) {
    if (i >= call.d && i < call.d + call.index_rank)
      v_index.own_strides[i - call.d] = v.strides[i];
    else
      v_kept.own_strides[k++] = v.strides[i];
  }
  const Array* kept_arrays[] = {y_kept.seen(), v_kept.seen()};
  const Walk kept(kept_shape, kept_rank, kept_arrays, 2, -1);
  std::vector<std::unique_ptr<View>> views;
  const Array* index_arrays[1 + kMaxRank] = {v_index.seen()};
  for (int k = 0; k < call.n; ++k) {
    const Array& index = c.in[first + k];
    View& view = *views.emplace_back(std::make_unique<View>(index, index_shape, call.index_rank));
    for (int r = 0; r < index.rank; ++r) {
      if (index.shape[r] != 1)
        view.own_strides[call.index_rank - index.rank + r] = index.strides[r];
    }
    index_arrays[1 + k] = view.seen();
  }
  const Walk indices(index_shape, call.index_rank, index_arrays, 1 + call.n, -1);
  if (kept.count() == 0 || indices.count() == 0) return;
  const int64_t rows = y.shape[call.d];
  const int64_t parts = std::clamp(kThreadsWanted / kept.count(), int64_t{1}, rows);
  const bool skips = call.attrs.skip >= 0;
  const uint64_t variant = (call.types() << 1 | add) << 1 | skips;
  const KernelId id{add ? &op::index_backward : &op::index_put, kept.ways() ^ indices.ways() << 4,
                    (variant << 8 | kept.shape_key()) << 8 | indices.shape_key()};
  const WriteText text{call, kept, indices, y.dtype, add, skips};
  const KernelRef k = plain_kernel(e, id, [&] { return text.source(); });
  Arguments a;
  argue_array(a, y);
  argue_array(a, v);
  call.argue_indices(a);
  call.argue_places(a);
  kept.argue(a);
  indices.argue(a);
  a.value(rows).value(parts).value(call.attrs.skip);
  argue_reports(a, e, c);
  launch_each(e, k, kept.count() * parts, a, c.stream);
}

void run_index_put(const KernelCall& c) {
  start_with(c, &c.in[0]);
  write_places(c, c.in[1], 2, c.get_attrs<IndexAttrs>().accumulate);
}
void run_index_backward(const KernelCall& c) {
  start_with(c, nullptr);
  write_places(c, c.in[0], 1, true);
}

// Every indexed dimension has elements, and the strides are arguments of one kernel.
bool index_fits(const KernelCall& c, const int64_t* shape, int rank, int first) {
  const int d = normalize_dim(c.get_attrs<IndexAttrs>().dim, rank), n = c.n_in - first;
  for (int k = 0; k < n; ++k) {
    if (shape[d + k] == 0) return false;
  }
  return n <= 3;
}
bool index_supports(const KernelCall& c) {
  return has_f64(c) && index_fits(c, c.in[0].shape, c.in[0].rank, 1);
}
bool index_put_supports(const KernelCall& c) {
  return has_f64(c) && index_fits(c, c.in[0].shape, c.in[0].rank, 2);
}
bool index_backward_supports(const KernelCall& c) {
  return has_f64(c) && index_fits(c, c.out[0].shape, c.out[0].rank, 1);
}

// ---- gather, scatter, scatter_add

// Arrays over index's shape; of x the scanned dimension is left out.
void run_gather(const KernelCall& c) {
  const Array &x = c.in[0], &index = c.in[1], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const int dim = x.rank ? normalize_dim(c.get_attrs<GatherAttrs>().dim, x.rank) : 0;
  View at(x, index.shape, index.rank);
  std::copy(x.strides, x.strides + x.rank, at.own_strides);
  if (x.rank) at.own_strides[dim] = 0;
  const Array* arrays[] = {&y, at.seen(), &index};
  const Walk walk(index.shape, index.rank, arrays, 3, -1);
  const uint64_t types = static_cast<uint64_t>(x.dtype) << 4 | static_cast<uint64_t>(index.dtype);
  const KernelRef k =
      plain_kernel(e, {&op::gather, walk.ways(), types << 8 | walk.shape_key()}, [&] {
        const DType word = word_of(y.dtype);
        KernelSource s{.name = "gather",
                       .parameters = {{Parameter::out, word, "y"},
                                      {Parameter::in, word, "x"},
                                      {Parameter::in, index.dtype, "index"},
                                      {Parameter::value, DType::i64, "size"},
                                      {Parameter::value, DType::i64, "by"}}};
        walk.declare(s);
        declare_reports(s);
        s.body = walk.lines() + fmt::format("  td_i64 at = {};\n", walk.place(1)) +
                 add_index(fmt::format("index[{}]", walk.place(2)), "size", "by", false) +
                 fmt::format("  y[{}] = x[at];\n", walk.place(0));
        return s;
      });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  argue_array(a, index);
  a.value(x.rank ? x.shape[dim] : int64_t{1}).value(x.rank ? x.strides[dim] : int64_t{0});
  walk.argue(a);
  argue_reports(a, e, c);
  launch_each(e, k, walk.count(), a, c.stream);
}

enum class Write { put, add, extreme };

// The loop over a line's sources: `value` goes to y[at] after what finds `at`.
std::string scatter_loop(const std::string& find, const std::string& write) {
  return "  for (td_i64 j = 0; j < line; ++j) {\n" + find + "  " + write + "\n  }\n";
}
// The largest or smallest of the sources; NaN wins. `self`: what is there takes part.
std::string extreme_loops(const std::string& find, const std::string& value, DType t) {
  const std::string put = fmt::format("y[at] = {};", value);
  const std::string beats = fmt::format(
      "{0} own = {1}, best = {2};\n"
      "  if (best == best && (own != own || (largest ? own > best : own < best))) {3}",
      register_type(t), loaded(value, t), loaded("y[at]", t), put);
  return "  if (!self) {\n" + scatter_loop(find, put) + "  }\n" +
         scatter_loop(find, "const " + beats);
}

// A thread for each line of the scanned dimension.
template <Write kWrite, class Attrs>
void run_scatter(const KernelCall& c) {
  start_with(c, &c.in[0]);
  const Array &index = c.in[1], &v = c.in[2], &y = c.out[0];
  if (index.numel == 0 || y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const auto& attrs = c.get_attrs<Attrs>();
  const int dim = y.rank ? normalize_dim(attrs.dim, y.rank) : 0;
  int64_t lines[kMaxRank] = {};
  std::copy(index.shape, index.shape + index.rank, lines);
  if (y.rank) lines[dim] = 1;
  View of_y(y, lines, y.rank), of_index(index, lines, y.rank), of_v(v, lines, y.rank);
  std::copy(y.strides, y.strides + y.rank, of_y.own_strides);
  std::copy(index.strides, index.strides + y.rank, of_index.own_strides);
  std::copy(v.strides, v.strides + y.rank, of_v.own_strides);
  const Array* arrays[] = {of_y.seen(), of_index.seen(), of_v.seen()};
  const Walk walk(lines, y.rank, arrays, 3, -1);
  const uint64_t types = static_cast<uint64_t>(y.dtype) << 4 | static_cast<uint64_t>(index.dtype);
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), types << 8 | walk.shape_key()}, [&] {
    const DType word = word_of(y.dtype);
    KernelSource s{.name = c.op.name,
                   .parameters = {{Parameter::out, word, "y"},
                                  {Parameter::in, index.dtype, "index"},
                                  {Parameter::in, word, "v"}},
                   .prelude = true};
    for (const char* name : {"line", "size", "by", "is", "vs", "largest", "self"}) {
      s.parameters.push_back({Parameter::value, DType::i64, name});
    }
    walk.declare(s);
    declare_reports(s);
    const std::string value = fmt::format("v[{} + j * vs]", walk.place(2));
    const std::string find =
        fmt::format("  td_i64 at = {};\n", walk.place(0)) +
        add_index(fmt::format("index[{} + j * is]", walk.place(1)), "size", "by", false);
    s.body = walk.lines();
    if (kWrite == Write::extreme) {
      s.body += extreme_loops(find, value, y.dtype);
    } else {
      const std::string v = kWrite == Write::add ? added("y[at]", value, y.dtype) : value;
      s.body += scatter_loop(find, fmt::format("y[at] = {};", v));
    }
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, index);
  argue_array(a, v);
  const auto at = [&](const int64_t* of, int64_t none) { return y.rank ? of[dim] : none; };
  a.value(at(index.shape, 1)).value(at(y.shape, 1)).value(at(y.strides, 0));
  a.value(at(index.strides, 0)).value(at(v.strides, 0));
  bool largest = false, self = false;
  if constexpr (kWrite == Write::extreme) {
    largest = attrs.largest;
    self = attrs.include_self;
  }
  a.value(int64_t{largest}).value(int64_t{self});
  walk.argue(a);
  argue_reports(a, e, c);
  launch_each(e, k, walk.count(), a, c.stream);
}

// An index into a dimension of size 0 is the host's to report.
bool has_places(const KernelCall& c, int64_t dim) {
  const Array& x = c.in[0];
  return has_f64(c) && (x.rank == 0 || x.shape[normalize_dim(dim, x.rank)] > 0);
}
bool gather_supports(const KernelCall& c) { return has_places(c, c.get_attrs<GatherAttrs>().dim); }
bool scatter_extreme_supports(const KernelCall& c) {
  return has_places(c, c.get_attrs<ScatterExtremeAttrs>().dim);
}

}  // namespace

void register_indexing(DeviceKind kind) {
  register_kernel(kind, op::index, {index_supports, nullptr, nullptr, run_index});
  register_kernel(kind, op::index_put, {index_put_supports, nullptr, nullptr, run_index_put});
  register_kernel(kind, op::index_backward,
                  {index_backward_supports, nullptr, nullptr, run_index_backward});
  register_kernel(kind, op::gather, {gather_supports, nullptr, nullptr, run_gather});
  register_kernel(kind, op::scatter,
                  {gather_supports, nullptr, nullptr, run_scatter<Write::put, GatherAttrs>});
  register_kernel(kind, op::scatter_add,
                  {gather_supports, nullptr, nullptr, run_scatter<Write::add, GatherAttrs>});
  register_kernel(kind, op::scatter_extreme,
                  {scatter_extreme_supports, nullptr, nullptr,
                   run_scatter<Write::extreme, ScatterExtremeAttrs>});
}

}  // namespace tandem::gpu
