// SPDX-License-Identifier: Apache-2.0
// Every index of a .tflite file is checked here: what follows may use them.
#include "tandem/onnx/tflite/model_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/budget.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/import/tensor_internal.h"

namespace tandem::onnx {

using io::FlatDocument;
using io::FlatTable;

OnnxType tflite_type(int64_t number) {
  using T = OnnxType;
  static constexpr T kTypes[] = {
      T::f32, T::f16, T::i32,  T::u8,   T::i64, T::string,    T::b8,        T::i16,
      T::c64, T::i8,  T::f64,  T::c128, T::u64, T::undefined, T::undefined, T::u32,
      T::u16, T::i4,  T::bf16, T::i2,   T::u4,  T::f8e4m3fn,  T::f8e5m2};
  return number >= 0 && number < static_cast<int64_t>(std::size(kTypes)) ? kTypes[number]
                                                                         : T::undefined;
}

bool TfliteTensor::is_quantised() const {
  using T = OnnxType;
  return !scales.scale.empty() && (type == T::i8 || type == T::u8 || type == T::i16 ||
                                   type == T::i4 || type == T::i2 || type == T::u4);
}

namespace {

constexpr uint64_t kMostPorts = 1 << 16;

class Parser {
 public:
  explicit Parser(const FlatDocument& d) : d_(d), root_(d.root()) {}

