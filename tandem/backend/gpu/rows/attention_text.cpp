// SPDX-License-Identifier: Apache-2.0
// Pieces of text are put together by marks; in all of them `thread` is the thread's number in the
// block, `group` and `pair` say which rows and columns of an accumulator a lane holds.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/backend/gpu/rows/attention_internal.h"
#include "tandem/backend/gpu/rows/call_internal.h"

namespace tandem::gpu {
namespace {

constexpr int kPad = 8;  // elements between lines of a tile, so that 8 lines lie in other banks

int padded(int features) { return (features + 15) / 16 * 16; }
int line_of_tile(int features) { return padded(features) + kPad; }

constexpr const char* kStart = R"td_text(
  const td_i32 thread = td_thread(x), lane = thread & 31, warp = thread >> 5;
  const td_i32 group = lane >> 2, pair = (lane & 3) * 2;
  const td_i32 a_row = lane & 15, a_column = (lane >> 4) * 8;
  const td_i32 b_row = (lane & 7) + (lane >> 4) * 8, b_column = (lane >> 3 & 1) * 8;
  const td_i32 t_row = lane & 15, t_column = (lane >> 4) * 8;
)td_text";

// Lines first ... of `from` into a tile; what lies beyond is 0.
constexpr const char* kCopy = R"td_text(
#pragma unroll
  for (td_i32 i = thread; i < @rows@ * (@padded@ / 8); i += @threads@) {
    const td_i32 row = i / (@padded@ / 8), column = i % (@padded@ / 8) * 8;
    const td_i32 there = row < @limit@ && column < @width@;
    td_i16* const to = @to@ + row * @line@ + column;
    @each@
  }
)td_text";
constexpr const char* kCopyAligned =
    "td_copy_start(to, @from@ + (there ? row * (td_i32)@name@l + column : 0), there);";
constexpr const char* kCopyElements = R"td_text(
    for (td_i32 c = 0; c < 8; ++c) {
      to[c] = there && column + c < @width@
                  ? @from@[(td_i64)row * @name@l + (td_i64)(column + c) * @name@e] : (td_i16)0;
    })td_text";

constexpr const char* kStore = R"td_text(
#pragma unroll
  for (td_i32 i = thread; i < @rows@ * (@padded@ / 8); i += @threads@) {
    const td_i32 row = i / (@padded@ / 8), column = i % (@padded@ / 8) * 8;
    const td_i16* const from = @tile@ + row * @line@ + column;
    if (row >= @limit@ || column >= @width@) continue;
    @each@
  }
)td_text";
constexpr const char* kStoreAligned =
    "*(td_bytes16*)(@to@ + row * (td_i32)@name@l + column) = *(const td_bytes16*)from;";
constexpr const char* kStoreElements = R"td_text(
    for (td_i32 c = 0; c < 8 && column + c < @width@; ++c) {
      @to@[(td_i64)row * @name@l + (td_i64)(column + c) * @name@e] = from[c];
    })td_text";

// An accumulator of `tiles` x `columns` times a factor for each tile and half, into a tile of
// shared memory.
constexpr const char* kStage = R"td_text(
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {
#pragma unroll
    for (td_i32 n = 0; n < @columns@ / 8; ++n) {
#pragma unroll
      for (td_i32 i = 0; i < 2; ++i) {
        td_i16* const to = @tile@ +
            ((warp * @tiles@ + m) * 16 + group + i * 8) * @line@ + n * 8 + pair;
        *(td_u32*)to = td_pack_@type@(@from@[m][n][2 * i] * @factor@, @from@[m][n][2 * i + 1] * @factor@);
      }
    }
  }
)td_text";

constexpr const char* kZero = R"td_text(
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {
#pragma unroll
    for (td_i32 n = 0; n < @columns@ / 8; ++n) {
#pragma unroll
      for (td_i32 i = 0; i < 4; ++i) @to@[m][n][i] = 0;
    }
  }
)td_text";

