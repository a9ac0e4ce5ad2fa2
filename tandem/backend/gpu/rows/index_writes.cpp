// SPDX-License-Identifier: Apache-2.0
// Writes by index, in the order of the indices. Few: a thread has one element of [outer | inner]
// and a range of the first indexed dimension, and walks all indices. Many: the indices of a chunk
// are sorted by place, each finding its position by counting those that come before it; then
// threads that are at the first index of a place walk the others, which lie one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tandem/backend/gpu/rows/index_call_internal.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kThreadsWanted = 1 << 15;
constexpr int64_t kLeastSorted = 256;      // indices; fewer are walked by all
constexpr int64_t kSortedChunk = 1 << 14;  // indices that are counted against each other
constexpr int kRankLanes = 32, kRankOthers = 8;
constexpr int kSkipped = 0x7fffffff;  // the place of an index that is left out

// The dimensions of a write: `kept` walks [outer | inner] of y and v, `indices` the index dims of v
// and the index tensors.
struct WriteWalks {
  int64_t kept_shape[kMaxRank], index_shape[kMaxRank];
  int kept_rank = 0;
  std::vector<std::unique_ptr<View>> views;
  std::unique_ptr<Walk> kept, indices;

  WriteWalks(const IndexCall& call) {
    const Array& v = call.v;
    for (int i = 0; i < v.rank; ++i) {
      const bool indexed = i >= call.d && i < call.d + call.index_rank;
      if (!indexed) kept_shape[kept_rank++] = v.shape[i];
      if (indexed) index_shape[i - call.d] = v.shape[i];
    }
    View& y_kept = view_of(call.x, false, call);
    View& v_kept = view_of(v, false, call);
    View& v_index = view_of(v, true, call);
    call.place_x(y_kept);
    for (int i = 0, k = 0; i < v.rank; ++i) {
      if (i >= call.d && i < call.d + call.index_rank)
        v_index.own_strides[i - call.d] = v.strides[i];
      else
        v_kept.own_strides[k++] = v.strides[i];
    }
    const Array* kept_arrays[] = {y_kept.seen(), v_kept.seen()};
    kept = std::make_unique<Walk>(kept_shape, kept_rank, kept_arrays, 2, -1);
    const Array* index_arrays[1 + kMaxRank] = {v_index.seen()};
    for (int k = 0; k < call.n; ++k) {
      const Array& index = call.c.in[call.first + k];
      View& view = view_of(index, true, call);
      for (int r = 0; r < index.rank; ++r) {
        if (index.shape[r] != 1)
          view.own_strides[call.index_rank - index.rank + r] = index.strides[r];
      }
      index_arrays[1 + k] = view.seen();
    }
    indices = std::make_unique<Walk>(index_shape, call.index_rank, index_arrays, 1 + call.n, -1);
  }
  WriteWalks(const WriteWalks&) = delete;
  WriteWalks& operator=(const WriteWalks&) = delete;

 private:
  View& view_of(const Array& a, bool of_indices, const IndexCall& call) {
    const int64_t* shape = of_indices ? index_shape : kept_shape;
    const int rank = of_indices ? call.index_rank : kept_rank;
    return *views.emplace_back(std::make_unique<View>(a, shape, rank));
  }
};

// Texts of both ways.
struct WriteText {
  const IndexCall& call;
  const Walk &kept, &indices;
  DType dtype;
  bool add, skips;

  std::string at_index(int k) const {
    return fmt::format("index{}[{}]", k, indices.place(1 + k, "q"));
  }
  std::string add_place(int k, const std::string& step) const {
    return add_index(at_index(k), fmt::format("size{}", k), step, call.attrs.wrap);
  }
  KernelSource walked() const;
  KernelSource keys() const;
  KernelSource sums() const;
};

