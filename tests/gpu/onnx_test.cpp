// SPDX-License-Identifier: Apache-2.0
// ONNX models on devices: OnnxLoadOptions::device.
#include "tandem/graph/backend.h"
#include "tandem/onnx/runner.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/io/io_helper.h"

namespace tandem::gpu {
namespace {

struct Listener : nn::Module {
  nn::Conv1d first{1, 6, 8, {.stride = {4}}}, second{6, 8, 3, {.padding = {1}}};
  nn::LSTM lstm{8, 5, {.batch_first = true}};
  nn::Linear head{5, 3};
  Listener() { TD_REGISTER(first, second, lstm, head); }
  Tensor forward(const Tensor& x) {
    Tensor h = relu(second(relu(first(x.unsqueeze(1)))));
    h = lstm(h.transpose(1, 2)).y;
    // Sizes from values, and an index that lies in the model.
    return softmax(head(h.select(1, -1)), 1) + h.mean({1, 2}, false).unsqueeze(1);
  }
};

class OnnxOnDevices : public OverDevices {};
TD_OVER_DEVICES(OnnxOnDevices);

TEST_P(OnnxOnDevices, AnswersLikeTheHost) {
  manual_seed(6);
  TempFolder folder;
  const std::string file = folder / "listener.onnx";
  const Tensor x = randn({2, 64});
  Listener net;
  net.eval();
  onnx::export_onnx(net, x, file);
  const NoGradGuard no_grad;
  const Tensor want = net(x);
  const onnx::OnnxModel model = onnx::OnnxModel::load(file, {.device = device_});
  reset_host_runs();
  onnx::OnnxRunner runner(model);
  for (const Tensor& in : {x, x.to(device_)}) {
    const Tensor eager = model({in}).at(0), compiled = runner({in}).at(0);
    EXPECT_EQ(eager.device(), device_);
    EXPECT_EQ(compiled.device(), device_);
    EXPECT_TRUE(allclose(eager.cpu(), want, 1e-4, 1e-5));
    EXPECT_TRUE(allclose(compiled.cpu(), want, 1e-4, 1e-5));
  }
  EXPECT_STREQ(onnx::to_string(runner.way()), "whole") << runner.reason();
  const HostRuns runs = host_runs();
  EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
}

}  // namespace
}  // namespace tandem::gpu