// to [tiles * 16, columns] += a b^T over `depth` features; a and b are tiles of shared memory, or a
// lies in registers.
constexpr const char* kScores = R"td_text(
#pragma unroll
  for (td_i32 kk = 0; kk < @depth@ / 16; ++kk) {
    @load@
#pragma unroll
    for (td_i32 n = 0; n < @columns@ / 16; ++n) {
      td_u32 right[4];
      td_load_matrices(right, @b@ + (n * 16 + b_row) * @line@ + kk * 16 + b_column);
#pragma unroll
      for (td_i32 m = 0; m < @tiles@; ++m) {
        td_mma_@type@(@to@[m][2 * n], @a@, right[0], right[1]);
        td_mma_@type@(@to@[m][2 * n + 1], @a@, right[2], right[3]);
      }
    }
  }
)td_text";
constexpr const char* kLoadLeft = R"td_text(td_u32 left[@tiles@][4];
#pragma unroll
    for (td_i32 m = 0; m < @tiles@; ++m) {
      td_load_matrices(left[m], @tile@ + ((warp * @tiles@ + m) * 16 + a_row) * @line@ + kk * 16 + a_column);
    })td_text";

// Rows of queries or keys of this warp, from a tile into registers.
constexpr const char* kFragments = R"td_text(
  td_u32 @to@[@depth@ / 16][@tiles@][4];
#pragma unroll
  for (td_i32 kk = 0; kk < @depth@ / 16; ++kk) {
#pragma unroll
    for (td_i32 m = 0; m < @tiles@; ++m) {
      td_load_matrices(@to@[kk][m], @a@ + ((warp * @tiles@ + m) * 16 + a_row) * @line@ + kk * 16 + a_column);
    }
  }
)td_text";

// to [tiles * 16, columns] += weights times rows of b; weights are an accumulator over `depth`.
constexpr const char* kWeighted = R"td_text(
#pragma unroll
  for (td_i32 kk = 0; kk < @depth@ / 16; ++kk) {
    td_u32 left[@tiles@][4];
#pragma unroll
    for (td_i32 m = 0; m < @tiles@; ++m) {
      left[m][0] = td_pack_@type@(@a@[m][2 * kk][0], @a@[m][2 * kk][1]);
      left[m][1] = td_pack_@type@(@a@[m][2 * kk][2], @a@[m][2 * kk][3]);
      left[m][2] = td_pack_@type@(@a@[m][2 * kk + 1][0], @a@[m][2 * kk + 1][1]);
      left[m][3] = td_pack_@type@(@a@[m][2 * kk + 1][2], @a@[m][2 * kk + 1][3]);
    }
#pragma unroll
    for (td_i32 n = 0; n < @columns@ / 16; ++n) {
      td_u32 right[4];
      td_load_transposed(right, @b@ + (kk * 16 + t_row) * @line@ + n * 16 + t_column);
#pragma unroll
      for (td_i32 m = 0; m < @tiles@; ++m) {
        td_mma_@type@(@to@[m][2 * n], left[m], right[0], right[1]);
        td_mma_@type@(@to@[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
)td_text";

// Which scores count, and what a mask adds; afterwards they are multiples of `unit`.
constexpr const char* kVisible = R"td_text(
  if (@edge@) {
#pragma unroll
    for (td_i32 m = 0; m < @tiles@; ++m) {
#pragma unroll
      for (td_i32 n = 0; n < @columns@ / 8; ++n) {
#pragma unroll
        for (td_i32 i = 0; i < 4; ++i) {
          const td_i32 row = own + (warp * @tiles@ + m) * 16 + group + (i >> 1) * 8;
          const td_i32 column = other + n * 8 + pair + (i & 1);
          const td_i32 query = @query@, key = @key@;
          @seen@
        }
      }
    }
  }
)td_text";

constexpr const char* kSoftmax = R"td_text(
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {
#pragma unroll
    for (td_i32 i = 0; i < 2; ++i) {
      td_f32 best = top[m][i];
#pragma unroll
      for (td_i32 n = 0; n < @columns@ / 8; ++n) {
        best = td_larger(best, td_larger(w[m][n][2 * i], w[m][n][2 * i + 1]));
      }
      best = td_larger(best, td_shuffle_xor(best, 1));
      best = td_larger(best, td_shuffle_xor(best, 2));
      const td_f32 shift = best == -__builtin_inff() ? 0.0f : best * unit;
      const td_f32 keep = td_exp2(td_fma_f32(top[m][i], unit, -shift));
      top[m][i] = best;
      td_f32 more = 0;
#pragma unroll
      for (td_i32 n = 0; n < @columns@ / 8; ++n) {
#pragma unroll
        for (td_i32 c = 2 * i; c < 2 * i + 2; ++c) {
          w[m][n][c] = td_exp2(td_fma_f32(w[m][n][c], unit, -shift));
          more += w[m][n][c];
        }
      }
      sum[m][i] = td_fma_f32(sum[m][i], keep, more);
#pragma unroll
      for (td_i32 n = 0; n < @f@ / 8; ++n) {
        o[m][n][2 * i] *= keep;
        o[m][n][2 * i + 1] *= keep;
      }
    }
  }
)td_text";

constexpr const char* kFinish = R"td_text(
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {
#pragma unroll
    for (td_i32 i = 0; i < 2; ++i) {
      td_f32 all = sum[m][i];
      all += td_shuffle_xor(all, 1);
      all += td_shuffle_xor(all, 2);
      const td_i32 row = own + (warp * @tiles@ + m) * 16 + group + i * 8;
      const td_f32 shift = top[m][i] == -__builtin_inff() ? 0.0f : top[m][i] * unit;
      if (@lse@ && pair == 0 && row < l) {
        lse[(td_i64)index * l + row] =
            all == 0 ? -__builtin_inff() : (shift + td_log2(all)) * 0.693147180559945309f;
      }
      const td_f32 share = all == 0 ? 1.0f : 1.0f / all;
#pragma unroll
      for (td_i32 n = 0; n < @f@ / 8; ++n) {
        o[m][n][2 * i] *= share;
        o[m][n][2 * i + 1] *= share;
      }
    }
  }
)td_text";

// Weights and the gradients of scores from scores, products with gy, lse and delta of each query.
constexpr const char* kGradient = R"td_text(
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {
#pragma unroll
    for (td_i32 n = 0; n < @columns@ / 8; ++n) {
#pragma unroll
      for (td_i32 i = 0; i < 4; ++i) {
        w[m][n][i] = td_exp2(td_fma_f32(w[m][n][i], unit, -@lse@));
        g[m][n][i] = w[m][n][i] * (g[m][n][i] - @delta@);
      }
    }
  }
)td_text";