KernelSource WriteText::walked() const {
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
  if (skips) s.body += fmt::format("  if ({} == skip) continue;\n", at_index(call.n - 1));
  s.body += "  td_i64 at = 0;\n" + add_place(0, "1") +
            "  if (at < from || at >= to) continue;\n  at *= by0;\n";
  for (int i = 1; i < call.n; ++i) s.body += add_place(i, fmt::format("by{}", i));
  const std::string to = fmt::format("y[{} + at]", kept.place(0));
  const std::string value = fmt::format("v[{} + {}]", kept.place(1), indices.place(0, "q"));
  s.body += fmt::format("  {} = {};\n  }}\n", to, add ? added(to, value, dtype) : value);
  return s;
}

// The place of each index of a chunk, as a number.
KernelSource WriteText::keys() const {
  KernelSource s{.name = "index_keys",
                 .parameters = {{Parameter::out, DType::i32, "key"},
                                {Parameter::value, DType::i64, "from"},
                                {Parameter::value, DType::i64, "count"},
                                {Parameter::value, DType::i64, "skip"}}};
  call.declare_indices(s);
  call.declare_places(s);
  indices.declare(s, "q");
  declare_reports(s);
  s.body =
      "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
      "  if (me >= count) return;\n" +
      indices.lines("q", fmt::format("({})(from + me)", indices.index()));
  if (skips) {
    s.body += fmt::format("  if ({} == skip) {{\n    key[me] = {};\n    return;\n  }}\n",
                          at_index(call.n - 1), kSkipped);
  }
  s.body += "  td_i64 at = 0;\n";
  for (int i = 0; i < call.n; ++i) {
    if (i > 0) s.body += fmt::format("  at *= size{};\n", i);
    s.body += add_place(i, "1");
  }
  s.body += "  key[me] = (td_i32)at;\n";
  return s;
}

// order[r] is the r-th index by place, and by number within a place.
KernelSource ranks_source() {
  KernelSource s{.name = "index_ranks",
                 .parameters = {{Parameter::out, DType::i32, "order"},
                                {Parameter::out, DType::i32, "sorted"},
                                {Parameter::in, DType::i32, "key"},
                                {Parameter::value, DType::i32, "count"}},
                 .shared = {{DType::i32, "before", kRankLanes * kRankOthers}},
                 .threads = kRankLanes * kRankOthers};
  s.body = fmt::format(R"td_text(
  const td_i32 t = td_thread(x), lane = t % {0}, other = t / {0};
  const td_i32 j = (td_i32)td_block(x) * {0} + lane;
  const td_i32 mine = key[j < count ? j : 0];
  const td_i32 lines = count / 4;
  td_i32 sum = 0;
  for (td_i32 q = other; q < lines; q += {1}) {{
    td_line(td_i32, line, 4);
    td_load(4, line, key, q);
    td_unroll
    for (td_i32 e = 0; e < 4; ++e) sum += line[e] < mine || (line[e] == mine && q * 4 + e < j);
  }}
  for (td_i32 q = lines * 4 + other; q < count; q += {1}) sum += key[q] < mine || (key[q] == mine && q < j);
  before[t] = sum;
  td_barrier();
  if (other != 0 || j >= count) return;
  for (td_i32 o = 1; o < {1}; ++o) sum += before[o * {0} + lane];
  order[sum] = j;
  sorted[sum] = mine;
)td_text",
                       kRankLanes, kRankOthers);
  return s;
}

