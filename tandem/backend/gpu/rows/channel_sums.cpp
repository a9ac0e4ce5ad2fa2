// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/rows/channel_sums_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tandem/backend/gpu/rows/reduce_text_internal.h"
#include "tandem/base/error.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kChannelBlocks = 1024;  // so that all processors have enough
constexpr int64_t kUnitsOfPiece = 8;      // of a thread, at least
constexpr int kMostChannelGroup = 8;

bool fits_group(const ChannelCut& cut, int e) {
  const codegen::TileLoop& r = cut.reduced;
  bool fits = cut.columns ? cut.channels % e == 0 : r.inner() % e == 0;
  for (int k = 0; k < r.n_arrays; ++k) {
    fits &= cut.columns ? cut.by[k] == 1 : cut.by[k] % e == 0 && r.inner_stride(k) == 1;
    for (int d = 0; d + (cut.columns ? 0 : 1) < r.rank; ++d) fits &= r.stride[k][d] % e == 0;
  }
  return fits;
}

}  // namespace

ChannelCut::ChannelCut(const Array* const* arrays, int n) {
  const Array& x = *arrays[0];
  channels = x.shape[1];
  count = x.numel / std::max<int64_t>(channels, 1);
  reduced.n_arrays = n;
  columns = channels > 1;
  size_t narrowest = 16;
  for (int k = 0; k < n; ++k) {
    by[k] = arrays[k]->strides[1];
    columns &= by[k] == 1;
    narrowest = std::min(narrowest, size_of(arrays[k]->dtype));
  }
  for (int d = 0; d < x.rank; ++d) {
    if (d == 1) continue;
    reduced.size[reduced.rank] = x.shape[d];
    for (int k = 0; k < n; ++k) reduced.stride[k][reduced.rank] = arrays[k]->strides[d];
    ++reduced.rank;
  }
  reduced.normalise(0);
  const int most = std::min(static_cast<int>(16 / narrowest), kMostChannelGroup);
  for (int e = most; e > 1 && group == 1; e /= 2) {
    if (fits_group(*this, e)) group = e;
  }
  for (int k = 0; k < n; ++k) aligned &= lies_on_groups(*arrays[k], group);
  if (columns) {
    const int64_t units = channels / group;
    lanes = lanes_for(units, count / kUnitsOfPiece);
    const int64_t blocks = (units + lanes - 1) / lanes, others = kReduceThreads / lanes;
    pieces = std::min(kChannelBlocks / blocks, count / (others * kUnitsOfPiece));
  } else {
    const auto half = static_cast<uint64_t>(std::max<int64_t>(count / group / 2, 1));
    lanes = static_cast<int>(
        std::min<int64_t>(static_cast<int64_t>(std::bit_ceil(half)), kReduceThreads));
    if (lanes == kReduceThreads) {
      pieces = std::min(kChannelBlocks / channels, count / group / (lanes * kUnitsOfPiece));
    }
  }
  pieces = std::max<int64_t>(pieces, 1);
}

namespace {

struct ChannelText {
  const ChannelProgram& p;
  const ChannelCut& cut;
  const Array* const* arrays;
  int n;
  DType sum;
  const std::vector<ChannelArgument>& others;

  std::string type() const { return td_type(sum); }
  // Channels of a thread: a group of them, or one.
  int channels() const { return cut.columns ? cut.group : 1; }
  std::string each(int e) const {
    return fmt::format("  td_unroll\n  for (td_i32 e = 0; e < {}; ++e) {{\n", e);
  }
  // `text` for each of the thread's channels.
  std::string for_channels(std::string text) const {
    for (size_t at = 0; (at = text.find('$', at)) != text.npos;) text.replace(at, 1, "[e]");
    return each(channels()) + "    const td_i64 ch = first_channel + e;\n    " + text + "\n  }\n";
  }
  std::string variables() const {
    std::string s = fmt::format("  {} ", type()), names = p.locals;
    for (int k = 0; k < p.states; ++k) s += fmt::format("{}a{}[{}]", k ? ", " : "", k, channels());
    const std::string size = fmt::format("[{}]", channels());
    for (size_t at = 0; (at = names.find('$', at)) != names.npos;) names.replace(at, 1, size);
    return s + (names.empty() ? "" : ", ") + names + ";\n" + for_channels(p.start);
  }

