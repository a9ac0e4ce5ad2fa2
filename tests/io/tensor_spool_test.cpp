// SPDX-License-Identifier: Apache-2.0
// Tensors put aside in a file: they come back to the bit, the file leaves no name, and a full disk
// is said.
#include "tandem/io/tensor_spool.h"

#include "tandem/base/files/file_faults_internal.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"
#include "tests/support/bits.h"

namespace tandem::io {
namespace {

TEST(TensorSpool, GivesBackWhatWasAdded) {
  const TempFolder f;
  TensorSpool spool(f.path());
  StateDict want;
  want["one"] = counting({3}, DType::u8);
  want["wide"] = counting({2, 5}, DType::f64);
  want["turned"] = counting({4, 3}, DType::f32).t();
  want["number"] = full({}, 7, DType::i64);
  want["nothing"] = zeros({0, 4});
  want["large"] = rand({300, 400});
  for (const auto& [name, value] : want) spool.add(name, value);
  EXPECT_EQ(f.names().size(), 1u);
  const StateDict got = spool.finish();
  EXPECT_TRUE(f.names().empty());
  ASSERT_EQ(got.size(), want.size());
  auto at = want.begin();
  for (const auto& [name, value] : got) {
    EXPECT_EQ(name, at->first);
    EXPECT_TRUE(same_bits(value, (at++)->second)) << name;
  }
}

TEST(TensorSpool, NothingIsLeftOfOneThatFails) {
  struct Full : tandem::detail::FileFaults {
    Full() { tandem::detail::g_file_faults = this; }
    ~Full() override { tandem::detail::g_file_faults = nullptr; }
    int error(tandem::detail::FileOp op, const std::string&) override {
      return op == tandem::detail::FileOp::write ? ENOSPC : 0;
    }
    size_t bytes(tandem::detail::FileOp, const std::string&, size_t wanted) override {
      return wanted;
    }
  };
  const TempFolder f;
  TensorSpool spool(f.path());
  EXPECT_TRUE(tandem::has(thrown([&] { spool.add("x", Tensor()); }, ErrorKind::Value), "'x'"));
  const Full disk;
  const std::string error = thrown([&] { spool.add("large", zeros({300, 400})); }, ErrorKind::Io);
  EXPECT_TRUE(tandem::has(error, "No space left")) << error;
  EXPECT_TRUE(f.names().empty());
  EXPECT_TRUE(tandem::has(thrown([&] { spool.finish(); }, ErrorKind::Io), "closed"));
}

}  // namespace
}  // namespace tandem::io