// A thread for each position and group of [outer | inner].
KernelSource WriteText::sums() const {
  const DType word = word_of(dtype);
  const int group = kept.grouped();
  KernelSource s{.name = "index_sums",
                 .parameters = {{Parameter::out, word, "y"},
                                {Parameter::in, word, "v"},
                                {Parameter::in, DType::i32, "order"},
                                {Parameter::in, DType::i32, "sorted"},
                                {Parameter::value, DType::i64, "from"},
                                {Parameter::value, DType::i32, "count"}},
                 .prelude = true};
  call.declare_places(s);
  kept.declare(s);
  indices.declare(s, "q");
  s.body = fmt::format(
      "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
      "  if (me >= (td_i64)n * count) return;\n"
      "  const td_i32 first = (td_i32)(me / n), mine = sorted[first];\n"
      "  if (mine == {} || (first > 0 && sorted[first - 1] == mine)) return;\n"
      "  td_i32 end = first + 1;\n"
      "  for (td_i32 high = count; end < high;) {{\n"
      "    const td_i32 half_way = (end + high) / 2;\n"
      "    if (sorted[half_way] == mine)\n      end = half_way + 1;\n"
      "    else\n      high = half_way;\n  }}\n"
      "  td_i64 left = mine, at = 0;\n",
      kSkipped);
  for (int k = call.n - 1; k > 0; --k) {
    s.body += fmt::format("  at += left % size{0} * by{0};\n  left /= size{0};\n", k);
  }
  s.body += "  at += left * by0;\n" + kept.lines("", fmt::format("({})(me % n)", kept.index()));
  const std::string type = td_type(word),
                    each = fmt::format("  td_unroll\n  for (td_i32 e = 0; e < {}; ++e) ", group);
  const std::string to = fmt::format("{} + at / {}", kept.place(0), group);
  const auto moved = [&](const char* line, const char* array, const std::string& place) {
    return group == 1 ? fmt::format("  {}[0] = {}[{}];\n", line, array, place)
                      : fmt::format("  td_load({}, {}, {}, {});\n", group, line, array, place);
  };
  s.body += fmt::format("  td_line({}, sum, {});\n", type, group);
  if (add) s.body += moved("sum", "y", to);
  s.body +=
      fmt::format("  for (td_i32 r = {}; r < end; ++r) {{\n", add ? "first" : "end - 1") +
      indices.lines("q", fmt::format("({})(from + order[r])", indices.index())) +
      fmt::format("  td_line({}, line, {});\n", type, group) +
      moved("line", "v", fmt::format("{} + {} / {}", kept.place(1), indices.place(0, "q"), group)) +
      each +
      fmt::format("sum[e] = {};\n  }}\n", add ? added("sum[e]", "line[e]", dtype) : "line[e]");
  s.body += group == 1 ? fmt::format("  y[{}] = sum[0];\n", to)
                       : fmt::format("  td_store({}, y, {}, sum);\n", group, to);
  return s;
}

// What the ranks of a chunk are kept under.
constexpr char kRanks = 0;

class Writing {
 public:
  Writing(const KernelCall& c, const Array& v, int first, bool add)
      : c_(c), v_(v), call_(c, c.out[0], v, first), walks_(call_), add_(add) {}

  bool nothing() const { return walks_.kept->count() == 0 || walks_.indices->count() == 0; }
  bool sorts() const {
    int64_t places = 1;
    for (int k = 0; k < call_.n; ++k) {
      places *= call_.x.shape[call_.d + k];
      if (places >= kSkipped) return false;
    }
    return walks_.indices->count() >= kLeastSorted;
  }
  int64_t chunk() const { return std::min(walks_.indices->count(), kSortedChunk); }
  size_t line_bytes() const { return (static_cast<size_t>(chunk()) * 4 + 255) / 256 * 256; }

  void walk() const;
  void sort();

 private:
  WriteText text() const {
    return {call_, *walks_.kept, *walks_.indices, c_.out[0].dtype, add_, call_.attrs.skip >= 0};
  }
  KernelId id(uint64_t which) const {
    const Walk &kept = *walks_.kept, &indices = *walks_.indices;
    const uint64_t flags = (uint64_t{add_} << 1 | uint64_t{call_.attrs.skip >= 0}) << 2 | which;
    const uint64_t variant =
        (call_.types() << 4 | flags) << 5 | static_cast<uint64_t>(kept.grouped());
    return {&op::index_put, kept.ways() ^ indices.ways() << 4,
            (variant << 8 | kept.shape_key()) << 8 | indices.shape_key()};
  }
  void group();

  const KernelCall& c_;
  const Array& v_;
  const IndexCall call_;
  WriteWalks walks_;
  const bool add_;
};