class Writer {
 public:
  Writer(const AttentionText& text, const char* name) : t_(text) {
    k_.name = name;
    k_.threads = AttentionText::kThreads;
    k_.warps = true;
    k_.body = kStart;
    if (has_mask()) k_.prelude = true;
  }

  KernelSource forward();
  KernelSource backward_queries();
  KernelSource backward_keys();

 private:
  using Parts = std::initializer_list<std::pair<const char*, std::string>>;
  bool has_mask() const { return t_.mask != AttentionText::none; }
  int e() const { return padded(t_.e); }
  int f() const { return padded(t_.f); }

  void array(const char* name, Parameter::Kind kind) {
    k_.parameters.push_back({kind, word_of(t_.dtype), name});
  }
  void number(const std::string& name, DType type = DType::i64) {
    k_.parameters.push_back({Parameter::value, type, name});
  }
  void strides(std::initializer_list<const char*> arrays) {
    for (const char* a : arrays) {
      for (const char* s : {"b", "h", "l", "e"}) number(std::string(a) + s);
    }
  }
  void shared(const char* name, int count) { k_.shared.push_back({DType::i16, name, count}); }
  void mask_and_sizes() {
    if (has_mask()) {
      k_.parameters.push_back({Parameter::in, word_of(t_.mask_type), "mask"});
      strides({"mask_"});
    }
    for (const char* n : {"l", "s", "heads", "share"}) number(n, DType::i32);
    number("scale", DType::f32);
  }
  void add(std::string text, Parts parts = {}) {
    text = filled_in(std::move(text), parts);
    k_.body += filled_in(std::move(text), {{"tiles", std::to_string(t_.tiles())},
                                           {"threads", std::to_string(AttentionText::kThreads)},
                                           {"type", short_name(t_.dtype)},
                                           {"e", std::to_string(e())},
                                           {"f", std::to_string(f())}});
  }
  // Lines of the array `name` (its strides' prefix) from `from` on, `limit` of them there.
  void copy(const char* name, const std::string& from, const std::string& to, int rows, int width,
            const std::string& limit) {
    std::string text = filled_in(kCopy, {{"each", t_.aligned ? kCopyAligned : kCopyElements}});
    add(std::move(text), {{"rows", std::to_string(rows)},
                          {"padded", std::to_string(padded(width))},
                          {"line", std::to_string(line_of_tile(width))},
                          {"width", std::to_string(width)},
                          {"limit", limit},
                          {"from", from},
                          {"to", to},
                          {"name", name}});
  }
  void store(const char* name, const char* tile, const char* from, const std::string& factor,
             const std::string& to, int rows, int width, const std::string& limit) {
    add(kStage, {{"tile", tile},
                 {"columns", std::to_string(padded(width))},
                 {"line", std::to_string(line_of_tile(width))},
                 {"from", from},
                 {"factor", factor}});
    add("  td_barrier();\n");
    std::string text = filled_in(kStore, {{"each", t_.aligned ? kStoreAligned : kStoreElements}});
    add(std::move(text), {{"rows", std::to_string(rows)},
                          {"padded", std::to_string(padded(width))},
                          {"line", std::to_string(line_of_tile(width))},
                          {"width", std::to_string(width)},
                          {"limit", limit},
                          {"tile", tile},
                          {"to", to},
                          {"name", name}});
  }
  void zero(const char* to, int columns, bool declare = true) {
    if (declare) add(fmt::format("  td_f32 {}[@tiles@][{} / 8][4];\n", to, columns));
    add(kZero, {{"to", to}, {"columns", std::to_string(columns)}});
  }
  void scores(const char* to, const std::string& a, bool in_registers, const std::string& b,
              int columns, int depth) {
    add(kScores, {{"load", in_registers ? "" : kLoadLeft},
                  {"tile", a},
                  {"a", in_registers ? a + "[kk][m]" : "left[m]"},
                  {"to", to},
                  {"b", b},
                  {"columns", std::to_string(columns)},
                  {"depth", std::to_string(padded(depth))},
                  {"line", std::to_string(line_of_tile(depth))}});
  }
  void fragments(const char* to, const char* tile, int depth) {
    add(kFragments, {{"to", to},
                     {"a", tile},
                     {"depth", std::to_string(padded(depth))},
                     {"line", std::to_string(line_of_tile(depth))}});
  }
  void weighted(const char* to, const char* a, const std::string& b, int width, int depth) {
    add(kWeighted, {{"to", to},
                    {"a", a},
                    {"b", b},
                    {"columns", std::to_string(padded(width))},
                    {"depth", std::to_string(depth)},
                    {"line", std::to_string(line_of_tile(width))}});
  }
  void visible(int columns, bool rows_are_queries);
  void load_queries(const char* to, const char* lines);
  void unit() {
    add(has_mask() ? "  const td_f32 unit = 1.0f, to_unit = scale * 1.44269504088896341f;\n"
                   : "  const td_f32 unit = scale * 1.44269504088896341f;\n");
  }
  // Which head this block is for, and its first own row; the blocks with most work come first.
  void place(const char* lines, bool last_first) {
    add(R"td_text(
  const td_i32 blocks = (@lines@ + @rows@ - 1) / @rows@, block = td_block(x);
  const td_i32 index = block / blocks;
  const td_i32 own = @block@ * @rows@;
)td_text",
        {{"lines", lines},
         {"block", last_first ? "(blocks - 1 - block % blocks)" : "(block % blocks)"},
         {"rows", std::to_string(t_.rows())}});
  }

  const AttentionText& t_;
  KernelSource k_;
};