  TfliteModel run() {
    if (const auto v = root_.number<uint32_t>(0); v != 3)
      fail(fmt::format("the schema's version is {}, expected 3", v));
    TfliteModel m;
    m.description = root_.text(3);
    for (uint64_t i = 0, n = root_.size(4); i < n; ++i) buffers_.push_back(buffer(i));
    for (uint64_t i = 0, n = root_.size(1); i < n; ++i) codes_.push_back(root_.entry(1, i));
    for (uint64_t i = 0, n = root_.size(2); i < n; ++i)
      m.graphs.push_back(graph(root_.entry(2, i)));
    if (m.graphs.empty()) fail("it has no subgraphs");
    for (uint64_t i = 0, n = root_.size(6); i < n; ++i) {
      const FlatTable t = root_.entry(6, i);
      const auto k = t.number<uint32_t>(1);
      if (k >= buffers_.size()) fail(fmt::format("metadata lies in buffer {}", k));
      Budget::take(64);
      m.metadata.emplace_back(t.text(0), buffers_[k]);
    }
    for (uint64_t i = 0, n = root_.size(7); i < n; ++i)
      m.signatures.push_back(signature(root_.entry(7, i), m));
    return m;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { d_.fail(0, reason); }

  // Those of files beyond 2 GB lie behind the tables, at an offset from the file's beginning.
  std::string_view buffer(uint64_t i) const {
    const FlatTable t = root_.entry(4, i);
    const auto at = t.number<uint64_t>(1), size = t.number<uint64_t>(2);
    if (at <= 1) return t.bytes(0);
    if (at > d_.bytes().size() || size > d_.bytes().size() - at)
      fail(fmt::format("buffer {} is not in the file", i));
    return d_.bytes().substr(at, size);
  }

  TfliteScales scales(const FlatTable& t, const TfliteTensor& of) const {
    TfliteScales s;
    s.scale = t.numbers<float>(2);
    if (s.scale.empty()) return s;
    s.zero = t.numbers<int64_t>(3);
    s.axis = t.number<int32_t>(6);
    const size_t n = s.scale.size();
    if (s.zero.empty()) s.zero.assign(n, 0);
    if (s.zero.size() == 1 && n > 1) s.zero.assign(n, s.zero[0]);
    const auto rank = static_cast<int64_t>(of.shape.size());
    const bool fits = n == 1 || (s.axis >= 0 && s.axis < rank &&
                                 of.shape[static_cast<size_t>(s.axis)] == static_cast<int64_t>(n));
    if (s.zero.size() != n || !fits)
      fail(fmt::format("tensor '{}' has {} scales and {} zero points along dimension {}", of.name,
                       n, s.zero.size(), s.axis));
    for (size_t i = 0; i < n; ++i)
      if (!std::isfinite(s.scale[i]) || s.scale[i] < 0 || s.zero[i] < -(int64_t{1} << 31) ||
          s.zero[i] >= int64_t{1} << 31)
        fail(fmt::format("tensor '{}' has the scale {} and the zero point {}", of.name, s.scale[i],
                         s.zero[i]));
    return s;
  }

  TfliteTensor tensor(const FlatTable& t) const {
    TfliteTensor out;
    Budget::take(sizeof(TfliteTensor));
    out.name = t.text(3);
    out.file_type = t.number<int8_t>(1);
    out.type = tflite_type(out.file_type);
    for (const int32_t d : t.numbers<int32_t>(0, kMaxRank)) out.shape.push_back(d);
    for (const int32_t d : t.numbers<int32_t>(7, kMaxRank)) out.signature.push_back(d < 0 ? -1 : d);
    for (const int64_t d : out.shape)
      if (d < 0) fail(fmt::format("tensor '{}' has the size {}", out.name, d));
    out.has_shape = t.number<uint8_t>(8) != 0 || !out.shape.empty();
    const auto k = t.number<uint32_t>(2);
    if (t.number<uint32_t>(10) != 0)
      TD_FAIL(Unsupported, "tensor '{}' lies in another file, which is not supported", out.name);
    if (k >= buffers_.size() && k != 0)
      fail(
          fmt::format("tensor '{}' lies in buffer {}, there are {}", out.name, k, buffers_.size()));
    if (k < buffers_.size()) out.data = buffers_[k];
    out.is_variable = t.number<uint8_t>(5) != 0;
    out.sparsity = t.table(6);
    out.scales = scales(t.table(4), out);
    return out;
  }

  void check(const std::vector<int32_t>& list, const TfliteGraph& g, bool absent) const {
    for (const int32_t i : list)
      if (i < (absent ? -1 : 0) || i >= static_cast<int64_t>(g.tensors.size()))
        fail(fmt::format("subgraph '{}' names the tensor {}, it has {}", g.name, i,
                         g.tensors.size()));
  }

  TfliteOp op(const FlatTable& t, const TfliteGraph& g) const {
    TfliteOp o;
    Budget::take(sizeof(TfliteOp));
    const auto k = t.number<uint32_t>(0);
    if (k >= codes_.size())
      fail(fmt::format("an operator has the code {} of {}", k, codes_.size()));
    const FlatTable& code = codes_[k];
    // The first field is a byte, which newer ops do not fit into.
    o.code = std::max<int64_t>(code.number<int8_t>(0), code.number<int32_t>(3));
    o.custom = code.text(1);
    o.version = code.number<int32_t>(2, 1);
    o.in = t.numbers<int32_t>(1, kMostPorts);
    o.out = t.numbers<int32_t>(2, kMostPorts);
    o.intermediates = t.numbers<int32_t>(8, kMostPorts);
    check(o.in, g, true);
    check(o.intermediates, g, true);
    check(o.out, g, true);
    o.options = t.table(4);
    o.options2 = t.table(12);
    o.custom_options = t.bytes(5);
    const auto at = t.number<uint64_t>(9), size = t.number<uint64_t>(10);
    if (at > 1) {
      if (at > d_.bytes().size() || size > d_.bytes().size() - at)
        fail("the options of an operator are not in the file");
      o.custom_options = d_.bytes().substr(at, size);
    }
    return o;
  }

  TfliteGraph graph(const FlatTable& t) const {
    TfliteGraph g;
    g.name = t.text(4);
    for (uint64_t i = 0, n = t.size(0); i < n; ++i) g.tensors.push_back(tensor(t.entry(0, i)));
    g.inputs = t.numbers<int32_t>(1, kMostPorts);
    g.outputs = t.numbers<int32_t>(2, kMostPorts);
    check(g.inputs, g, false);
    check(g.outputs, g, false);
    for (uint64_t i = 0, n = t.size(3); i < n; ++i) g.ops.push_back(op(t.entry(3, i), g));
    return g;
  }

  TfliteSignature signature(const FlatTable& t, const TfliteModel& m) const {
    TfliteSignature s;
    s.key = t.text(2);
    s.graph = t.number<uint32_t>(4);
    if (s.graph >= m.graphs.size())
      fail(fmt::format("signature '{}' names the subgraph {}", s.key, s.graph));
    for (const int field : {0, 1}) {
      auto& side = field == 0 ? s.inputs : s.outputs;
      for (uint64_t i = 0, n = t.size(field); i < n; ++i) {
        const FlatTable port = t.entry(field, i);
        Budget::take(64);
        side.emplace_back(port.text(0), port.number<uint32_t>(1));
      }
    }
    return s;
  }

  const FlatDocument& d_;
  const FlatTable root_;
  std::vector<std::string_view> buffers_;
  std::vector<FlatTable> codes_;
};

/// The numbers of a dimension of a sparse tensor: a table of one vector, whose type the union says.
std::vector<int64_t> sparse_list(const FlatTable& t, int field) {
  const FlatTable v = t.table(field + 1);
  switch (t.number<uint8_t>(field)) {
    case 1: {
      const auto n = v.numbers<int32_t>(0);
      return {n.begin(), n.end()};
    }
    case 2: {
      const auto n = v.numbers<uint16_t>(0);
      return {n.begin(), n.end()};
    }
    case 3: {
      const auto n = v.numbers<uint8_t>(0);
      return {n.begin(), n.end()};
    }
    default:
      return {};
  }
}

/// The order in which a sparse tensor's elements stand: its dimensions, then those of blocks, in
/// `order`; each dense, or with a list of the indices that are there.
class SparseWalk {
 public:
  SparseWalk(const TfliteTensor& t, uint64_t stored, const std::string& what)
      : t_(t), what_(what), stored_(stored) {
    const auto order = t.sparsity.numbers<int32_t>(0, 2 * kMaxRank);
    const auto blocks = t.sparsity.numbers<int32_t>(1, kMaxRank);
    const size_t rank = t.shape.size(), all = order.size();
    if (all != rank + blocks.size() || t.sparsity.size(2) != all) fail();
    std::vector<char> seen(all);
    for (size_t i = 0; i < all; ++i) {
      const auto d = static_cast<uint32_t>(order[i]);
      if (d >= all || seen[d]++) fail();
      Level l;
      l.of = d < rank ? d : static_cast<uint32_t>(blocks[d - rank]);
      if (l.of >= rank) fail();
      l.is_block = d >= rank;
      const FlatTable m = t.sparsity.entry(2, i);
      l.dense = m.number<int8_t>(0) == 0;
      l.size = m.number<int32_t>(1);
      if (l.size < 0) fail();
      if (!l.dense) {
        l.segments = sparse_list(m, 2);
        l.indices = sparse_list(m, 4);
      }
      levels_.push_back(std::move(l));
    }
    block_.assign(rank, 1);
    for (const Level& l : levels_)
      if (l.is_block) block_[l.of] = std::max<int64_t>(l.size, 1);
  }
  /// f(place in the dense tensor, place among the stored ones) for each element.
  template <class F>
  void run(F&& f) {
    std::vector<int64_t> at(t_.shape.size());
    uint64_t next = 0;
    visit(0, 0, at, next, f);
    if (next != stored_) fail();
  }

