// SPDX-License-Identifier: Apache-2.0
// The suffixes requires_grad and grad_fn of printed tensors against PyTorch's own text
// (tests/tensor/grad_golden.txt, made by make_format_golden.py there).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "tandem/grad/autograd.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"

namespace tandem {
namespace {

TEST(PrintGrad, EqualsPyTorch) {
  init();
  const Tensor x = tensor({{1.5f, -2.0f}, {0.25f, 3.0f}}).requires_grad_();
  const Tensor w = ones({30}).requires_grad_();
  std::map<std::string, Tensor> values = {{"leaf", x},
                                          {"add", x + 1},
                                          {"mul", x * x},
                                          {"exp", x.exp()},
                                          {"sum", x.sum()},
                                          {"tanh", tanh(x)},
                                          {"sigmoid", sigmoid(x)},
                                          {"relu", relu(x)},
                                          {"div", x / 3},
                                          {"wide", w * 2},
                                          {"half", x.to(float64).sin()},
                                          {"detach", (x * 2).detach()},
                                          {"permute", x.permute({1, 0})}};
  {
    const NoGradGuard no_grad;
    values["no_grad"] = x * 2;
  }
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream in(std::string(root ? root : ".") + "/tests/tensor/grad_golden.txt");
  ASSERT_TRUE(in);
  std::string line;
  size_t count = 0;
  while (std::getline(in, line)) {
    const std::string name = line.substr(5);
    std::string want;
    while (std::getline(in, line) && line != "end") want += (want.empty() ? "" : "\n") + line;
    ASSERT_TRUE(values.count(name)) << name;
    EXPECT_EQ(to_string(values[name]), want) << name;
    ++count;
  }
  EXPECT_EQ(count, values.size());
}

}  // namespace
}  // namespace tandem