// A block is at an edge where some of its scores do not count; without a mask most are not.
void Writer::visible(int columns, bool rows_are_queries) {
  const int rows = t_.rows();
  std::string edge, seen = "const td_i32 seen = key < s";
  if (has_mask()) {
    edge = "1";
  } else if (rows_are_queries) {
    edge = fmt::format("other + {} > s", columns);
    if (t_.causal) edge += fmt::format(" || other + {} > own + warp * {}", columns - 1, rows / 4);
  } else {
    edge = t_.causal ? fmt::format("own + {} > other", rows - 1) : "0";
  }
  if (t_.causal) seen += " && key <= query";
  seen += ";\n";
  const std::string value = "(seen && query < l)";
  const std::string at = "mask[(td_i64)query * mask_l + (td_i64)key * mask_e]";
  if (t_.mask == AttentionText::none) {
    seen += "          if (!seen) w[m][n][i] = -__builtin_inff();";
  } else if (t_.mask == AttentionText::visible) {
    seen += fmt::format(
        "          w[m][n][i] = {} && {} ? w[m][n][i] * to_unit : "
        "-__builtin_inff();",
        value, at);
  } else {
    seen += fmt::format(
        "          w[m][n][i] = {} ? td_fma_f32(w[m][n][i], to_unit, "
        "(td_f32)({}) * 1.44269504088896341f) : -__builtin_inff();",
        value, loaded(at, t_.mask_type));
  }
  add(kVisible, {{"edge", edge},
                 {"columns", std::to_string(columns)},
                 {"query", rows_are_queries ? "row" : "column"},
                 {"key", rows_are_queries ? "column" : "row"},
                 {"seen", seen}});
}