  void declare(KernelSource& k, bool elements) const {
    for (int i = 0; i < n && elements; ++i) {
      k.parameters.push_back({Parameter::in, word_of(arrays[i]->dtype), fmt::format("p{}", i)});
    }
    for (const ChannelArgument& o : others) k.parameters.push_back(o.parameter);
    k.parameters.push_back({Parameter::value, DType::i64, "channels"});
    k.parameters.push_back({Parameter::value, DType::i64, "count"});
    k.parameters.push_back({Parameter::value, DType::i32, "lanes"});
    k.parameters.push_back({Parameter::value, DType::i64, "pieces"});
    if (cut.pieces > 1) {
      k.parameters.push_back({elements ? Parameter::out : Parameter::in, sum, "part"});
    }
    for (int d = 0; elements && d < cut.reduced.rank; ++d) {
      if (d > 0) k.parameters.push_back({Parameter::value, DType::i64, fmt::format("rn{}", d)});
      for (int i = 0; i < n; ++i) {
        k.parameters.push_back({Parameter::value, DType::i64, fmt::format("rs{}_{}", i, d)});
      }
    }
    for (int i = 0; elements && i < n; ++i) {
      k.parameters.push_back({Parameter::value, DType::i64, fmt::format("by{}", i)});
    }
    for (int s = 0; s < p.states; ++s) {
      k.shared.push_back({sum, fmt::format("shared{}", s), kReduceThreads * channels()});
    }
  }

  // Unit r of the channel in each array: at<k>.
  std::string places() const {
    const codegen::TileLoop& loop = cut.reduced;
    std::string s = "    td_i64 left = r;\n";
    for (int i = 0; i < n; ++i) s += fmt::format("    td_i64 at{0} = first_channel * by{0};\n", i);
    for (int d = loop.rank - 1; d >= 0; --d) {
      const std::string c = d > 0 ? fmt::format("left % rn{}", d) : "left";
      for (int i = 0; i < n; ++i) s += fmt::format("    at{0} += {1} * rs{0}_{2};\n", i, c, d);
      if (d > 0) s += fmt::format("    left /= rn{};\n", d);
    }
    return s;
  }
  std::string loads() const {
    std::string s;
    for (int i = 0; i < n; ++i) {
      s += fmt::format("    td_line({}, line{}, {});\n", td_type(word_of(arrays[i]->dtype)), i,
                       cut.group);
      s += cut.group > 1 && cut.aligned
               ? fmt::format("    td_load({0}, line{1}, p{1}, at{1} / {0});\n", cut.group, i)
               : each(cut.group) + fmt::format("    line{0}[e] = p{0}[at{0} + e];\n  }}\n", i);
    }
    return s;
  }
  std::string values(const char* at) const {
    std::string s;
    for (int i = 0; i < n; ++i) {
      s += fmt::format("    const {} v{} = {};\n", type(), i,
                       loaded(fmt::format("line{}[{}]", i, at), arrays[i]->dtype));
    }
    return s;
  }
  std::string takes() const {
    if (cut.columns) return for_channels(values("e") + "    " + p.take);
    return fmt::format("  td_unroll\n  for (td_i32 w = 0; w < {}; ++w) {{\n", cut.group) +
           values("w") + for_channels(p.take) + "  }\n";
  }

  // States of threads that share channels, of any number of elements, into those of number 0.
  std::string combined(bool lanes) const {
    const std::string there =
        fmt::format("(t + gap * {}) * {} + e", lanes ? "1" : "lanes", channels());
    std::string put, get;
    for (int k = 0; k < p.states; ++k) {
      put += fmt::format("shared{0}[t * {1} + e] = a{0}$; ", k, channels());
      get += fmt::format("const T b{0} = shared{0}[{1}]; ", k, there);
    }
    return for_channels(put) +
           fmt::format("  for (td_i32 gap = {} / 2; gap > 0; gap /= 2) {{\n    td_barrier();\n",
                       lanes ? "lanes" : "others") +
           fmt::format("    if ({} < gap) {{\n", lanes ? "lane" : "other") +
           for_channels(get + p.combine + " " + put) + "    }\n  }\n";
  }
  std::string results(bool split, const char* number) const {
    std::string text = p.finish;
    if (split) {
      text.clear();
      for (int k = 0; k < p.states; ++k) {
        text += fmt::format("part[({} * pieces + piece) * channels + ch] = a{}$; ", k, k);
      }
    }
    return fmt::format("  if (live && {} == 0) {{\n", number) + for_channels(text) + "  }\n";
  }
  std::string wrapped(const std::string& body) const {
    return fmt::format("#undef T\n#define T {}\n", type()) + body + "#undef T\n";
  }

