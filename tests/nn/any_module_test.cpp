// SPDX-License-Identifier: Apache-2.0
// AnyModule is a Module in all but name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::any_module {
namespace {

// The names of the functions declared in `text`.
std::set<std::string> functions_of(const std::string& text) {
  std::set<std::string> out;
  const std::regex call(R"(\n {2,4}[A-Za-z][^\n(]*?[ &*]([a-z_]+)\()");
  for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at)
    out.insert((*at)[1]);
  return out;
}

TEST(AnyModule, HasEveryMethodOfAModule) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string folder = std::string(root ? root : ".") + "/tandem/nn/";
  const auto part = [&](const char* file, const char* from, const char* to) {
    const std::string text = read_file(folder + file);
    const size_t begin = text.find(from), end = text.find(to, begin);
    EXPECT_TRUE(begin != std::string::npos && end != std::string::npos) << file;
    return functions_of(text.substr(begin, end - begin));
  };
  const std::set<std::string> module = part("module.h", "class TD_API Module {", " protected:"),
                              any = part("container.h", "class TD_API AnyModule {", "private:");
  EXPECT_GE(module.size(), 25u);
  // What registration and clone() need.
  const std::set<std::string> inner = {"register_members", "visit_members", "state",
                                       "unshare_state"};
  for (const std::string& name : module)
    EXPECT_TRUE(any.contains(name) || inner.contains(name)) << "AnyModule lacks " << name;
}

TEST(AnyModule, GoesWhereAModuleDoes) {
  manual_seed(1);
  nn::AnyModule net = nn::Sequential(nn::Linear(4, 8), nn::Dropout(0.5), nn::Linear(8, 2));
  EXPECT_EQ(net.num_parameters(), 4 * 8 + 8 + 8 * 2 + 2);
  EXPECT_EQ(net.parameters().size(), 4u);
  EXPECT_EQ(net.named_parameters()[0].first, "0.weight");
  EXPECT_EQ(net.type(), "Sequential");
  EXPECT_FALSE(net.eval().is_training());
  EXPECT_TRUE(net.train().is_training());
  EXPECT_EQ(to_string(net), net.module().summary());

  const Tensor x = randn({3, 4});
  net.eval();
  nn::AnyModule shared = net, copy = clone(net);
  nn::Sequential longer(net, nn::ReLU());  // as an item
  net.parameters()[0].assign_(0.0);
  EXPECT_TRUE(equal(shared(x), net(x)));
  EXPECT_FALSE(equal(copy(x), net(x)));
  EXPECT_TRUE(equal(longer.eval()(x), relu(net(x))));
  EXPECT_TRUE(weights::load_into(copy, net.state_dict()).ok());
  EXPECT_TRUE(equal(copy(x), net(x)));

  net.requires_grad_(false);
  EXPECT_FALSE(net.parameters()[0].requires_grad());
  EXPECT_EQ(net.to(float64).parameters()[0].dtype(), float64);
  int calls = 0;
  const int hook = copy.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y;
  });
  copy(x);
  copy.remove_hook(hook);
  copy(x);
  EXPECT_EQ(calls, 1);
}

TEST(AnyModule, IsTrained) {
  manual_seed(1);
  nn::AnyModule net = models::make("lenet", {.num_classes = 2});
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  train::Trainer trainer(net, [](Tensor out, Tensor y) { return cross_entropy(out, y); }, opt,
                         {.max_epochs = 12, .metrics = {"accuracy"}, .progress = false});
  const Tensor y = arange(16) % 2, x = y.reshape({16, 1, 1, 1}) + 0.1 * randn({16, 1, 28, 28});
  const auto batches = data::pipeline(data::TensorDataset(x, y), {.seed = 1}).batch(8);
  const train::FitResult r = trainer.fit(batches, batches);
  EXPECT_EQ(train::find_log(r.logs, "val/accuracy"), 1.0);

  train::Model model(net);
  model.compile({.loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  EXPECT_EQ(train::find_log(model.evaluate(x, y), "accuracy"), 1.0);
  optim::AveragedModel average(net);
  average.update_parameters(net);
  EXPECT_EQ(average(x).shape(), Shape(16, 2));
}

}  // namespace
}  // namespace tandem::any_module