constexpr const char* kBatch = R"td_text(
  const td_i64 b = index / heads, h = index % heads;
)td_text";

KernelSource Writer::forward() {
  constexpr int kKeys = AttentionText::kKeys;
  const int rows = t_.rows(), le = line_of_tile(t_.e), lf = line_of_tile(t_.f);
  array("y", Parameter::out);
  k_.parameters.push_back({Parameter::out, DType::f32, "lse"});
  for (const char* a : {"q", "k", "v"}) array(a, Parameter::in);
  strides({"y", "q", "k", "v"});
  mask_and_sizes();
  number("v_share", DType::i32);
  shared("tiles", std::max({rows * le, kKeys * (le + lf), rows * lf}));
  place("l", true);
  add(kBatch);
  add(R"td_text(
  y += b * yb + h * yh + own * yl;
  q += b * qb + h * qh + own * ql;
  k += b * kb + h / share * kh;
  v += b * vb + h / v_share * vh;
)td_text");
  if (has_mask()) add("  mask += b * mask_b + h * mask_h;\n");
  add(fmt::format("  td_i16* const keys = tiles;\n  td_i16* const values = tiles + {};\n",
                  kKeys * le));
  unit();
  copy("q", "q", "tiles", rows, t_.e, "l - own");
  add("  td_copy_commit();\n  td_copy_wait(0);\n  td_barrier();\n");
  fragments("queries", "tiles", t_.e);
  add("  td_barrier();\n");
  zero("o", f());
  add(fmt::format(R"td_text(
  td_f32 top[@tiles@][2], sum[@tiles@][2];
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {{
    top[m][0] = top[m][1] = -__builtin_inff();
    sum[m][0] = sum[m][1] = 0;
  }}
  const td_i32 end = {};
)td_text",
                  t_.causal ? fmt::format("own + {0} < s ? own + {0} : s", rows) : "s"));
  copy("k", "k", "keys", kKeys, t_.e, "s");
  add("  td_copy_commit();\n");
  add(
      fmt::format("  for (td_i32 other = 0; other < end; other += {}) {{\n"
                  "  td_copy_wait(0);\n  td_barrier();\n",
                  kKeys));
  copy("v", "(v + (td_i64)other * vl)", "values", kKeys, t_.f, "s - other");
  add("  td_copy_commit();\n");
  zero("w", kKeys);
  scores("w", "queries", true, "keys", kKeys, t_.e);
  add("  td_copy_wait(0);\n  td_barrier();\n");
  add(fmt::format("  if (other + {} < end) {{\n", kKeys));
  copy("k", fmt::format("(k + (td_i64)(other + {}) * kl)", kKeys), "keys", kKeys, t_.e,
       fmt::format("s - other - {}", kKeys));
  add("  }\n  td_copy_commit();\n");
  visible(kKeys, true);
  add(kSoftmax, {{"columns", std::to_string(kKeys)}});
  weighted("o", "w", "values", t_.f, kKeys);
  add("  }\n  td_copy_wait(0);\n");
  add(kFinish, {{"lse", t_.lse ? "1" : "0"}});
  add("  td_barrier();\n");
  store("y", "tiles", "o", "1.0f", "y", rows, t_.f, "l - own");
  return std::move(k_);
}

