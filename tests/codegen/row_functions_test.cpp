// SPDX-License-Identifier: Apache-2.0
// Whole rows: every variant of softmax and the norms, compiled by every compiler that is there,
// gives the bits of the interpreter.
#include <gtest/gtest.h>

#include "jit_helper.h"
#include "tandem/codegen/row_program.h"
#include "tandem/codegen/row_programs.h"

namespace tandem {
namespace {

using codegen::JitSource;
using detail::CCompiler;

// All outputs of all variants for rows of `length`, in sequence.
std::vector<Buffer8> all_rows(DType t, int64_t length, bool special) {
  const int64_t rows = 5;
  std::vector<Buffer8> out;
  out.reserve(64);
  const auto make = [&](DType d, std::vector<int64_t> shape) -> Buffer8& {
    return out.emplace_back(d, std::move(shape));
  };
  const DType wide = t == DType::f64 ? DType::f64 : DType::f32;
  Buffer8 x(t, {rows, length}), g(t, {rows, length}), w(t, {length}), b(t, {length});
  x.fill(1, special);
  g.fill(2, special);
  w.fill(3);
  b.fill(4);
  for (bool log : {false, true}) {
    Buffer8& y = make(t, {rows, length});
    Buffer8& gx = make(t, {rows, length});
    codegen::run_softmax(x.array, y.array, 1, log);
    codegen::run_softmax_backward(g.array, y.array, gx.array, 1, log);
    Buffer8& same = make(t, {rows, length});  // in place
    same.bytes = x.bytes;
    same.array.data = same.bytes.data();
    codegen::run_softmax(same.array, same.array, 1, log);
  }
  for (int variant = 0; variant < 8; ++variant) {
    const bool centred = variant & 1, weight = variant & 2, stats = variant & 4;
    Buffer8 mean(wide, {rows, 1}), rstd(wide, {rows, 1});
    codegen::NormArrays a;
    a.centred = centred;
    a.x = &x.array;
    a.eps = 1e-5;
    if (weight) a.w = &w.array;
    if (weight) a.b = &b.array;
    a.mean = &mean.array;
    a.rstd = stats ? &rstd.array : nullptr;
    a.y = &make(t, {rows, length}).array;
    codegen::run_norm(a);
    if (!stats) continue;
    a.gy = &g.array;
    a.gx = &make(t, {rows, length}).array;
    if (weight) a.gw = &make(t, {length}).array;
    if (weight) a.gb = &make(t, {length}).array;
    codegen::run_norm_backward(a);
    out.push_back(mean);
    out.push_back(rstd);
  }
  return out;
}

TEST(RowFunctions, EqualTheInterpreterByEveryCompiler) {
  const std::vector<std::string> paths = compilers();
  if (paths.empty()) GTEST_SKIP() << "no C compiler";
  struct Case {
    DType t;
    int64_t length;
    bool special;
    std::vector<Buffer8> want;
  };
  std::vector<Case> cases;
  for (DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (int64_t length : {1, 2, 37, 63, 64, 65, 129, 255, 256, 257, 300, 1024, 1100}) {
      cases.push_back({t, length, length % 2 == 1, {}});
    }
  }
  codegen::use_jit(false);
  for (Case& c : cases) all_rows(c.t, c.length, c.special).swap(c.want);
  codegen::use_jit(true);
  const std::vector<const codegen::RowKernel*> kernels = codegen::row_kernels();
  EXPECT_GT(kernels.size(), 40u);
  for (const std::string& path : paths) {
    const TemporaryDirectory directory;
    CCompiler compiler({path, directory.path + "/cache", 1 << 28, 600, {}});
    std::vector<JitSource> sources;
    for (const codegen::RowKernel* k : kernels) {
      EXPECT_TRUE(codegen::worth_compiling(*k));
      sources.push_back(
          {"td_row" + std::to_string(sources.size()), codegen::emit_row_c(*k, "TDM_NAME")});
    }
    ASSERT_EQ(compiler.compile(sources), "") << path;
    for (size_t k = 0; k < kernels.size(); ++k) {
      ASSERT_TRUE(sources[k].code) << sources[k].text;
      static auto* const kept = new std::vector<codegen::JitCode*>;  // slots hold them for ever
      auto* code = kept->emplace_back(new codegen::JitCode("test", ""));
      code->code = sources[k].code;
      code->state = codegen::JitCode::ready;
      kernels[k]->jit.code = code;
    }
    for (const Case& c : cases) {
      const std::vector<Buffer8> got = all_rows(c.t, c.length, c.special);
      ASSERT_EQ(got.size(), c.want.size());
      for (size_t k = 0; k < got.size(); ++k) {
        ASSERT_TRUE(same_bits(c.want[k], got[k]))
            << path << " " << to_string(c.t) << " length " << c.length << " output " << k;
      }
    }
  }
  for (const codegen::RowKernel* k : kernels) k->jit.code = nullptr;
}

}  // namespace
}  // namespace tandem
