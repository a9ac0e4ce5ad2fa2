// SPDX-License-Identifier: Apache-2.0
// The rows that move elements by a rule (copy, cat, pad, flip ...): their references say which
// strided copies and fills they are made of, and those are run here.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/run/array_walk.h"
#include "tandem/graph/run/channels_last.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem::gpu {
namespace {

using codegen::TileLoop;

// What one kernel per size is kept under.
constexpr char kMovesCopy = 0, kMovesFill = 0, kMovesTurn = 0;

DType word_of_size(size_t size) {
  return size == 1 ? DType::u8 : size == 2 ? DType::i16 : size == 4 ? DType::i32 : DType::i64;
}

// A strided array as a Walk sees it. Strides may be negative: `first` is the element that the
// lowest address is before the array's own.
struct Place {
  Array array;
  Address lowest = 0;
  int64_t first = 0;
  size_t bytes = 0;

  Place(void* data, const int64_t* shape, const int64_t* strides, int rank, size_t size) {
    array.data = data;
    array.shape = shape;
    array.strides = strides;
    array.rank = static_cast<uint8_t>(rank);
    array.dtype = word_of_size(size);
    array.numel = 1;
    int64_t last = 0;
    for (int d = 0; d < rank; ++d) {
      array.numel *= shape[d];
      (strides[d] < 0 ? first : last) += (shape[d] - 1) * std::abs(strides[d]);
    }
    lowest = address_of(data) - static_cast<Address>(first) * size;
    bytes = static_cast<size_t>(first + last + 1) * size;
  }
};

// Offsets ys and xs are in groups.
KernelSource copy_source(const Walk& walk, DType word) {
  KernelSource k{.name = "strided_copy",
                 .parameters = {{Parameter::out, word, "y"},
                                {Parameter::in, word, "x"},
                                {Parameter::value, DType::i64, "ys"},
                                {Parameter::value, DType::i64, "xs"}}};
  walk.declare(k);
  const std::string to = "ys + " + walk.place(0), from = "xs + " + walk.place(1);
  k.body = walk.lines();
  if (walk.grouped() == 1) {
    k.body += fmt::format("  y[{}] = x[{}];\n", to, from);
  } else {
    k.body += fmt::format(
        "  td_line({0}, line, {1});\n  td_load({1}, line, x, {2});\n  td_store({1}, y, {3}, "
        "line);\n",
        td_type(word), walk.grouped(), from, to);
  }
  return k;
}

KernelSource fill_source(const Walk& walk, DType word) {
  KernelSource k{.name = "fill",
                 .parameters = {{Parameter::out, word, "y"}, {Parameter::value, word, "value"}}};
  walk.declare(k);
  k.body = walk.lines();
  const int group = walk.grouped();
  if (group == 1) {
    k.body += fmt::format("  y[{}] = value;\n", walk.place(0));
    return k;
  }
  const std::string each = fmt::format("  td_unroll\n  for (td_i32 e = 0; e < {}; ++e) ", group);
  k.body +=
      fmt::format("  td_line({}, line, {});\n", td_type(word), group) + each + "line[e] = value;\n";
  const std::string store = fmt::format("td_store({}, y, {}, line);\n", group, walk.place(0));
  k.body += walk.has_tail() ? fmt::format(
                                  "  if ((i + 1) * {0} <= elements) {{\n    {1}  }} else {{\n{2}"
                                  "if (i * {0} + e < elements) y[i * {0} + e] = value;\n  }}\n",
                                  group, store, each)
                            : "  " + store;
  return k;
}

// Where the innermost dimension of y and that of x differ, a block turns a tile of both: each line
// of threads reads along x and writes along y.
constexpr int kTileSide = 32, kTileLines = 8;
constexpr int64_t kLeastTurned = 8;  // elements along both

struct Turn {
  TileLoop rest;                  // the other dimensions
  int64_t n[2] = {}, by[2] = {};  // of y's innermost and x's: size, stride in the other array
  bool fits = false;