  KernelSource elements() const {
    KernelSource k{.name = p.name, .threads = kReduceThreads, .prelude = true};
    declare(k, true);
    std::string s = kGridLines;
    s += cut.columns
             ? fmt::format("  const td_i64 mine = (block * lanes + lane) * {};\n", cut.group)
             : "  const td_i64 mine = block * others + other;\n";
    s += "  const td_i32 live = mine < channels;\n"
         "  const td_i64 first_channel = live ? mine : 0;\n" +
         fmt::format("  const td_i64 units = count / {};\n", cut.columns ? 1 : cut.group) +
         "  const td_i64 first = units * piece / pieces;\n"
         "  const td_i64 last = live ? units * (piece + 1) / pieces : first;\n" +
         variables();
    s += fmt::format("  for (td_i64 r = first + {0}; r < last; r += {0}s) {{\n",
                     cut.columns ? "other" : "lane") +
         places() + loads() + takes() + "  }\n" + for_channels(p.done) + combined(!cut.columns);
    k.body = wrapped(s + results(cut.pieces > 1, cut.columns ? "other" : "lane"));
    return k;
  }

  // The pieces of a channel; neighbouring threads have neighbouring channels.
  KernelSource of_pieces() const {
    ChannelCut one = cut;
    one.columns = false;  // a thread has one channel
    const ChannelText text{p, one, arrays, n, sum, others};
    KernelSource k{
        .name = fmt::format("{}_pieces", p.name), .threads = kReduceThreads, .prelude = true};
    text.declare(k, false);
    std::string get;
    for (int s = 0; s < p.states; ++s) {
      get += fmt::format("const T b{0} = part[({0} * pieces + r) * channels + ch]; ", s);
    }
    std::string s =
        "  const td_i32 t = td_thread(x), lane = t % lanes, other = t / lanes;\n"
        "  const td_i32 others = td_threads(x) / lanes;\n"
        "  const td_i64 mine = (td_i64)td_block(x) * lanes + lane;\n"
        "  const td_i32 live = mine < channels;\n"
        "  const td_i64 first_channel = live ? mine : 0;\n";
    s += text.variables() + "  for (td_i64 r = other; r < pieces; r += others) {\n" +
         text.for_channels(get + p.combine) + "  }\n" + text.combined(false) +
         text.results(false, "other");
    k.body = text.wrapped(s);
    return k;
  }
};

void argue_others(Arguments& a, const std::vector<ChannelArgument>& others) {
  for (const ChannelArgument& o : others) {
    if (o.parameter.kind != Parameter::value)
      a.address(o.at, o.bytes);
    else
      o.parameter.type == DType::f64 ? a.value(o.value) : a.value(static_cast<float>(o.value));
  }
}

}  // namespace

void run_channels(const KernelCall& c, const ChannelProgram& program, const ChannelCut& cut,
                  const Array* const* arrays, int n, DType sum,
                  const std::vector<ChannelArgument>& others, Address parts, uint64_t variant) {
  Engine& e = engine_of(c.device);
  const ChannelText text{program, cut, arrays, n, sum, others};
  uint64_t types = static_cast<uint64_t>(sum);
  for (int k = 0; k < n; ++k) types = types << 4 | static_cast<uint64_t>(arrays[k]->dtype);
  const uint64_t lie = static_cast<uint64_t>(cut.reduced.rank) << 8 |
                       static_cast<uint64_t>(cut.group) << 4 | uint64_t{cut.columns} << 2 |
                       uint64_t{cut.aligned} << 1 | uint64_t{cut.pieces > 1};
  const auto kernel = [&](uint64_t which, auto&& source) {
    return plain_kernel(e, {program.name, lie << 16 | types, variant << 1 | which}, source);
  };
  const auto argue = [&](Arguments& a, int lanes) {
    argue_others(a, others);
    a.value(cut.channels).value(cut.count).value(int32_t{lanes}).value(cut.pieces);
    if (cut.pieces > 1) a.address(parts, cut.bytes_of_parts(program.states, sum));
  };
  Arguments a;
  for (int k = 0; k < n; ++k) argue_array(a, *arrays[k]);
  argue(a, cut.lanes);
  for (int d = 0; d < cut.reduced.rank; ++d) {
    const bool units = !cut.columns && d + 1 == cut.reduced.rank;
    const int64_t by = units ? cut.group : 1;
    if (d > 0) a.value(cut.reduced.size[d] / by);
    for (int k = 0; k < n; ++k) a.value(cut.reduced.stride[k][d] * by);
  }
  for (int k = 0; k < n; ++k) a.value(cut.by[k]);
  const int64_t of_block =
      cut.columns ? int64_t{cut.lanes} * cut.group : kReduceThreads / cut.lanes;
  const int64_t blocks = (cut.channels + of_block - 1) / of_block * cut.pieces;
  e.launch(kernel(0, [&] { return text.elements(); }), {static_cast<uint32_t>(blocks)},
           {kReduceThreads}, a, e.stream(c.stream));
  if (cut.pieces == 1) return;
  Arguments of;
  const int lanes = lanes_for(cut.channels, cut.pieces / 2);
  argue(of, lanes);
  e.launch(kernel(1, [&] { return text.of_pieces(); }),
           {static_cast<uint32_t>((cut.channels + lanes - 1) / lanes)}, {kReduceThreads}, of,
           e.stream(c.stream));
}

