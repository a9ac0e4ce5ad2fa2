// SPDX-License-Identifier: Apache-2.0
// `tandem demo`: trains a small conv net on the embedded digits, shows what it learned, saves it,
// loads it again and checks that the predictions are bit-equal.
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "tandem/tandem.h"

namespace tandem::cli {
namespace {

struct DigitNet : nn::Module {
  nn::Conv2d conv1{1, 32, 3, {.padding = {1}}}, conv2{32, 64, 3, {.padding = {1}}};
  nn::Dropout drop{0.25};
  nn::Linear fc1{64 * 4 * 4, 128}, fc2{128, 10};
  DigitNet() { TD_REGISTER(conv1, conv2, drop, fc1, fc2); }
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(relu(conv2(x)), 2);
    x = relu(fc1(drop(x).flatten(1)));
    return fc2(x);
  }
};

struct DemoOptions {
  int epochs = 20, fold = 0, batch = 32;
  uint64_t seed = 0;
  double lr = 1e-3;
  std::string out = "net.safetensors";
  bool json = false, folds = false;
};

struct Result {
  double accuracy = 0, loss = 0;
  int64_t wrong = 0;
};

// One cosine from the full rate to a hundredth of it.
double rate_at(const DemoOptions& o, int64_t step, int64_t steps) {
  double t = static_cast<double>(step) / static_cast<double>(std::max<int64_t>(steps - 1, 1));
  return o.lr * (0.01 + 0.99 * 0.5 * (1 + std::cos(M_PI * t)));
}

Tensor predict(DigitNet& net, const data::Digits& digits) {
  NoGradGuard no_grad;
  bool training = net.is_training();
  net.eval();
  Tensor logits = net(digits.x());
  net.train(training);
  return logits;
}

Result evaluate(DigitNet& net, const data::Digits& digits) {
  Tensor logits = predict(net, digits);
  Tensor hit = logits.argmax(1) == digits.y();
  int64_t right = hit.to(int64).sum().item<int64_t>();
  return {static_cast<double>(right) / static_cast<double>(digits.size()),
          cross_entropy(logits, digits.y()).item<float>(), digits.size() - right};
}

// Trains; false when Ctrl-C stopped it early.
bool train(DigitNet& net, const data::Digits& digits, const data::Digits& test,
           const DemoOptions& o, Progress& progress) {
  optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0.05});
  data::DataLoader loader(digits, {.batch_size = o.batch, .shuffle = true, .seed = o.seed});
  int64_t step = 0, steps = o.epochs * loader.size();
  int64_t seen = 0;
  for (int epoch = 0; epoch < o.epochs; ++epoch) {
    Tensor loss_sum = zeros({}), right = zeros({}, int64);
    int64_t count = 0;
    for (const auto& [x, y] : loader) {
      if (interrupted()) return false;
      opt.set_lr(rate_at(o, step, steps));
      opt.zero_grad();
      Tensor logits = net(x);
      Tensor loss = cross_entropy(logits, y, {.label_smoothing = 0.05});
      loss.backward();
      opt.step();
      loss_sum = loss_sum + loss.detach() * x.size(0);
      right = right + (logits.detach().argmax(1) == y).to(int64).sum();
      count += x.size(0);
      seen += x.size(0);
      ++step;
      double rate = static_cast<double>(seen) / progress.seconds();
      double left = static_cast<double>(steps - step) * o.batch / rate;
      progress.show(fmt::format(
          "epoch {:>2}/{}  loss {:.4f}  accuracy {:.2f} %  {:.0f} samples/s  {} left", epoch + 1,
          o.epochs, loss_sum.item<float>() / static_cast<double>(count),
          100.0 * static_cast<double>(right.item<int64_t>()) / static_cast<double>(count), rate,
          duration(left)));
    }
    if (epoch % 5 == 4 || epoch + 1 == o.epochs) {
      Result r = evaluate(net, test);
      progress.keep(fmt::format(
          "epoch {:>2}/{}  loss {:.4f}  test loss {:.4f}  test accuracy {:.2f} %", epoch + 1,
          o.epochs, loss_sum.item<float>() / static_cast<double>(count), r.loss, 100 * r.accuracy));
    }
  }
  return true;
}

void print_confusion(const std::vector<int64_t>& want, const std::vector<int64_t>& got) {
  int64_t table[10][10] = {};
  for (size_t i = 0; i < want.size(); ++i) ++table[want[i]][got[i]];
  fmt::print("\nconfusion (row: the digit, column: what the net says)\n     ");
  for (int d = 0; d < 10; ++d) fmt::print("{:>4}", d);
  fmt::print("\n");
  for (int d = 0; d < 10; ++d) {
    fmt::print("{:>5}", d);
    for (int k = 0; k < 10; ++k) {
      if (table[d][k])
        fmt::print("{:>4}", table[d][k]);
      else
        fmt::print("   .");
    }
    fmt::print("\n");
  }
}

