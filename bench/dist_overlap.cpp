// SPDX-License-Identifier: Apache-2.0
// How much of the time that ranks exchange gradients is hidden behind the backward pass:
// bench_dist_overlap gpt|resnet18 [BATCH] [STEPS], started by bench/dist_link on two machines with
// a slow link between them. Rank 0 prints a line of JSON: milliseconds (medians, the slower rank's)
// of a step without exchange, of its forward pass, of the exchange by itself, of both one after the
// other, and of steps that overlap them, eager and compiled.
#include <algorithm>
#include <cstdlib>

#include "bench/models.h"
#include "bench/numbers.h"
#include "bench/rank_main.h"
#include "tandem/base/clock.h"

namespace tandem::bench {
namespace {

// Seconds of one call: the median of `steps`, after two that do not count; the slower rank's.
template <class F>
double seconds_of(int steps, F&& f) {
  std::vector<double> all;
  for (int i = 0; i < steps + 2; ++i) {
    distributed::barrier();
    const auto begin = Clock::now();
    f();
    if (i >= 2) all.push_back(seconds_since(begin));
  }
  std::nth_element(all.begin(), all.begin() + steps / 2, all.end());
  const Tensor own = full({1}, all[static_cast<size_t>(steps / 2)], DType::f64);
  return distributed::all_reduce(own, distributed::ReduceOp::max).item<double>();
}

template <class Net>
nlohmann::json measure(Tensor x, Tensor y, int steps) {
  Net net;
  set_formula_weights(net);
  distributed::DataParallel model(net);
  const auto loss_of = [&](const Tensor& a, const Tensor& b) {
    const Tensor logits = net(a);
    return cross_entropy(logits.reshape({-1, logits.size(-1)}), b);
  };
  const auto pass = [&](const Tensor& a, const Tensor& b) {
    net.zero_grad();
    const Tensor loss = loss_of(a, b);
    loss.backward();
    return loss;
  };
  auto forward = compile(loss_of);
  auto compiled = compile(pass), alone = compile(pass);
  nlohmann::json j;
  const auto put = [&](const char* name, auto&& f) { j[name] = 1e3 * seconds_of(steps, f); };
  put("forward", [&] { (void)forward(x, y).template item<float>(); });
  {
    const auto hold = model.no_sync();
    put("pass", [&] { (void)alone(x, y).template item<float>(); });
    put("eager_pass", [&] { (void)pass(x, y).template item<float>(); });
  }
  put("exchange", [&] { model.reduce_gradients(); });
  put("serial", [&] {
    {
      const auto quiet = model.no_sync();
      (void)alone(x, y).template item<float>();
    }
    model.reduce_gradients();
  });
  put("compiled", [&] { (void)compiled(x, y).template item<float>(); });
  put("eager", [&] { (void)pass(x, y).template item<float>(); });
  int64_t elements = 0;
  for (const Param& p : net.parameters()) elements += p.numel();
  j["megabytes"] = 4e-6 * static_cast<double>(elements);
  j["engine"] = distributed::world()->name();
  return j;
}

nlohmann::json run(const std::string& name, int64_t batch, int steps) {
  if (name == "gpt")
    return measure<Gpt>(integers(2000, {batch, 64}, 65), integers(2001, {batch * 64}, 65), steps);
  if (name == "resnet18")
    return measure<ResNet18>(uniform(2000, {batch, 3, 128, 128}, 1.0f),
                             integers(2001, {batch}, 1000), steps);
  return nullptr;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  const int batch = argc > 2 ? std::max(1, std::atoi(argv[2])) : 8;
  const int steps = argc > 3 ? std::max(1, std::atoi(argv[3])) : 9;
  return tandem::bench::rank_main("bench_dist_overlap", "gpt|resnet18 [BATCH] [STEPS]", [&] {
    return argc > 1 ? tandem::bench::run(argv[1], batch, steps) : nlohmann::json();
  });
}
