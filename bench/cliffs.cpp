// SPDX-License-Identifier: Apache-2.0
// Tandem's side of bench/cliffs. `bench_cliffs --list` prints a JSON line per case; without
// arguments it reads "name<TAB>forward|both<TAB>seconds" from standard input and answers each with
// a line: the least milliseconds of a call, the share of the machine's limit, the mean of |y|.
#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/cliff_cases.h"
#include "tandem/base/clock.h"
#include "tandem/base/philox.h"
#include "tandem/ops/machine_limits.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

// What one entry of CliffCase::inputs says.
struct InputText {
  std::vector<int64_t> shape;
  std::string domain = "any", layout;
  bool bf16 = false, variable = true;
};

InputText parse_input(const std::string& text) {
  InputText t;
  std::istringstream words(text);
  std::string sizes, word;
  words >> sizes;
  std::istringstream numbers(sizes);
  for (std::string n; std::getline(numbers, n, ',');) t.shape.push_back(std::stoll(n));
  while (words >> word) {
    if (word == "bf16")
      t.bf16 = true;
    else if (word == "constant")
      t.variable = false;
    else if (word == "last" || word == "turned")
      t.layout = word;
    else
      t.domain = word;
  }
  return t;
}

// The same numbers as peers_cliffs.py's.
Tensor make_input(const InputText& t, uint64_t seed) {
  const Shape shape(t.shape);
  const auto n = static_cast<size_t>(shape.numel().value());
  const auto word = [&](size_t i) { return philox(seed, 0, i).w[0]; };
  if (t.domain.rfind("int:", 0) == 0) {
    const auto below = static_cast<uint32_t>(std::stoul(t.domain.substr(4)));
    std::vector<int64_t> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = word(i) % below;
    return tensor(v).reshape(shape);
  }
  const double low = t.domain == "prob" ? 0.05 : t.domain == "gt1" ? 1.05 : -2;
  const double high = t.domain == "prob" ? 0.95 : t.domain == "gt1" ? 3 : 2;
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i)
    v[i] = static_cast<float>(low + (high - low) * static_cast<double>(word(i) >> 8) * 0x1p-24);
  Tensor x = tensor(v).reshape(shape);
  if (t.bf16) x = x.to(DType::bf16);
  if (t.layout == "turned") x = x.transpose(-1, -2).contiguous().transpose(-1, -2);
  if (t.layout == "last") {
    std::vector<int64_t> there{0}, back{0, static_cast<int64_t>(t.shape.size()) - 1};
    for (int64_t d = 2; d < x.dim(); ++d) there.push_back(d), back.push_back(d - 1);
    there.push_back(1);
    x = x.permute(IntList(there)).contiguous().permute(IntList(back));
  }
  return x;
}

// Least seconds of a call of f, of calls that take `budget` seconds in all.
template <class F>
double least_seconds(F&& f, double budget) {
  double best = INFINITY;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 3 || seconds_since(begin) < budget; ++i) {
    const Clock::time_point start = Clock::now();
    f();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

// Seconds in which the machine could do the work that the rows of a call state.
template <class F>
double limit_seconds(F&& f) {
  static const MachineLimits limits = machine_limits();
  ProfilerGuard guard;
  f();
  double s = 0;
  for (const ProfileEvent& e : guard.profile().events)
    s += 1e-9 * std::max(e.flops / limits.gflops, e.bytes / limits.gbs);
  return s;
}

// A case with its inputs.
class Measured {
 public:
  explicit Measured(const CliffCase& c) : case_(c) {
    std::istringstream texts(c.inputs);
    uint64_t seed = 1;
    for (std::string text; std::getline(texts, text, '|');) {
      const InputText t = parse_input(text);
      inputs_.push_back(make_input(t, seed++));
      const bool variable = t.variable && is_floating(inputs_.back().dtype());
      if (!variable) continue;
      inputs_.back().requires_grad_();
      variables_.push_back(inputs_.back());
    }
  }
  nlohmann::json forward(double seconds) {
    const NoGradGuard no_grad;
    Tensor y = case_.run(inputs_);
    nlohmann::json j = timed([&] { (void)case_.run(inputs_); }, seconds);
    j["mean"] = y.to(DType::f64).abs().mean().item<double>();
    return j;
  }
  nlohmann::json both(double seconds) {
    Tensor y = case_.run(inputs_);
    if (variables_.empty() || !y.requires_grad()) return {{"skipped", true}};
    const Tensor g = ones(y.shape(), y.dtype());
    const auto step = [&] {
      return grad({case_.run(inputs_)}, variables_, {.grad_outputs = {g}, .allow_unused = true});
    };
    double mean = 0;
    for (const Tensor& d : step())
      if (d.defined()) mean += d.to(DType::f64).abs().mean().item<double>();
    nlohmann::json j = timed([&] { (void)step(); }, seconds);
    j["mean"] = mean;
    return j;
  }

 private:
  template <class F>
  static nlohmann::json timed(F&& f, double seconds) {
    const double limit = limit_seconds(f), s = least_seconds(f, seconds);
    return {{"ms", 1e3 * s}, {"share", limit / s}};
  }
  const CliffCase& case_;
  std::vector<Tensor> inputs_, variables_;
};

int list() {
  for (const CliffCase& c : cliff_cases())
    fmt::print("{}\n",
               nlohmann::json({{"name", c.name}, {"inputs", c.inputs}, {"torch", c.torch}}).dump());
  return 0;
}

int serve() {
  const std::vector<CliffCase> cases = cliff_cases();
  std::optional<Measured> at_work;
  std::string held;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream fields(line);
    std::string name, phase, seconds;
    std::getline(fields, name, '\t');
    std::getline(fields, phase, '\t');
    std::getline(fields, seconds);
    const auto c =
        std::find_if(cases.begin(), cases.end(), [&](const auto& e) { return e.name == name; });
    nlohmann::json j;
    try {
      TD_CHECK(c != cases.end(), Value, "no case is called '{}'\nSee --list.", name);
      if (held != name) at_work.emplace(*c);
      held = name;
      j = phase == "both" ? at_work->both(std::stod(seconds))
                          : at_work->forward(std::stod(seconds));
    } catch (const Error& e) {
      j = {{"error", e.what()}};
    }
    fmt::print("{}\n", j.dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::init();
  if (argc == 2 && std::string(argv[1]) == "--list") return tandem::bench::list();
  if (argc == 1) return tandem::bench::serve();
  fmt::print(stderr, "usage: bench_cliffs [--list]\n");
  return 2;
}