 private:
  struct Level {
    uint32_t of = 0;
    bool is_block = false, dense = true;
    int64_t size = 0;
    std::vector<int64_t> segments, indices;
  };
  [[noreturn]] void fail() const {
    TD_FAIL(Format, "'{}': tensor '{}' has a broken list of its sparse elements", what_, t_.name);
  }
  template <class F>
  void visit(size_t level, int64_t position, std::vector<int64_t>& at, uint64_t& next, F& f) {
    if (level == levels_.size()) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d) {
        if (at[d] >= t_.shape[d]) fail();
        place = place * t_.shape[d] + at[d];
      }
      if (next >= stored_) fail();
      f(static_cast<uint64_t>(place), next++);
      return;
    }
    Budget::count();
    const Level& l = levels_[level];
    const auto step = [&](int64_t i, int64_t inner) {
      const int64_t before = at[l.of];
      at[l.of] = l.is_block ? before + i : before + i * block_[l.of];
      visit(level + 1, inner, at, next, f);
      at[l.of] = before;
    };
    if (l.dense) {
      for (int64_t i = 0; i < l.size; ++i) step(i, position * l.size + i);
      return;
    }
    const auto p = static_cast<size_t>(position);
    if (position < 0 || p + 1 >= l.segments.size()) fail();
    for (int64_t k = l.segments[p]; k < l.segments[p + 1]; ++k) {
      if (k < 0 || static_cast<size_t>(k) >= l.indices.size()) fail();
      const int64_t i = l.indices[static_cast<size_t>(k)];
      if (i < 0 || i >= int64_t{1} << 31) fail();
      step(i, k);
    }
  }
  const TfliteTensor& t_;
  const std::string& what_;
  uint64_t stored_;
  std::vector<Level> levels_;
  std::vector<int64_t> block_;
};

std::string dense_bytes(const TfliteTensor& t, uint64_t n, uint64_t width,
                        const std::string& what) {
  check_onnx_loop(static_cast<double>(n), 2 * width);
  std::string out(n * width, '\0');
  SparseWalk walk(t, t.data.size() / width, what);
  walk.run([&](uint64_t place, uint64_t from) {
    std::copy_n(t.data.data() + from * width, width, out.data() + place * width);
  });
  return out;
}

/// Strings: their number, where each begins and the last one ends, then the characters.
OnnxStrings strings_of(const TfliteTensor& t, uint64_t n, const std::string& what) {
  const auto number = [&](uint64_t i) {
    uint32_t v = 0;
    TD_CHECK(t.data.size() / 4 > i, Format, "'{}': the strings of '{}' are cut", what, t.name);
    std::memcpy(&v, t.data.data() + 4 * i, 4);
    return v;
  };
  TD_CHECK(number(0) == n, Format, "'{}': tensor '{}' holds {} strings, expected {}", what, t.name,
           number(0), n);
  OnnxStrings s;
  s.shape = t.shape;
  for (uint64_t i = 0; i < n; ++i) {
    const uint32_t from = number(i + 1), to = number(i + 2);
    TD_CHECK(from <= to && to <= t.data.size(), Format, "'{}': the strings of '{}' are cut", what,
             t.name);
    Budget::take(sizeof(std::string) + (to - from));
    s.values.emplace_back(t.data.substr(from, to - from));
  }
  return s;
}

}  // namespace