// A few digits side by side, two pixels of the image to one character cell.
void print_digits(const data::Digits& digits, const std::vector<int64_t>& got,
                  const Tensor& logits) {
  std::vector<int64_t> want = digits.y().to_vector<int64_t>();
  std::vector<size_t> shown;
  for (size_t i = 0; i < want.size() && shown.size() < 2; ++i)
    if (want[i] != got[i]) shown.push_back(i);  // mistakes first: they are worth a look
  for (size_t i = 0; i < want.size() && shown.size() < 6; ++i)
    if (want[i] == got[i] && want[i] == static_cast<int64_t>(shown.size() + 2) % 10)
      shown.push_back(i);
  std::vector<float> pixels = digits.x().to_vector<float>();
  std::vector<float> sure = logits.softmax(1).amax({1}).to_vector<float>();
  static constexpr const char* kShades[] = {"  ", "\u2591\u2591", "\u2592\u2592", "\u2593\u2593",
                                            "\u2588\u2588"};
  fmt::print("\n");
  for (int row = 0; row < 8; ++row) {
    for (size_t i : shown) {
      for (int column = 0; column < 8; ++column) {
        float v = pixels[i * 64 + static_cast<size_t>(row * 8 + column)];
        fmt::print("{}", kShades[std::min(4, static_cast<int>(v * 5))]);
      }
      fmt::print("   ");
    }
    fmt::print("\n");
  }
  for (size_t i : shown)
    fmt::print("{:<19}", fmt::format("{} ({:.0f} %){}", got[i], 100 * sure[i],
                                     got[i] == want[i] ? "" : fmt::format(", is {}", want[i])));
  fmt::print("\n");
}

bool bit_equal(const Tensor& a, const Tensor& b) {
  std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

int demo(const DemoOptions& o) {
  init();
  manual_seed(o.seed);
  data::Digits train_set({.train = true, .fold = o.fold}),
      test_set({.train = false, .fold = o.fold});
  DigitNet net;
  if (!o.json)
    fmt::print(
        "1,797 hand-written digits of 8x8 pixels: {} to train on, {} to test.\n"
        "A conv net with {} parameters, AdamW, {} epochs.\n\n",
        train_set.size(), test_set.size(), net.num_parameters(), o.epochs);
  std::fflush(stdout);
  Progress progress(o.json);
  bool finished = train(net, train_set, test_set, o, progress);
  double seconds = progress.seconds();
  Tensor logits = predict(net, test_set);
  Result r = evaluate(net, test_set);
  save(net.state_dict(), o.out);
  DigitNet again;
  again.load_state_dict(load(o.out));
  bool equal = bit_equal(logits, predict(again, test_set));
  if (o.json) {
    nlohmann::json j{{"accuracy", r.accuracy},  {"loss", r.loss},     {"wrong", r.wrong},
                     {"test", test_set.size()}, {"seconds", seconds}, {"reload_bit_equal", equal},
                     {"file", o.out},           {"fold", o.fold},     {"seed", o.seed}};
    fmt::print("{}\n", j.dump());
  } else {
    std::vector<int64_t> got = logits.argmax(1).to_vector<int64_t>();
    fmt::print("\ntest accuracy {:.2f} % ({} of {} wrong), {} of training\n", 100 * r.accuracy,
               r.wrong, test_set.size(), duration(seconds));
    print_confusion(test_set.y().to_vector<int64_t>(), got);
    print_digits(test_set, got, logits);
    fmt::print("\nsaved {} and loaded it again: predictions are {}\n", o.out,
               equal ? "bit-equal" : "NOT equal");
  }
  if (!finished) return 130;
  return equal ? 0 : 3;
}

// The figure that documents quote: mean test accuracy over five folds and three seeds.
int all_folds(DemoOptions o) {
  init();
  double sum = 0;
  int runs = 0;
  for (int fold = 0; fold < 5; ++fold)
    for (uint64_t seed = 0; seed < 3; ++seed) {
      o.fold = fold;
      o.seed = seed;
      manual_seed(seed);
      data::Digits train_set({.train = true, .fold = fold}),
          test_set({.train = false, .fold = fold});
      DigitNet net;
      Progress progress(true);
      if (!train(net, train_set, test_set, o, progress)) return 130;
      Result r = evaluate(net, test_set);
      fmt::print("fold {} seed {}: {:.2f} %\n", fold, seed, 100 * r.accuracy);
      std::fflush(stdout);
      sum += r.accuracy;
      ++runs;
    }
  double mean = 100 * sum / runs;
  fmt::print("mean of {} runs: {:.2f} %\n", runs, mean);
  return mean >= 98.0 ? 0 : 3;
}

}  // namespace

void add_demo(CLI::App& app, int& code) {
  auto o = std::make_shared<DemoOptions>();
  CLI::App* verb = app.add_subcommand("demo", "Train a small conv net on hand-written digits");
  verb->add_option("--epochs", o->epochs, "Passes over the data")->check(CLI::Range(1, 10000));
  verb->add_option("--fold", o->fold, "Row i is test when i % 5 is this")->check(CLI::Range(0, 4));
  verb->add_option("--seed", o->seed, "Seed of weights, order and dropout");
  verb->add_option("--batch", o->batch, "Samples a step")->check(CLI::Range(1, 1797));
  verb->add_option("--lr", o->lr, "Learning rate at the start");
  verb->add_option("--out", o->out, "Where the weights go");
  verb->add_flag("--folds", o->folds, "Five folds and three seeds; prints the mean accuracy");
  verb->add_flag("--json", o->json, "One line of JSON on stdout");
  verb->callback([o, &code] { code = o->folds ? all_folds(*o) : demo(*o); });
}

}  // namespace tandem::cli
