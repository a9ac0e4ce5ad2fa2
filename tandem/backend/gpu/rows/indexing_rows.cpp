// SPDX-License-Identifier: Apache-2.0
// Rows that read and write by index. An index out of range is reported and clamped. Writes to equal
// places happen in the order of the indices, so sums are deterministic and have the CPU's bits
// (index_writes.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tandem/backend/gpu/rows/index_call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::gpu {

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

namespace {

// Groups of elements behind an index, which moves by whole ones.
void group_places(Walk& walk, const IndexCall& call, const Array& y) {
  for (int g = static_cast<int>(16 / size_of(y.dtype)); g > 1; g /= 2) {
    bool fits = lies_on_groups(y, g) && lies_on_groups(call.x, g);
    for (int k = 0; k < call.n; ++k) fits &= call.x.strides[call.d + k] % g == 0;
    Walk groups = walk;
    if (!fits || !groups.group(g) || groups.has_tail()) continue;
    bool one_index = groups.in_groups(0) && groups.in_groups(1);
    for (int k = 0; k < call.n; ++k) one_index &= !groups.in_groups(2 + k);
    if (!one_index) continue;
    walk = groups;
    return;
  }
}

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
  Walk walk(y.shape, y.rank, arrays, 2 + call.n, -1);
  group_places(walk, call, y);
  const uint64_t types = call.types() << 5 | static_cast<uint64_t>(walk.grouped());
  const KernelId id{&op::index, walk.ways(), types << 8 | walk.shape_key()};
  const KernelRef k = plain_kernel(e, id, [&] {
    const DType word = word_of(y.dtype);
    KernelSource s{.name = "index",
                   .parameters = {{Parameter::out, word, "y"}, {Parameter::in, word, "x"}}};
    call.declare_indices(s);
    call.declare_places(s);
    walk.declare(s);
    declare_reports(s);
    s.body = walk.lines() +
             fmt::format("  td_i64 at = (td_i64){} * {};\n", walk.place(1), walk.grouped());
    for (int i = 0; i < call.n; ++i) {
      s.body += add_index(fmt::format("index{}[{}]", i, walk.place(2 + i)),
                          fmt::format("size{}", i), fmt::format("by{}", i), call.attrs.wrap);
    }
    if (const int group = walk.grouped(); group == 1) {
      s.body += fmt::format("  y[{}] = x[at];\n", walk.place(0));
    } else {
      s.body += fmt::format(
          "  td_line({0}, line, {1});\n  td_load({1}, line, x, at / {1});\n"
          "  td_store({1}, y, {2}, line);\n",
          td_type(word), group, walk.place(0));
    }
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

std::shared_ptr<const Plan> prepare_index_put(const KernelCall& c) {
  return prepare_places(c, c.in[1], 2);
}
std::shared_ptr<const Plan> prepare_index_backward(const KernelCall& c) {
  return prepare_places(c, c.in[0], 1);
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

// The same index for all lines: a write by one index tensor, with what lies around it. Otherwise
// `fits` is false.
struct OneIndex {
  Array in[3];
  View v, index;
  IndexAttrs attrs;
  KernelCall call;
  bool fits = false;

  OneIndex(const KernelCall& c, int64_t dim, bool add)
      : v(c.in[2], c.in[1].shape, c.in[1].rank),
        index(c.in[1], c.in[1].shape, 0),
        call{op::index_put, &attrs, in, 3, c.out, 1} {
    const Array& of = c.in[1];
    if (of.rank == 0 || c.out[0].numel == 0 || of.numel == 0) return;
    const int d = normalize_dim(dim, of.rank);
    fits = true;
    for (int k = 0; k < of.rank; ++k) fits &= k == d || of.shape[k] == 1 || of.strides[k] == 0;
    index.rank = 1;
    index.own_shape[0] = of.shape[d];
    index.own_strides[0] = of.strides[d];
    std::copy(c.in[2].strides, c.in[2].strides + of.rank, v.own_strides);
    attrs.dim = d;
    attrs.accumulate = add;
    in[0] = c.in[0];
    in[1] = *v.seen();
    in[2] = *index.seen();
    call.device = c.device;
    call.stream = c.stream;
    call.ticket = c.ticket;
    call.scratch = c.scratch;
  }
};

template <bool kAdd>
std::shared_ptr<const Plan> prepare_scatter(const KernelCall& c) {
  const OneIndex one(c, c.get_attrs<GatherAttrs>().dim, kAdd);
  return one.fits ? prepare_places(one.call, one.in[1], 2) : std::make_shared<Plan>();
}

constexpr int64_t kScatterThreads = 1 << 15, kSourcesOfPart = 64;

// A thread for each line of the scanned dimension, or for a part of its places.
template <Write kWrite>
KernelSource scatter_source(const KernelCall& c, const Walk& walk) {
  const DType type = c.out[0].dtype, word = word_of(type);
  KernelSource s{.name = c.op.name,
                 .parameters = {{Parameter::out, word, "y"},
                                {Parameter::in, c.in[1].dtype, "index"},
                                {Parameter::in, word, "v"}},
                 .prelude = true};
  for (const char* name : {"line", "size", "by", "is", "vs", "largest", "self", "parts"}) {
    s.parameters.push_back({Parameter::value, DType::i64, name});
  }
  walk.declare(s);
  declare_reports(s);
  const std::string value = fmt::format("v[{} + j * vs]", walk.place(2));
  const std::string find =
      "  td_i64 at = 0;\n" +
      add_index(fmt::format("index[{} + j * is]", walk.place(1)), "size", "1", false) +
      fmt::format("  if (at < from || at >= to) continue;\n  at = {} + at * by;\n", walk.place(0));
  s.body =
      "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
      "  if (me >= (td_i64)n * parts) return;\n"
      "  const td_i64 from = size * (me / n) / parts, to = size * (me / n + 1) / parts;\n" +
      walk.lines("", fmt::format("({})(me % n)", walk.index()));
  if (kWrite == Write::extreme) {
    s.body += extreme_loops(find, value, type);
  } else {
    const std::string v = kWrite == Write::add ? added("y[at]", value, type) : value;
    s.body += scatter_loop(find, fmt::format("y[at] = {};", v));
  }
  return s;
}

template <Write kWrite, class Attrs>
void run_scatter(const KernelCall& c) {
  start_with(c, &c.in[0]);
  const Array &index = c.in[1], &v = c.in[2], &y = c.out[0];
  if (index.numel == 0 || y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const auto& attrs = c.get_attrs<Attrs>();
  if constexpr (kWrite != Write::extreme) {
    const OneIndex one(c, attrs.dim, kWrite == Write::add);
    if (one.fits) return write_places(one.call, one.in[1], 2, kWrite == Write::add);
  }
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
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), types << 8 | walk.shape_key()},
                                   [&] { return scatter_source<kWrite>(c, walk); });
  Arguments a;
  argue_array(a, y);
  argue_array(a, index);
  argue_array(a, v);
  const auto at = [&](const int64_t* of, int64_t none) { return y.rank ? of[dim] : none; };
  const int64_t line = at(index.shape, 1), size = at(y.shape, 1);
  a.value(line).value(size).value(at(y.strides, 0));
  a.value(at(index.strides, 0)).value(at(v.strides, 0));
  bool largest = false, self = false;
  if constexpr (kWrite == Write::extreme) {
    largest = attrs.largest;
    self = attrs.include_self;
  }
  const int64_t most = std::min(size, std::max<int64_t>(line / kSourcesOfPart, 1));
  const int64_t parts = std::clamp(kScatterThreads / walk.count(), int64_t{1}, most);
  a.value(int64_t{largest}).value(int64_t{self}).value(parts);
  walk.argue(a);
  argue_reports(a, e, c);
  launch_each(e, k, walk.count() * parts, a, c.stream);
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
  register_kernel(kind, op::index_put,
                  {index_put_supports, nullptr, prepare_index_put, run_index_put});
  register_kernel(kind, op::index_backward,
                  {index_backward_supports, nullptr, prepare_index_backward, run_index_backward});
  register_kernel(kind, op::gather, {gather_supports, nullptr, nullptr, run_gather});
  register_kernel(
      kind, op::scatter,
      {gather_supports, nullptr, prepare_scatter<false>, run_scatter<Write::put, GatherAttrs>});
  register_kernel(
      kind, op::scatter_add,
      {gather_supports, nullptr, prepare_scatter<true>, run_scatter<Write::add, GatherAttrs>});
  register_kernel(kind, op::scatter_extreme,
                  {scatter_extreme_supports, nullptr, nullptr,
                   run_scatter<Write::extreme, ScatterExtremeAttrs>});
}

}  // namespace tandem::gpu