// ---- elements

namespace {

KernelSource mapped_source(const char* name, const std::vector<MappedArray>& arrays,
                           const std::string& body, const std::vector<ChannelArgument>& values,
                           const Walk& walk) {
  KernelSource k{.name = name, .prelude = true};
  std::string once, loads, sets, stores;
  const int group = walk.grouped();
  for (size_t i = 0; i < arrays.size(); ++i) {
    const MappedArray& m = arrays[i];
    const DType t = m.array->dtype;
    const int array = static_cast<int>(i);
    const std::string place = walk.place(array);
    k.parameters.push_back(
        {m.is_result ? Parameter::out : Parameter::in, word_of(t), fmt::format("p_{}", m.name)});
    const bool in_line = group > 1 && walk.in_groups(array);
    if (in_line) {
      once += fmt::format("  td_line({}, line_{}, {});\n", td_type(word_of(t)), m.name, group);
    }
    const std::string there =
        in_line ? fmt::format("line_{}[e]", m.name) : fmt::format("p_{}[{}]", m.name, place);
    if (m.is_result) {
      loads += fmt::format("    {} {};\n", register_type(t), m.name);
      sets += fmt::format("    {} = {};\n", there, stored(m.name, t));
      if (in_line)
        stores += fmt::format("  td_store({}, p_{}, {}, line_{});\n", group, m.name, place, m.name);
    } else {
      (group == 1 || in_line ? loads : once) +=
          fmt::format("    const {} {} = {};\n", register_type(t), m.name, loaded(there, t));
      if (in_line)
        once += fmt::format("  td_load({}, line_{}, p_{}, {});\n", group, m.name, m.name, place);
    }
  }
  for (const ChannelArgument& v : values) k.parameters.push_back(v.parameter);
  walk.declare(k);
  k.body = walk.lines() + once +
           (group > 1 ? fmt::format("  td_unroll\n  for (td_i32 e = 0; e < {}; ++e) {{\n", group)
                      : std::string("  {\n")) +
           loads + body + sets + "  }\n" + stores;
  return k;
}

}  // namespace

void run_mapped(const KernelCall& c, const char* name, const std::vector<MappedArray>& arrays,
                const std::string& body, const std::vector<ChannelArgument>& values,
                uint64_t variant) {
  Engine& e = engine_of(c.device);
  std::vector<const Array*> all;
  uint64_t types = 1;
  size_t narrowest = 16;
  int leader = 0;
  const Array* result = nullptr;
  for (const MappedArray& m : arrays) {
    if (m.is_result && !result) {
      leader = static_cast<int>(all.size());
      result = m.array;
    }
    all.push_back(m.array);
    types = types << 4 | static_cast<uint64_t>(m.array->dtype);
    narrowest = std::min(narrowest, size_of(m.array->dtype));
  }
  Walk walk(result->shape, result->rank, all.data(), static_cast<int>(all.size()), leader);
  for (int g = std::min(static_cast<int>(16 / narrowest), kMostChannelGroup); g > 1; g /= 2) {
    bool fits = result->numel % g == 0;
    for (const Array* a : all) fits &= lies_on_groups(*a, g);
    if (fits && walk.group(g)) break;
  }
  const uint64_t groups = static_cast<uint64_t>(walk.grouped());
  const KernelRef k = plain_kernel(
      e, {name, walk.ways() << 8 | groups, (types << 8 | variant) << 8 | walk.shape_key()},
      [&] { return mapped_source(name, arrays, body, values, walk); });
  Arguments a;
  for (const Array* x : all) argue_array(a, *x);
  argue_others(a, values);
  walk.argue(a);
  launch_each(e, k, walk.count(), a, c.stream);
}

}  // namespace tandem::gpu
