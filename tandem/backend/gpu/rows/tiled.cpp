// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "tandem/backend/gpu/rows/tiled_internal.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kLargeSide = 64;
constexpr int kLargePerThread = 4;

constexpr const char* kTiledBody = R"td_text(
  const td_i32 t = td_thread(x), tx = t % @side@, ty = t / @side@;
  td_i64 tile = td_block(x);
  const td_i64 col0 = tile % tiles_n * @tile@;
  tile /= tiles_n;
  const td_i64 row0 = tile % tiles_m * @tile@;
  tile /= tiles_m;
@batch@
  @acc@ total[@per@][@per@];
  for (td_i32 i0 = 0; i0 < @per@; ++i0)
    for (td_i32 j0 = 0; j0 < @per@; ++j0) total[i0][j0] = 0;
  for (td_i64 p0 = 0; p0 < k; p0 += @depth@) {
    for (td_i32 q = t; q < @tile@ * @depth@; q += @side@ * @side@) {
      const td_i32 p = @a_p@, r = @a_r@;
      const td_i64 row = row0 + r, at = p0 + p;
      @acc@ v = 0;
      if (row < m && at < k) { @load_a@ }
      tile_a[p * @tile@ + r] = v;
    }
    for (td_i32 q = t; q < @tile@ * @depth@; q += @side@ * @side@) {
      const td_i32 p = @b_p@, r = @b_r@;
      const td_i64 col = col0 + r, at = p0 + p;
      @acc@ v = 0;
      if (col < n && at < k) { @load_b@ }
      tile_b[p * @tile@ + r] = v;
    }
    td_barrier();
    for (td_i32 p = 0; p < @depth@; ++p) {
      for (td_i32 i1 = 0; i1 < @per@; ++i1) {
        const @acc@ av = tile_a[p * @tile@ + ty * @per@ + i1];
        for (td_i32 j1 = 0; j1 < @per@; ++j1) {
          const @acc@ bv = tile_b[p * @tile@ + tx + @side@ * j1];
          total[i1][j1] = @multiply@;
        }
      }
    }
    td_barrier();
  }
  for (td_i32 i2 = 0; i2 < @per@; ++i2) {
    for (td_i32 j2 = 0; j2 < @per@; ++j2) {
      const td_i64 row = row0 + ty * @per@ + i2, col = col0 + tx + @side@ * j2;
      if (row < m && col < n) {
        @before@
        @acc@ v = total[i2][j2];
@added@        y[@place@] = @store@;
      }
    }
  }
)td_text";

// How q, the number of an element of a tile, is a place along k and one along the other side.
std::pair<std::string, std::string> order_of(bool along_k) {
  return along_k ? std::pair{"q % @depth@", "q / @depth@"} : std::pair{"q / @tile@", "q % @tile@"};
}

}  // namespace

int tile_per_thread(int64_t m, int64_t n) {
  return m >= kLargeSide && n >= kLargeSide ? kLargePerThread : 1;
}

std::string TiledText::element(const std::string& array, const std::string& at) const {
  return loaded(fmt::format("{}[{}]", array, at), y);
}

KernelSource TiledText::source() const {
  const DType word = word_of(y);
  KernelSource k{.name = name,
                 .parameters = {{Parameter::out, word, "y"},
                                {Parameter::in, word_of(a), "a"},
                                {Parameter::in, word_of(b), "b"}},
                 .shared = {{sum(), "tile_a", tile() * kDepth}, {sum(), "tile_b", tile() * kDepth}},
                 .threads = kBlock,
                 .prelude = true};
  k.parameters.insert(k.parameters.end(), inputs.begin(), inputs.end());
  for (const char* n : {"m", "n", "k", "tiles_m", "tiles_n"}) {
    k.parameters.push_back({Parameter::value, DType::i64, n});
  }
  for (const std::string& n : numbers) k.parameters.push_back({Parameter::value, DType::i64, n});
  const auto [a_p, a_r] = order_of(a_along_k);
  const auto [b_p, b_r] = order_of(b_along_k);
  std::string plus;
  if (!added.empty()) {
    plus = whole() ? fmt::format("        v = (td_i64)((td_u64)v + (td_u64)({}));\n", added)
                   : fmt::format("        v = v + {};\n", added);
  }
  k.body = filled_in(
      kTiledBody,
      {{"batch", batch},
       {"a_p", a_p},
       {"a_r", a_r},
       {"b_p", b_p},
       {"b_r", b_r},
       {"load_a", load_a},
       {"load_b", load_b},
       {"multiply",
        whole() ? "(td_i64)((td_u64)total[i1][j1] + (td_u64)av * (td_u64)bv)"
                : fmt::format("td_fma_{}(av, bv, total[i1][j1])", y == DType::f64 ? "f64" : "f32")},
       {"added", plus},
       {"before", before_store},
       {"place", place},
       {"store", whole() ? fmt::format("({})v", td_type(y)) : stored("v", y)},
       {"acc", td_type(sum())},
       {"side", std::to_string(kSide)},
       {"depth", std::to_string(kDepth)},
       {"tile", std::to_string(tile())},
       {"per", std::to_string(per_thread)}});
  return k;
}

Extent argue_tiles(Arguments& a, int per_thread, int64_t count, int64_t m, int64_t n, int64_t k) {
  const int64_t tile = TiledText::kSide * per_thread;
  const int64_t tiles_m = (m + tile - 1) / tile, tiles_n = (n + tile - 1) / tile;
  a.value(m).value(n).value(k).value(tiles_m).value(tiles_n);
  return {static_cast<uint32_t>(count * tiles_m * tiles_n)};
}

}  // namespace tandem::gpu
