// SPDX-License-Identifier: Apache-2.0
// Every row of the op driver on the devices of the drivers: dense and strided f32 inputs follow the
// CPU, to the bit where that is promised, and the table of docs/gpu.md says which rows the host
// runs.
#include <fstream>
#include <sstream>

#include "tandem/backend/gpu/rows_page.h"
#include "tandem/graph/backend.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/ops/row_driver.h"

namespace tandem::rows {
namespace {

using gpu::RowSupport;
using gpu::support_of;

// Rows whose kernels leave some calls to the host.
const char* partly(const std::string& op) {
  static const std::map<std::string, const char*> kPartly = {
      {"region_put", "adding into a region"},
      {"softmax_cross_entropy_backward", "smoothing with a weight for each class"},
  };
  const auto at = kPartly.find(op);
  return at == kPartly.end() ? nullptr : at->second;
}

bool same_bits_or_nan(const Tensor& got, const Tensor& want) {
  if (!is_floating(got.dtype())) return same_bits(got, want);
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  if (a.size() != b.size() || got.dtype() != want.dtype()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && std::memcmp(&a[i], &b[i], sizeof(double)) != 0) return false;
  }
  return true;
}

// Pointwise rows, random numbers and what only moves elements; losses are sums.
bool has_the_cpus_bits(const OpDef& op) {
  const std::string_view name = op.name;
  const bool loss = name.ends_with("_loss") || name.find("_loss_") != name.npos ||
                    name.find("cross_entropy") != name.npos;
  const bool moves = op.family == Family::index && !loss;
  return op.family == Family::pointwise || op.family == Family::create ||
         op.family == Family::view || op.has(kRandom) || moves;
}

class GpuRow : public ::testing::TestWithParam<std::tuple<const char*, Row>> {
 protected:
  void SetUp() override {
    init();
    const auto found = gpu::device_or_reason(std::get<0>(GetParam()));
    if (!found.device) GTEST_SKIP() << found.reason;
    device_ = *found.device;
  }

  // Calls the row with `in` on the CPU and on the device.
  void expect_same(const std::vector<Tensor>& in, const char* what) {
    const Row& row = std::get<1>(GetParam());
    const OpDef& op = *find_op(row.op);
    std::vector<Tensor> there;
    for (const Tensor& t : in) there.push_back(t.to(device_));
    std::vector<Tensor> here;
    for (const Tensor& t : there) here.push_back(t.cpu());
    const auto call = [&](const std::vector<Tensor>& x) {
      manual_seed(kSeed);
      return call_row(row, with_tensors(args_, x), kSize, true);
    };
    const std::vector<Tensor> want = call(here);
    reset_host_runs();
    std::vector<Tensor> got;
    {
      const DeviceGuard guard(device_);
      got = call(there);
    }
    const HostRuns runs = host_runs();
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].defined(), want[i].defined()) << what << " " << i;
      if (!got[i].defined()) continue;
      EXPECT_EQ(got[i].device(), device_) << what << " " << i;
      const Tensor a = got[i].cpu();
      if (has_the_cpus_bits(op))
        EXPECT_TRUE(same_bits_or_nan(a, want[i]))
            << what << " " << i << ": " << to_string(a) << "\nwanted " << to_string(want[i]);
      else
        EXPECT_TRUE(close(a, want[i], row.tolerance)) << what << " " << i;
    }
    if (support_of(op) == RowSupport::host)
      EXPECT_GT(runs.calls, 0) << what << ": docs/gpu.md lists it as the host's";
    else if (support_of(op) == RowSupport::kernel && !partly(row.op))
      EXPECT_EQ(runs.calls, 0) << what << ": " << runs.by_op[0].first << " ran on the host";
  }

  static constexpr int64_t kSize = 5;
  std::vector<Arg> args_;
  Device device_;
};

TEST_P(GpuRow, FollowsTheCpu) {
  const Row& row = std::get<1>(GetParam());
  if (row.op == "to_device") return;  // its attribute says where
  args_ = make_args(row, kSize, float32);
  std::vector<Tensor> in = tensors_of(args_);
  expect_same(in, "dense");
  for (Tensor& t : in) t = odd_strides(t, 0);
  if (!in.empty()) expect_same(in, "strided");
}

// Every variant of an expression is a kernel, and building it is what takes time: by default the
// first variant of each op on OpenCL, and of each pointwise op elsewhere. TANDEM_TEST_ALL=1: all.
std::vector<std::tuple<const char*, Row>> rows_of_devices() {
  init();
  const bool everything = std::getenv("TANDEM_TEST_ALL") != nullptr;
  std::vector<std::tuple<const char*, Row>> all;
  std::set<std::string> seen;
  for (const Row& row : all_rows()) {
    const bool first = seen.insert(row.op).second || everything;
    if (first) all.emplace_back("opencl", row);
    if (!first && find_op(row.op)->family == Family::pointwise) continue;
    all.emplace_back("fake", row);
    all.emplace_back("cuda", row);
  }
  return all;
}
std::string gpu_row_name(const ::testing::TestParamInfo<std::tuple<const char*, Row>>& info) {
  const Row& row = std::get<1>(info.param);
  return std::string(std::get<0>(info.param)) + "_" + row.op + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, GpuRow, ::testing::ValuesIn(rows_of_devices()), gpu_row_name);

TEST(GpuRows, TheTableOfTheDocsIsUpToDate) {
  init();
  const char* source = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream file(std::string(source ? source : ".") + "/docs/gpu.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(gpu::rows_page()), std::string::npos)
      << "docs/gpu.md wants this table:\n"
      << gpu::rows_page();
}

}  // namespace
}  // namespace tandem::rows