TfliteModel parse_tflite(const FlatDocument& document) { return Parser(document).run(); }

uint64_t tflite_count(const TfliteTensor& t, const std::string& what) {
  uint64_t n = 1, none = 1;
  for (const int64_t d : t.shape) {
    const auto size = static_cast<uint64_t>(d);
    TD_CHECK(!__builtin_mul_overflow(n, std::max<uint64_t>(size, 1), &n) && n <= uint64_t{1} << 34,
             Format, "'{}': tensor '{}' is too large", what, t.name);
    none = std::min<uint64_t>(none, size);
  }
  return n * none;
}

OnnxValue tflite_constant(const TfliteTensor& t, const std::string& what) {
  const uint64_t n = tflite_count(t, what);
  if (t.type == OnnxType::undefined || t.type == OnnxType::c64 || t.type == OnnxType::c128)
    TD_FAIL(Unsupported, "'{}': tensor '{}' has the element type {}, which is not supported", what,
            t.name, t.file_type);
  if (t.type == OnnxType::string) return OnnxValue(strings_of(t, n, what));
  const uint64_t bits = info_of(t.type).bits;
  if (t.sparsity.exists() && bits >= 8)
    return from_raw_bytes(t.type, t.shape, dense_bytes(t, n, bits / 8, what));
  TD_CHECK(t.data.size() == (n * bits + 7) / 8, Format,
           "'{}': tensor '{}' needs {} bytes, {} are there", what, t.name, (n * bits + 7) / 8,
           t.data.size());
  return from_raw_bytes(t.type, t.shape, t.data);
}

}  // namespace tandem::onnx
