// SPDX-License-Identifier: Apache-2.0
// Every row of the op driver on the devices of the drivers: dense and strided f32 inputs follow the
// CPU, to the bit where that is promised, bf16 too, and the table of docs/gpu.md says which rows
// the host runs.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "tandem/backend/gpu/rows_page.h"
#include "tandem/graph/backend.h"
#include "tests/gpu/row_promises.h"
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

// Rows that take what their forward rows saved in its own type, f32: the op driver's inputs are all
// of one type.
bool wants_f32(const std::string& op) {
  static const std::set<std::string> kRows = {"layer_norm_backward", "rms_norm_backward",
                                              "softmax_cross_entropy_backward",
                                              "nll_loss_backward"};
  return kRows.count(op) > 0;
}

bool test_everything() { return std::getenv("TANDEM_TEST_ALL") != nullptr; }

struct DeviceRow {
  const char* device;
  Row row;
  bool first;  ///< of its op's variants
};
void PrintTo(const DeviceRow& r, std::ostream* out) {
  *out << r.device << " ";
  PrintTo(r.row, out);
}

class GpuRow : public ::testing::TestWithParam<DeviceRow> {
 protected:
  void SetUp() override {
    init();
    const auto found = gpu::device_or_reason(GetParam().device);
    if (!found.device) GTEST_SKIP() << found.reason;
    device_ = *found.device;
  }

  // Calls the row with `in` on the CPU and on the device.
  void expect_same(const std::vector<Tensor>& in, const char* what, double tolerance) {
    const Row& row = GetParam().row;
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
        EXPECT_TRUE(close(a, want[i], tolerance)) << what << " " << i;
    }
    if (support_of(op) == RowSupport::host) {
      EXPECT_GT(runs.calls, 0) << what << ": docs/gpu.md lists it as the host's";
    } else if (support_of(op) == RowSupport::kernel && !partly(row.op) &&
               !(wants_f32(row.op) && !in.empty() && size_of(in[0].dtype()) == 2)) {
      EXPECT_EQ(runs.calls, 0) << what << ": " << runs.by_op[0].first << " ran on the host";
    }
  }

  static constexpr int64_t kSize = 5;
  std::vector<Arg> args_;
  Device device_;
};

TEST_P(GpuRow, FollowsTheCpu) {
  const Row& row = GetParam().row;
  if (row.op == "to_device") return;  // its attribute says where
  args_ = make_args(row, kSize, float32);
  std::vector<Tensor> in = tensors_of(args_);
  expect_same(in, "dense", row.tolerance);
  if (gpu::few_kernels(GetParam().device)) return;
  for (Tensor& t : in) t = odd_strides(t, 0);
  if (!in.empty()) expect_same(in, "strided", row.tolerance);
}

// bf16; with TANDEM_TEST_ALL also f16 and f64, whose kernels have texts of their own.
TEST_P(GpuRow, FollowsTheCpuInOtherDTypes) {
  const Row& row = GetParam().row;
  if (row.op == "to_device" || !any_floating(make_args(row, kSize, float32))) return;
  std::vector<std::pair<DType, double>> types;
  if (!(row.off & kNo16)) types.emplace_back(bfloat16, 3e-2);
  if (test_everything()) {
    types.emplace_back(float64, 1e-11);
    if (!(row.off & kNo16)) types.emplace_back(float16, 4e-3);
  } else if (gpu::few_kernels(GetParam().device)) {
    GTEST_SKIP() << "the fake device's kernels are the same text; TANDEM_TEST_ALL=1 runs these";
  }
  for (const auto& [dtype, tolerance] : types) {
    args_ = make_args(row, kSize, dtype);
    expect_same(tensors_of(args_), to_string(dtype), tolerance);
  }
}

// Every variant of an expression is a kernel, and building it is what takes time: by default the
// first variant of each op on OpenCL, of pointwise ones a ninth, and of each pointwise op
// elsewhere. TANDEM_TEST_ALL=1: all.
std::vector<DeviceRow> rows_of_devices() {
  init();
  std::vector<DeviceRow> all;
  std::set<std::string> seen;
  size_t pointwise = 0;
  for (const Row& row : all_rows()) {
    const bool first = seen.insert(row.op).second;
    const bool expression = find_op(row.op)->family == Family::pointwise;
    const bool wanted = !expression || (first && pointwise++ % 9 == 0);
    if ((first && wanted) || test_everything()) all.push_back({"opencl", row, first});
    if (!first && !test_everything() && expression) continue;
    all.push_back({"fake", row, first});
    all.push_back({"cuda", row, first});
  }
  return all;
}
// Sanitizers, which leave names with "Slow" out, see the first variant of each op on the fake
// device.
std::string gpu_row_name(const ::testing::TestParamInfo<DeviceRow>& info) {
  const DeviceRow& r = info.param;
  const bool fast = r.first && std::string_view(r.device) != "opencl";
  return std::string(fast ? "" : "Slow_") + r.device + "_" + r.row.op + "_" +
         std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, GpuRow, ::testing::ValuesIn(rows_of_devices()), gpu_row_name);

TEST(GpuRows, TheTableOfTheDocsIsUpToDate) {
  init();
  const char* source = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream file(std::string(source ? source : ".") + "/docs/gpu.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(gpu::rows_page()), std::string::npos)
      << "docs/gpu.md expects this table:\n"
      << gpu::rows_page();
}

}  // namespace
}  // namespace tandem::rows