void Writing::walk() const {
  Engine& e = engine_of(c_.device);
  const Walk& kept = *walks_.kept;
  const int64_t rows = c_.out[0].shape[call_.d];
  const int64_t parts = std::clamp(kThreadsWanted / kept.count(), int64_t{1}, rows);
  const KernelRef k = plain_kernel(e, id(0), [&] { return text().walked(); });
  Arguments a;
  argue_array(a, c_.out[0]);
  argue_array(a, v_);
  call_.argue_indices(a);
  call_.argue_places(a);
  kept.argue(a);
  walks_.indices->argue(a);
  a.value(rows).value(parts).value(call_.attrs.skip);
  argue_reports(a, e, c_);
  launch_each(e, k, kept.count() * parts, a, c_.stream);
}

// [outer | inner] in groups, where indices move by whole groups.
void Writing::group() {
  const Array& y = c_.out[0];
  for (int g = static_cast<int>(16 / size_of(y.dtype)); g > 1; g /= 2) {
    bool fits = lies_on_groups(y, g) && lies_on_groups(v_, g);
    for (int k = 0; k < call_.n; ++k) fits &= y.strides[call_.d + k] % g == 0;
    for (int r = 0; r < call_.index_rank; ++r) fits &= v_.strides[call_.d + r] % g == 0;
    Walk groups = *walks_.kept;
    if (!fits || groups.count() % g != 0 || !groups.group(g)) continue;
    if (!groups.in_groups(0) || !groups.in_groups(1)) continue;
    *walks_.kept = groups;
    return;
  }
}

void Writing::sort() {
  group();
  Engine& e = engine_of(c_.device);
  const StreamRef stream = e.stream(c_.stream);
  const Walk &kept = *walks_.kept, &indices = *walks_.indices;
  const KernelRef keys = plain_kernel(e, id(1), [&] { return text().keys(); });
  const KernelRef ranks = plain_kernel(e, {&kRanks, 0, 0}, ranks_source);
  const KernelRef sums = plain_kernel(e, id(2), [&] { return text().sums(); });
  const Address key = address_of(c_.scratch), order = key + line_bytes(),
                sorted = order + line_bytes();
  for (int64_t from = 0; from < indices.count(); from += chunk()) {
    const int64_t n = std::min(chunk(), indices.count() - from);
    const auto bytes = static_cast<size_t>(n) * 4;
    Arguments a;
    a.address(key, bytes).value(from).value(n).value(call_.attrs.skip);
    call_.argue_indices(a);
    call_.argue_places(a);
    indices.argue(a);
    argue_reports(a, e, c_);
    launch_each(e, keys, n, a, c_.stream);
    Arguments b;
    b.address(order, bytes)
        .address(sorted, bytes)
        .address(key, bytes)
        .value(static_cast<int32_t>(n));
    e.launch(ranks, {static_cast<uint32_t>((n + kRankLanes - 1) / kRankLanes)},
             {kRankLanes * kRankOthers}, b, stream);
    Arguments s;
    argue_array(s, c_.out[0]);
    argue_array(s, v_);
    s.address(order, bytes).address(sorted, bytes).value(from).value(static_cast<int32_t>(n));
    call_.argue_places(s);
    kept.argue(s);
    indices.argue(s);
    launch_each(e, sums, kept.count() * n, s, c_.stream);
  }
}

}  // namespace

void write_places(const KernelCall& c, const Array& v, int first, bool add) {
  Writing w(c, v, first, add);
  if (w.nothing()) return;
  w.sorts() ? w.sort() : w.walk();
}

std::shared_ptr<const Plan> prepare_places(const KernelCall& c, const Array& v, int first) {
  auto plan = std::make_shared<Plan>();
  const Writing w(c, v, first, true);
  if (!w.nothing() && w.sorts()) plan->workspace = 3 * w.line_bytes();
  return plan;
}

}  // namespace tandem::gpu