  Turn(const int64_t* shape, int rank, const Array* const* arrays) {
    const TileLoop loop = TileLoop::make(shape, rank, arrays, 2, 0);
    int inner[2] = {-1, -1};
    for (int k = 0; k < 2; ++k) {
      for (int d = 0; d < loop.rank; ++d) {
        if (loop.size[d] >= kLeastTurned && loop.stride[k][d] == 1) inner[k] = d;
      }
    }
    fits = inner[0] >= 0 && inner[1] >= 0 && inner[0] != inner[1] &&
           loop.stride[1][inner[0]] != 0 && loop.stride[0][inner[1]] != 0;
    if (!fits) return;
    rest.n_arrays = 2;
    for (int k = 0; k < 2; ++k) {
      n[k] = loop.size[inner[k]];
      by[k] = loop.stride[1 - k][inner[k]];
    }
    for (int d = 0; d < loop.rank; ++d) {
      if (d == inner[0] || d == inner[1]) continue;
      rest.size[rest.rank] = loop.size[d];
      for (int k = 0; k < 2; ++k) rest.stride[k][rest.rank] = loop.stride[k][d];
      ++rest.rank;
    }
    rest.normalise(-1);
  }
  int64_t tiles(int k) const { return (n[k] + kTileSide - 1) / kTileSide; }
};

// a runs along y's innermost dimension, b along x's.
KernelSource turn_source(const Walk& rest, DType word) {
  KernelSource k{.name = "transposed_copy",
                 .parameters = {{Parameter::out, word, "y"},
                                {Parameter::in, word, "x"},
                                {Parameter::value, DType::i64, "ys"},
                                {Parameter::value, DType::i64, "xs"}},
                 .shared = {{word, "tile", kTileSide * (kTileSide + 1)}},
                 .threads = kTileSide * kTileLines};
  for (const char* name : {"na", "nb", "xa", "yb", "tiles_a", "tiles_b"}) {
    k.parameters.push_back({Parameter::value, DType::i64, name});
  }
  rest.declare(k);
  k.body = fmt::format(
      "  const td_i32 lane = td_thread(x) % {0}, row = td_thread(x) / {0};\n"
      "  td_i64 place = td_block(x);\n"
      "  const td_i64 a0 = place % tiles_a * {0};\n  place /= tiles_a;\n"
      "  const td_i64 b0 = place % tiles_b * {0};\n  place /= tiles_b;\n",
      kTileSide);
  k.body += rest.lines("", fmt::format("({})place", rest.index()));
  const std::string lines =
      fmt::format("  for (td_i32 q = row; q < {}; q += {})\n", kTileSide, kTileLines);
  k.body += lines +
            fmt::format(
                "    if (a0 + q < na && b0 + lane < nb)\n"
                "      tile[q * {} + lane] = x[xs + {} + (a0 + q) * xa + b0 + lane];\n",
                kTileSide + 1, rest.place(1)) +
            "  td_barrier();\n" + lines +
            fmt::format(
                "    if (b0 + q < nb && a0 + lane < na)\n"
                "      y[ys + {} + (b0 + q) * yb + a0 + lane] = tile[lane * {} + q];\n",
                rest.place(0), kTileSide + 1);
  return k;
}

void argue_word(Arguments& a, const void* bits, size_t size) {
  int64_t v = 0;
  std::memcpy(&v, bits, size);
  switch (size) {
    case 1:
      a.value(static_cast<uint8_t>(v));
      return;
    case 2:
      a.value(static_cast<int16_t>(v));
      return;
    case 4:
      a.value(static_cast<int32_t>(v));
      return;
    default:
      a.value(v);
  }
}

class DeviceMover final : public detail::Mover {
 public:
  explicit DeviceMover(const KernelCall& c) : e_(engine_of(c.device)), stream_(c.stream) {}

  void copy(void* dst, const int64_t* dst_strides, const void* src, const int64_t* src_strides,
            const int64_t* shape, int rank, size_t size) override {
    const Place y(dst, shape, dst_strides, rank, size);
    const Place x(const_cast<void*>(src), shape, src_strides, rank, size);
    const Array* arrays[] = {&y.array, &x.array};
    Walk walk(shape, rank, arrays, 2, 0);
    if (walk.place(0) == "i" && walk.place(1) == "i") {
      return e_.check(e_.context().copy(y.lowest, x.lowest, y.bytes, e_.stream(stream_)));
    }
    if (const Turn turn(shape, rank, arrays); turn.fits) return copy_turned(y, x, turn);
    for (int g = static_cast<int>(16 / size); g > 1; g /= 2) {
      const auto bytes = static_cast<Address>(g) * size;
      const bool aligned = (y.lowest | x.lowest) % std::min<Address>(bytes, 16) == 0;
      if (!aligned || y.first % g != 0 || x.first % g != 0) continue;
      Walk groups = walk;
      if (!groups.group(g) || groups.has_tail() || !groups.in_groups(1)) continue;
      walk = groups;
      break;
    }
    const int64_t group = walk.grouped();
    const KernelId id{&kMovesCopy, walk.ways(),
                      (walk.shape_key() << 8 | size) << 8 | static_cast<uint64_t>(group)};
    const KernelRef k = plain_kernel(e_, id, [&] { return copy_source(walk, y.array.dtype); });
    Arguments a;
    a.address(y.lowest, y.bytes).address(x.lowest, x.bytes);
    a.value(y.first / group).value(x.first / group);
    walk.argue(a);
    launch_each(e_, k, walk.count(), a, stream_);
  }