// gq of a block of queries: blocks of keys and values pass by, two of them in shared memory.
KernelSource Writer::backward_queries() {
  constexpr int kOthers = AttentionText::kOthers;
  const int rows = t_.rows(), le = line_of_tile(t_.e), lf = line_of_tile(t_.f);
  array("gq", Parameter::out);
  for (const char* a : {"gy", "q", "k", "v"}) array(a, Parameter::in);
  for (const char* a : {"lse", "delta"}) k_.parameters.push_back({Parameter::in, DType::f32, a});
  strides({"gq", "gy", "q", "k", "v"});
  mask_and_sizes();
  const int both = kOthers * (le + lf);
  shared("tiles", std::max(rows * (le + lf), 2 * both));
  place("l", true);
  add(kBatch);
  add(R"td_text(
  gq += b * gqb + h * gqh + own * gql;
  gy += b * gyb + h * gyh + own * gyl;
  q += b * qb + h * qh + own * ql;
  k += b * kb + h / share * kh;
  v += b * vb + h / share * vh;
)td_text");
  if (has_mask()) add("  mask += b * mask_b + h * mask_h;\n");
  unit();
  copy("q", "q", "tiles", rows, t_.e, "l - own");
  copy("gy", "gy", fmt::format("(tiles + {})", rows * le), rows, t_.f, "l - own");
  add("  td_copy_commit();\n  td_copy_wait(0);\n  td_barrier();\n");
  fragments("queries", "tiles", t_.e);
  fragments("outer", fmt::format("(tiles + {})", rows * le).c_str(), t_.f);
  add(fmt::format(R"td_text(
  td_barrier();
  td_f32 shift[@tiles@][2], less[@tiles@][2];
#pragma unroll
  for (td_i32 m = 0; m < @tiles@; ++m) {{
#pragma unroll
    for (td_i32 i = 0; i < 2; ++i) {{
      const td_i32 row = own + (warp * @tiles@ + m) * 16 + group + i * 8;
      const td_f32 at = row < l ? lse[(td_i64)index * l + row] : __builtin_inff();
      shift[m][i] = at == -__builtin_inff() ? 0.0f : at * 1.44269504088896341f;
      less[m][i] = row < l ? delta[(td_i64)index * l + row] : 0.0f;
    }}
  }}
  const td_i32 end = {};
)td_text",
                  t_.causal ? fmt::format("own + {0} < s ? own + {0} : s", rows) : "s"));
  zero("o", e());
  const auto load = [&](const std::string& at, const std::string& to) {
    copy("k", fmt::format("(k + (td_i64)({}) * kl)", at), to, kOthers, t_.e,
         fmt::format("s - ({})", at));
    copy("v", fmt::format("(v + (td_i64)({}) * vl)", at),
         fmt::format("({} + {})", to, kOthers * le), kOthers, t_.f, fmt::format("s - ({})", at));
    add("  td_copy_commit();\n");
  };
  load("0", "tiles");
  add(fmt::format(R"td_text(
  for (td_i32 other = 0; other < end; other += {0}) {{
  td_i16* const keys = tiles + (other / {0} & 1) * {1};
  td_i16* const values = keys + {2};
  td_i16* const next = tiles + (1 - (other / {0} & 1)) * {1};
  td_copy_wait(0);
  td_barrier();
  if (other + {0} < end) {{
)td_text",
                  kOthers, both, kOthers * le));
  load(fmt::format("other + {}", kOthers), "next");
  add("  }\n");
  zero("w", kOthers);
  zero("g", kOthers);
  scores("w", "queries", true, "keys", kOthers, t_.e);
  scores("g", "outer", true, "values", kOthers, t_.f);
  visible(kOthers, true);
  add(kGradient, {{"columns", std::to_string(kOthers)},
                  {"lse", "shift[m][i >> 1]"},
                  {"delta", "less[m][i >> 1]"}});
  weighted("o", "g", "keys", t_.e, kOthers);
  add("  }\n  td_copy_wait(0);\n  td_barrier();\n");
  store("gq", "tiles", "o", "scale", "gq", rows, t_.e, "l - own");
  return std::move(k_);
}

// Queries of `next_head` from `next` on, with gy, lse and delta of theirs.
void Writer::load_queries(const char* to, const char* lines) {
  constexpr int kOthers = AttentionText::kOthers;
  copy("q", "(q + next_head * qh + next * ql)", to, kOthers, t_.e, "l - next");
  copy("gy", "(gy + next_head * gyh + next * gyl)",
       fmt::format("({} + {})", to, kOthers * line_of_tile(t_.e)), kOthers, t_.f, "l - next");
  add(fmt::format(R"td_text(
if (thread < {0}) {{
  const td_i32 row = next + thread;
  const td_i64 line = (b * heads + next_head) * l + row;
  const td_f32 at = row < l ? lse[line] : __builtin_inff();
  {1}[thread] = at == -__builtin_inff() ? 0.0f : at * 1.44269504088896341f;
  {1}[{0} + thread] = row < l ? delta[line] : 0.0f;
}}
td_copy_commit();
)td_text",
                  kOthers, lines));
}

// gk and gv of a block of keys: the queries of all heads that share them pass by.
KernelSource Writer::backward_keys() {
  constexpr int kOthers = AttentionText::kOthers;
  const int rows = t_.rows(), le = line_of_tile(t_.e), lf = line_of_tile(t_.f);
  for (const char* a : {"gk", "gv"}) array(a, Parameter::out);
  for (const char* a : {"gy", "q", "k", "v"}) array(a, Parameter::in);
  for (const char* a : {"lse", "delta"}) k_.parameters.push_back({Parameter::in, DType::f32, a});
  strides({"gk", "gv", "gy", "q", "k", "v"});
  mask_and_sizes();
  const int both = kOthers * (le + lf);
  shared("own_tiles", rows * (le + lf));
  shared("tiles", 2 * both);
  k_.shared.push_back({DType::f32, "lines", 2 * 2 * kOthers});
  place("s", false);
  add(fmt::format(R"td_text(
  const td_i32 key_heads = heads / share, key_head = index % key_heads;
  const td_i64 b = index / key_heads;
  gk += b * gkb + key_head * gkh + own * gkl;
  gv += b * gvb + key_head * gvh + own * gvl;
  k += b * kb + key_head * kh + own * kl;
  v += b * vb + key_head * vh + own * vl;
  gy += b * gyb;
  q += b * qb;
  td_i16* const keys = own_tiles;
  td_i16* const values = own_tiles + {0};
  const td_i32 start = {1}, last_head = key_head * share + share;
)td_text",
                  rows * le, t_.causal ? "own" : "0"));
  if (has_mask())
    add("  const @mask_word@* const masks = mask + b * mask_b;\n",
        {{"mask_word", fmt::format("td_{}", short_name(word_of(t_.mask_type)))}});
  unit();
  zero("ok", e());
  zero("ov", f());
  copy("k", "k", "keys", rows, t_.e, "s - own");
  copy("v", "v", "values", rows, t_.f, "s - own");
  add("  td_copy_commit();\n  td_i32 next_head = key_head * share, next = start;\n"
      "  if (start < l) {\n");
  load_queries("tiles", "lines");
  add("  }\n");
  add(fmt::format(R"td_text(
  for (td_i32 step = 0; next < l && next_head < last_head; ++step) {{
  const td_i32 other = next, head = next_head;
  td_i16* const queries = tiles + (step & 1) * {1};
  td_i16* const outer = queries + {2};
  td_f32* const at = lines + (step & 1) * {3};
  td_copy_wait(0);
  td_barrier();
  next += {0};
  if (next >= l) {{
    next = start;
    ++next_head;
  }}
  if (next_head < last_head) {{
  td_i16* const next_tiles = tiles + (1 - (step & 1)) * {1};
  td_f32* const next_lines = lines + (1 - (step & 1)) * {3};
)td_text",
                  kOthers, both, kOthers * le, 2 * kOthers));
  load_queries("next_tiles", "next_lines");
  add("  }\n");
  if (has_mask()) {
    add("  const @mask_word@* const mask = masks + head * mask_h;\n",
        {{"mask_word", fmt::format("td_{}", short_name(word_of(t_.mask_type)))}});
  }
  zero("w", kOthers);
  zero("g", kOthers);
  scores("w", "keys", false, "queries", kOthers, t_.e);
  scores("g", "values", false, "outer", kOthers, t_.f);
  visible(kOthers, false);
  add(kGradient, {{"columns", std::to_string(kOthers)},
                  {"lse", "at[n * 8 + pair + (i & 1)]"},
                  {"delta", fmt::format("at[{} + n * 8 + pair + (i & 1)]", kOthers)}});
  weighted("ov", "w", "outer", t_.f, kOthers);
  weighted("ok", "g", "queries", t_.e, kOthers);
  add("  }\n  td_copy_wait(0);\n  td_barrier();\n");
  store("gk", "keys", "ok", "scale", "gk", rows, t_.e, "s - own");
  store("gv", "values", "ov", "1.0f", "gv", rows, t_.f, "s - own");
  return std::move(k_);
}

}  // namespace

KernelSource AttentionText::forward() const { return Writer(*this, "attention").forward(); }
KernelSource AttentionText::backward_queries() const {
  return Writer(*this, "attention_backward_queries").backward_queries();
}
KernelSource AttentionText::backward_keys() const {
  return Writer(*this, "attention_backward_keys").backward_keys();
}

KernelSource AttentionText::delta(bool glse) const {
  KernelSource k{.name = "attention_delta", .threads = kThreads, .prelude = true, .warps = true};
  k.parameters.push_back({Parameter::out, DType::f32, "delta"});
  for (const char* a : {"gy", "y"}) k.parameters.push_back({Parameter::in, word_of(dtype), a});
  k.parameters.push_back({Parameter::in, DType::f32, "glse"});
  for (const char* a : {"gy", "y"}) {
    for (const char* s : {"b", "h", "l", "e"}) {
      k.parameters.push_back({Parameter::value, DType::i64, std::string(a) + s});
    }
  }
  for (const char* n : {"n", "heads", "l"})
    k.parameters.push_back({Parameter::value, DType::i64, n});
  k.body = filled_in(R"td_text(
  const td_i32 lane = td_thread(x) & 15;
  const td_i64 i = (td_i64)td_block(x) * @rows@ + (td_thread(x) >> 4);
  td_f32 sum = 0;
  if (i < n) {
    const td_i64 b = i / l / heads, h = i / l % heads, row = i % l;
    gy += b * gyb + h * gyh + row * gyl;
    y += b * yb + h * yh + row * yl;
    for (td_i32 j = lane * 2; j < @f@; j += 32) {
      for (td_i32 c = j; c < j + 2 && c < @f@; ++c) {
        sum = td_fma_f32(@gy@, @y@, sum);
      }
    }
  }
  for (td_i32 m = 8; m > 0; m /= 2) sum += td_shuffle_xor(sum, m);
  if (i < n && lane == 0) delta[i] = sum@glse@;
)td_text",
                     {{"rows", std::to_string(kDeltaRows)},
                      {"f", std::to_string(f)},
                      {"gy", loaded("gy[c * gye]", dtype)},
                      {"y", loaded("y[c * ye]", dtype)},
                      {"glse", glse ? " - glse[i]" : ""}});
  return k;
}

}  // namespace tandem::gpu
