// SPDX-License-Identifier: Apache-2.0
// init() from many threads, the report of doctor(), and a check that no kernel changes an input.
#include <thread>

#include "tandem/backend/cpu/doctor.h"
#include "tests/backend/against_reference_helper.h"

namespace tandem::cpu_test {
namespace {

TEST(Init, FromManyThreadsOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([] { init(); });
  for (std::thread& t : threads) t.join();
  const size_t rows = all_ops().size();
  init();
  EXPECT_EQ(all_ops().size(), rows);
  EXPECT_GT(rows, 100u);
}

TEST(Init, EveryExpressionRowHasAKernel) {
  init();
  for (const OpDef* op : all_ops())
    if (op->family == Family::pointwise && op->variadic == false) {
      KernelCall call{*op};
      const Kernel* k = nullptr;
      Array in[kMaxOpIns], out[kMaxOpOuts];
      call.in = in;
      call.out = out;
      k = find_kernel(call, DeviceKind::cpu);
      EXPECT_TRUE(k && k->run) << op->name;
    }
}

TEST(Doctor, SaysWhatIsThere) {
  init();
  const std::string text = doctor();
  for (const char* name : {"version:", "processor:", "vectors:", "kernels:", "oneDNN:", "threads:",
                           "memory:", "allocator:", "huge pages:", "ops:"})
    EXPECT_NE(text.find(name), std::string::npos) << name << " in\n" << text;
  EXPECT_NE(text.find(std::to_string(all_ops().size()) + " rows"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
}

// Plans are shared: the same call from many threads at once gives the same bits.
TEST(Plans, ManyThreadsShareThem) {
  init();
  manual_seed(2);
  Tensor x = random({4, 8, 12, 12}), w = random({16, 8, 3, 3}), a = random({70, 300}),
         b = random({300, 80});
  Tensor y = conv2d(x, w), z = matmul(a, b);
  std::vector<std::thread> threads;
  std::vector<Tensor> ys(6), zs(6);
  for (size_t i = 0; i < ys.size(); ++i)
    threads.emplace_back([&, i] {
      ThreadLimitGuard limit(static_cast<int>(i % 3) + 1);
      for (int k = 0; k < 20; ++k) {
        ys[i] = conv2d(x, w);
        zs[i] = matmul(a, b);
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < ys.size(); ++i) {
    expect_same_bits(ys[i], y, "conv");
    expect_same_bits(zs[i], z, "matmul");
  }
}

}  // namespace
}  // namespace tandem::cpu_test