  void copy_turned(const Place& y, const Place& x, const Turn& turn) {
    const Walk rest(turn.rest, static_cast<int64_t>(std::max(y.bytes, x.bytes)));
    const KernelId id{&kMovesTurn, rest.ways(),
                      rest.shape_key() << 8 | static_cast<uint64_t>(y.array.dtype)};
    const KernelRef k = plain_kernel(e_, id, [&] { return turn_source(rest, y.array.dtype); });
    Arguments a;
    a.address(y.lowest, y.bytes).address(x.lowest, x.bytes).value(y.first).value(x.first);
    a.value(turn.n[0]).value(turn.n[1]).value(turn.by[0]).value(turn.by[1]);
    a.value(turn.tiles(0)).value(turn.tiles(1));
    rest.argue(a);
    const int64_t blocks = turn.tiles(0) * turn.tiles(1) * rest.count();
    e_.launch(k, {static_cast<uint32_t>(blocks)}, {kTileSide * kTileLines}, a, e_.stream(stream_));
  }

  void fill(const Array& y, Scalar value) override {
    const Array* arrays[] = {&y};
    Walk walk = y.contiguous ? Walk(y.numel, arrays, 1) : Walk(y.shape, y.rank, arrays, 1, 0);
    const size_t size = size_of(y.dtype);
    const int group = static_cast<int>(16 / size);
    if (lies_on_groups(y, group)) walk.group(group);
    const KernelId id{&kMovesFill, walk.ways(),
                      (walk.shape_key() << 8 | size) << 8 | static_cast<uint64_t>(walk.grouped())};
    const KernelRef k = plain_kernel(e_, id, [&] { return fill_source(walk, word_of_size(size)); });
    Arguments a;
    argue_array(a, y);
    visit_dtype(y.dtype, [&](auto tag) {
      const auto v = detail::scalar_as<decltype(tag)>(value);
      argue_word(a, &v, sizeof v);
    });
    walk.argue(a);
    launch_each(e_, k, walk.count(), a, stream_);
  }

 private:
  Engine& e_;
  const Stream stream_;
};

bool moves_only(const KernelCall& c) {
  return &c.op != &op::region_put || !c.get_attrs<RegionAttrs>().accumulate;
}

void run_moves(const KernelCall& c) {
  DeviceMover mover(c);
  const detail::MoverGuard guard(mover);
  c.op.reference_fn(c);
}

}  // namespace

void start_with(const KernelCall& c, const Array* x) {
  const Array& y = c.out[0];
  if (y.numel == 0 || (x && x->data == y.data)) return;
  DeviceMover mover(c);
  if (x)
    mover.copy(y.data, y.strides, x->data, x->strides, y.shape, y.rank, size_of(y.dtype));
  else
    mover.fill(y, 0);
}

void copy_as(const KernelCall& c, const Array& x, Address to, const Strides& strides) {
  DeviceMover(c).copy(reinterpret_cast<void*>(to), strides.data(), x.data, x.strides, x.shape,
                      x.rank, size_of(x.dtype));
}
void copy_dense(const KernelCall& c, const Array& x, Address to) {
  copy_as(c, x, to, row_major_strides(x));
}

void register_moves(DeviceKind kind) {
  for (const OpDef* op : all_ops()) {
    if (!op->has(kMoved)) continue;
    const bool images = op == &op::cat || op == &op::pad;
    register_kernel(
        kind, *op,
        {moves_only, images ? detail::keep_most_channels_last : nullptr, nullptr, run_moves});
  }
}

}  // namespace tandem::gpu
