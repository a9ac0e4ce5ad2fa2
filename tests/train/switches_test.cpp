// SPDX-License-Identifier: Apache-2.0
// Switches of the Trainer: short debugging runs, limits, validation by steps, time over
// several processes, sample weights, hooks, preemption notices, and what a failed run
// leaves.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "tandem/base/files/folder.h"
#include "tandem/tandem.h"
#include "tandem/train/callbacks.h"
#include "tandem/train/http_request.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"
#include "tests/train/digits.h"

namespace tandem::train {
namespace {

struct SwitchesNet : nn::Module {
  nn::Linear fc1{64, 32}, fc2{32, 10};
  SwitchesNet() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(fc1(x.flatten(1)))); }
};

// Counts the calls, and keeps the batches.
struct Count : Callback {
  int64_t epochs = 0, batches = 0, steps = 0, validations = 0, saved = 0, tests = 0,
          predictions = 0, failures = 0;
  std::vector<int64_t> validated_at;
  std::vector<Tensor> seen;
  void epoch_begin(Trainer&) override { ++epochs; }
  void batch_begin(Trainer&, const Batch& b) override {
    ++batches;
    seen.push_back(b[0]);
  }
  void step_end(Trainer&, const Logs&) override { ++steps; }
  void validation_begin(Trainer&) override { ++validations; }
  void validation_end(Trainer& t, const Logs& logs) override {
    EXPECT_FALSE(std::isnan(find_log(logs, "val/loss")));
    validated_at.push_back(t.step());
  }
  void checkpoint_saved(Trainer&, const std::string& folder) override {
    EXPECT_TRUE(folder.ends_with("checkpoints"));
    ++saved;
  }
  void test_begin(Trainer&) override { ++tests; }
  void test_end(Trainer&, const Logs& logs) override { tests += logs.empty() ? 100 : 0; }
  void predict_begin(Trainer&) override { ++predictions; }
  void predict_end(Trainer&) override { predictions += 10; }
  void exception(Trainer&, const std::exception&) override { ++failures; }
  const char* name() const override { return "Count"; }
};

TEST(Switches, WhatEachMeans) {
  const struct {
    const char* name;
    TrainerOptions o;
    int64_t steps, epochs, batches;
    std::vector<int64_t> validated;
    bool leaves;
  } kCases[] = {
      {"plain", {}, 46, 2, 46, {23, 46}, true},
      {"fast", {.debug = {.fast_dev_run = 3}}, 3, 1, 3, {3}, false},
      {"overfit", {.debug = {.overfit_batches = 4}}, 8, 2, 8, {4, 8}, true},
      {"limits", {.limits = {.train_batches = 5, .val_batches = 1}}, 10, 2, 10, {5, 10}, true},
      {"barebones", {.debug = {.barebones = true}}, 46, 2, 46, {23, 46}, false},
      {"by steps", {.validation = {.every_steps = 10}}, 46, 2, 46, {10, 20, 30, 40, 46}, true},
      {"steps fit", {.validation = {.every_steps = 23}}, 46, 2, 46, {23, 46}, true},
      {"every 2", {.validation = {.every_epochs = 2}}, 46, 2, 46, {46}, true},
      {"max_steps",
       {.max_steps = 30, .validation = {.every_steps = 15}},
       30,
       2,
       30,
       {15, 30},
       true},
      {"accumulate",
       {.accumulate = 4, .validation = {.every_steps = 5}},
       12,
       2,
       46,
       {5, 10, 12},
       true},
  };
  for (const auto& c : kCases) {
    TempFolder f;
    manual_seed(1);
    Work<SwitchesNet> run;
    TrainerOptions o = c.o;
    o.max_epochs = 2;
    o.logging.every_steps = 5;
    o.folder = f / "run";
    o.progress = false;
    Trainer t(run.net, loss_of, run.opt, o);
    auto count = std::make_shared<Count>();
    t.add(count);
    t.add(std::make_shared<CSVLogger>(f / "log.csv"));
    t.add(std::make_shared<ModelCheckpoint>(f / "w-{epoch}.safetensors"));
    const FitResult r = t.fit(digits(true), digits(false));
    EXPECT_EQ(r.steps, c.steps) << c.name;
    EXPECT_EQ(count->steps, c.steps) << c.name;
    EXPECT_EQ(count->epochs, c.epochs) << c.name;
    EXPECT_EQ(count->batches, c.batches) << c.name;
    EXPECT_EQ(count->validated_at, c.validated) << c.name;
    EXPECT_FALSE(std::isnan(find_log(r.logs, "val/loss"))) << c.name;
    EXPECT_EQ(file_exists(f / "run/STATUS"), c.leaves) << c.name;
    EXPECT_EQ(count->saved > 0, c.leaves) << c.name;
    EXPECT_TRUE(!c.leaves || file_exists(f / "run/metrics.csv")) << c.name;
    EXPECT_EQ(f.names().empty(), c.o.debug.fast_dev_run > 0) << c.name;
    for (size_t i = 0; c.o.debug.overfit_batches > 0 && i + 4 < count->seen.size(); ++i)
      EXPECT_TRUE(equal(count->seen[i], count->seen[i + 4])) << c.name << " " << i;
    t.validate(digits(false), "test/");
    t.predict(digits(false));
    EXPECT_EQ(count->tests, 1) << c.name;
    EXPECT_EQ(count->predictions, 11) << c.name;
  }
}

TEST(Switches, MetricsAsATable) {
  TempFolder f;
  Work<SwitchesNet> run;
  Trainer t(
      run.net, loss_of, run.opt,
      {.max_epochs = 2, .folder = f / "run", .progress = false, .logging = {.every_steps = 10}});
  const FitResult r = t.fit(digits(true), digits(false));
  auto split = [](const std::string& text, char at) {
    std::vector<std::string> out(1);
    for (char c : text)
      if (c == at)
        out.emplace_back();
      else
        out.back() += c;
    return out;
  };
  const std::vector<std::string> lines = split(read_file(f / "run/metrics.csv"), '\n');
  ASSERT_EQ(lines.size(), 1u + 4u + 2u + 1u);  // a head, four steps, two epochs, the end
  const std::vector<std::string> names = split(lines[0], ',');
  EXPECT_EQ(names[0], "step");
  const auto column =
      static_cast<size_t>(std::find(names.begin(), names.end(), "val/loss") - names.begin());
  for (size_t i = 1; i < 7; ++i) {
    const std::vector<std::string> cells = split(lines[i], ',');
    ASSERT_EQ(cells.size(), names.size()) << lines[i];
    if (i == 6) {
      EXPECT_NEAR(std::stod(cells[column]), find_log(r.logs, "val/loss"), 1e-9);
    }
    EXPECT_TRUE(i >= 3 || cells[column].empty()) << lines[i];
  }
}

TEST(Switches, TimeCountsOverAllProcesses) {
  TempFolder f;
  for (int process = 0; process < 2; ++process) {
    manual_seed(1);
    Work<SwitchesNet> run;
    Trainer t(run.net, loss_of, run.opt,
              {.max_epochs = 100000, .max_seconds = 1e-9, .folder = f / "run", .progress = false});
    const FitResult r = t.fit(digits(true));
    EXPECT_EQ(r.reason, "max_seconds");
    EXPECT_EQ(r.steps, 1);  // the time was over before the second process began
  }
  const std::optional<Snapshot> s = Checkpoints(f / "run/checkpoints").load_latest();
  ASSERT_TRUE(s);
  EXPECT_GT(*s->state.find("more")->find("seconds")->as_double(), 0);
  EXPECT_TRUE(s->state.find("machine")->find("threads"));
}

TEST(Switches, SampleWeights) {
  const Tensor loss = tensor({1.0F, 2.0F, 3.0F, 6.0F});
  const struct {
    Tensor loss, weights;
    double want;
    const char* error;
  } kCases[] = {
      {loss, Tensor(), 3, ""},
      {loss, tensor({1.0F, 1.0F, 1.0F, 1.0F}), 3, ""},
      {loss, tensor({0.0F, 0.0F, 2.0F, 1.0F}), 3, ""},
      {loss, tensor({0.0F, 4.0F, 0.0F, 0.0F}), 2, ""},
      {loss.reshape({2, 2}), tensor({2.0F, 0.0F}), 1.5, ""},
      {loss.mean(), Tensor(), 3, ""},
      {loss.mean(), tensor({1.0F, 1.0F}), 0, "expect a loss with a value per sample"},
      {loss, tensor({1.0F, 1.0F}), 0, "got [4] and [2]"},
  };
  for (const auto& c : kCases) {
    double got = 0;
    const std::string what =
        error_of([&] { got = mean_loss(c.loss, c.weights).to(float64).item<double>(); });
    if (*c.error)
      EXPECT_NE(what.find(c.error), what.npos) << what;
    else
      EXPECT_NEAR(got, c.want, 1e-6) << what;
  }
  // In a batch: samples of weight 0 are ignored.
  manual_seed(1);
  SwitchesNet a, b = clone(a);
  const data::Digits d({.train = true});
  const Tensor x = d.x().narrow(0, 0, 8), y = d.y().narrow(0, 0, 8);
  const Tensor w = tensor({2.0F, 2.0F, 2.0F, 2.0F, 0.0F, 0.0F, 0.0F, 0.0F});
  optim::SGD first(a.parameters(), {.lr = 0.1}), second(b.parameters(), {.lr = 0.1});
  auto each = [](Tensor out, Tensor t) {
    return cross_entropy(out, t, {.reduction = Reduction::none});
  };
  Trainer weighted(a, each, first, {.progress = false}), half(b, each, second, {.progress = false});
  EXPECT_NEAR(weighted.update({x, y, w}), half.update({x.narrow(0, 0, 4), y.narrow(0, 0, 4)}),
              1e-5);
  EXPECT_TRUE(allclose(a.fc1.weight.value(), b.fc1.weight.value(), 1e-5, 1e-6));
}

TEST(Switches, AFailedRunSaysSo) {
  TempFolder f;
  data::Digits d({.train = true});
  std::vector<float> pixels = d.x().to_vector<float>();
  for (size_t k = 0; k < 64; ++k) pixels[100 * 64 + k] = -INFINITY;
  Work<SwitchesNet> run;
  Trainer t(run.net, loss_of, run.opt, {.max_epochs = 1, .folder = f / "run", .progress = false});
  auto count = std::make_shared<Count>();
  t.add(count);
  const std::string what = error_of([&] {
    t.fit(data::pipeline(data::TensorDataset(tensor(pixels, d.x().shape()), d.y()), {.seed = 4})
              .batch(16));
  });
  EXPECT_NE(what.find("the loss is nan"), what.npos) << what;
  EXPECT_EQ(count->failures, 1);
  EXPECT_EQ(read_file(f / "run/STATUS"), "failed\n");
  EXPECT_NE(read_file(f / "run/nonfinite.txt").find("step 7 of epoch 0: the loss is nan"),
            std::string::npos);
  EXPECT_NE(read_file(f / "run/error.txt").find("Samples of the batch: 96, 97"), std::string::npos);
  EXPECT_TRUE(file_exists(f / "run/parts.jsonl"));
  EXPECT_TRUE(file_exists(f / "run/metrics.csv"));
}

// ---- notices

// Answers each connection with the next of some texts, repeating the last one forever.
class FakeServer {
 public:
  explicit FakeServer(std::vector<std::string> answers) : answers_(std::move(answers)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::listen(fd_, 8);
    socklen_t size = sizeof at;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    end_ = true;
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  std::string url(const std::string& path) const {
    return fmt::format("http://127.0.0.1:{}{}", port_, path);
  }
  int asked() const { return asked_; }
  std::string last() const { return last_; }  ///< once it is no longer used

 private:
  void serve() {
    while (!end_) {
      const int c = ::accept(fd_, nullptr, nullptr);
      if (c < 0) return;
      std::string got;
      char buffer[2048];
      while (got.find("\r\n\r\n") == got.npos || got.size() < wanted(got)) {
        const ssize_t n = ::recv(c, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        got.append(buffer, static_cast<size_t>(n));
      }
      last_ = got;
      const std::string& a =
          answers_[std::min<size_t>(static_cast<size_t>(asked_), answers_.size() - 1)];
      ::send(c, a.data(), a.size(), MSG_NOSIGNAL);
      ::close(c);
      ++asked_;
    }
  }
  static size_t wanted(const std::string& got) {
    const size_t at = got.find("Content-Length: ");
    return got.find("\r\n\r\n") + 4 +
           (at == got.npos ? 0 : static_cast<size_t>(std::atoi(got.c_str() + at + 16)));
  }
  std::vector<std::string> answers_;
  int fd_ = -1, port_ = 0;
  std::atomic<int> asked_{0};
  std::atomic<bool> end_{false};
  std::string last_;
  std::thread thread_;
};
std::string answer(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

TEST(Http, AsksAndNamesWhatIsWrong) {
  {
    FakeServer s({answer("200 OK", "hello")});
    const HttpReply r = http_request(
        {.method = "POST", .url = s.url("/a?b=1"), .headers = {{"X-One", "1"}}, .body = "text"});
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.body, "hello");
    while (s.asked() < 1) std::this_thread::yield();
    EXPECT_TRUE(s.last().starts_with("POST /a?b=1 HTTP/1.0\r\nHost: 127.0.0.1\r\nX-One: 1\r\n"))
        << s.last();
    EXPECT_TRUE(s.last().ends_with("\r\n\r\ntext")) << s.last();
  }
  const std::pair<std::string, const char*> kCases[] = {
      {"https://a/b", "Write http://host[:port]/path"},
      {"http:///x", "Write http://host[:port]/path"},
      {"http://127.0.0.1:1/x", "gives no answer (connect: Connection refused)"},
  };
  for (const auto& [url, want] : kCases) {
    const std::string what = error_of([&u = url] { http_request({.url = u}); });
    EXPECT_NE(what.find(want), what.npos) << what;
  }
  FakeServer odd({"nonsense"});
  EXPECT_NE(error_of([&] { http_request({.url = odd.url("/")}); }).find("no answer of HTTP"),
            std::string::npos);
}

// Waits in each step until the notice is there, so that the run cannot end before it.
struct WaitForNotice : Callback {
  int64_t from;
  explicit WaitForNotice(int64_t from) : from(from) {}
  void step_end(Trainer& t, const Logs&) override {
    while (t.step() >= from && !stop_requested()) std::this_thread::yield();
  }
  const char* name() const override { return "WaitForNotice"; }
};
struct RaiseAt : Callback {
  int64_t at;
  int signal;
  RaiseAt(int64_t at, int signal) : at(at), signal(signal) {}
  void step_end(Trainer& t, const Logs&) override {
    if (t.step() == at) std::raise(signal);
  }
  const char* name() const override { return "RaiseAt"; }
};

TEST(Preemption, SavesStopsAndIsResumed) {
  auto fit = [](const std::string& folder, PreemptOptions preempt,
                const std::shared_ptr<Callback>& callback, StateDict* out) {
    manual_seed(1);
    Work<SwitchesNet> run;
    Trainer t(
        run.net, loss_of, run.opt,
        {.max_epochs = 3, .folder = folder, .progress = false, .preempt = std::move(preempt)});
    if (callback) t.add(callback);
    const FitResult r = t.fit(digits(true), digits(false));
    if (out) *out = run.net.state_dict();
    return r;
  };
  TempFolder f;
  StateDict want;
  fit(f / "whole", {}, nullptr, &want);
  FakeServer spot({answer("404 Not Found", ""), answer("404 Not Found", ""),
                   answer("200 OK", "{\"action\": \"terminate\"}")});
  FakeServer google({answer("200 OK", "FALSE"), answer("200 OK", "TRUE\n")});
  const struct {
    const char* name;
    PreemptOptions o;
    std::shared_ptr<Callback> callback;
  } kCases[] = {
      {"signal", {.signal = SIGUSR1, .deadline = 30}, std::make_shared<RaiseAt>(7, SIGUSR1)},
      {"spot",
       {.url = spot.url("/latest/meta-data/spot/instance-action"), .every = 0.02},
       std::make_shared<WaitForNotice>(5)},
      {"google",
       {.url = google.url("/preempted"), .headers = {{"Metadata-Flavor", "Google"}}, .every = 0.02},
       std::make_shared<WaitForNotice>(23)},
  };
  for (const auto& c : kCases) {
    const std::string folder = f / c.name;
    const FitResult r = fit(folder, c.o, c.callback, nullptr);
    EXPECT_TRUE(r.preempted && r.interrupted) << c.name;
    EXPECT_EQ(r.reason, "preempted") << c.name;
    EXPECT_EQ(read_file(folder + "/STATUS"), "preempted\n") << c.name;
    EXPECT_FALSE(preempted());
    StateDict got;
    const FitResult rest = fit(folder, {}, std::make_shared<RaiseAt>(-1, 0), &got);
    EXPECT_FALSE(rest.interrupted) << c.name;
    for (const auto& [name, value] : want) EXPECT_TRUE(equal(got.at(name), value)) << c.name;
  }
  EXPECT_GE(spot.asked(), 3);
  while (google.asked() < 2) std::this_thread::yield();
  EXPECT_NE(google.last().find("Metadata-Flavor: Google"), std::string::npos);
  // An unreachable address is not a notice.
  EXPECT_EQ(
      fit(f / "none", {.url = "http://127.0.0.1:1/x", .every = 0.05}, nullptr, nullptr).reason,
      "done");
  const std::string what = error_of([&] { fit(f / "odd", {.url = "ftp://x"}, nullptr, nullptr); });
  EXPECT_NE(what.find("a preemption address is 'aws', 'gcp' or http://"), what.npos) << what;
  EXPECT_EQ(signal_of("SIGUSR1"), SIGUSR1);
  EXPECT_EQ(signal_of("FOO"), 0);
}

TEST(Callbacks, RemoteMonitorSendsEachEpoch) {
  FakeServer s({answer("200 OK", "")});
  Work<SwitchesNet> run;
  Trainer t(run.net, loss_of, run.opt, {.max_epochs = 2, .progress = false});
  t.add(std::make_shared<RemoteMonitor>(RemoteMonitorOptions{.root = s.url("")}));
  t.add(std::make_shared<RemoteMonitor>(RemoteMonitorOptions{.root = "http://127.0.0.1:1"}));
  const FitResult r = t.fit(digits(true), digits(false));
  EXPECT_EQ(r.reason, "done");
  while (s.asked() < 2) std::this_thread::yield();
  EXPECT_TRUE(s.last().starts_with("POST /publish/epoch/end/ ")) << s.last();
  const io::Json j = io::parse_json(s.last().substr(s.last().find("\r\n\r\n") + 4));
  EXPECT_EQ(*j.find("epoch")->as_int(), 1);
  EXPECT_TRUE(j.find("val_loss") && j.find("learning_rate"));
}

// The Trainer against a manual loop: printed, not checked, as the machine may be busy.
TEST(Switches, OverheadOfAStep) {
  auto seconds = [](auto f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const data::Digits d({.train = true});
  const Tensor x = d.x().narrow(0, 0, 256).flatten(1), y = d.y().narrow(0, 0, 256);
  struct Wide : nn::Module {
    nn::Linear a{64, 256}, b{256, 10};
    Wide() { TD_REGISTER(a, b); }
    Tensor forward(Tensor t) { return b(relu(a(t))); }
  };
  constexpr int64_t kSteps = 400;
  data::TensorDataset one(x.unsqueeze(0), y.unsqueeze(0));
  auto batches = [&] { return data::pipeline(one, {.seed = 1}).repeat(kSteps); };
  double bare = 1e9, full = 1e9, lean = 1e9;
  for (int round = 0; round < 3; ++round) {
    {
      Wide net;
      optim::SGD opt(net.parameters(), {.lr = 1e-3});
      auto step = compile([&](Tensor in, Tensor t) {
        opt.zero_grad();
        Tensor loss = cross_entropy(net(in), t);
        loss.backward();
        opt.step();
        return loss.detach();
      });
      step(x, y);  // compiles
      auto p = batches();
      double sum = 0;
      bare = std::min(bare, seconds([&] {
                        for (const auto& [in, t] : p) sum += step(in, t).item<float>();
                      }));
      EXPECT_TRUE(std::isfinite(sum));
    }
    for (const bool barebones : {false, true}) {
      Wide net;
      optim::SGD opt(net.parameters(), {.lr = 1e-3});
      Trainer t(net, loss_of, opt,
                {.max_epochs = 1,
                 .on_nonfinite = barebones ? OnNonFinite::off : OnNonFinite::stop,
                 .progress = false,
                 .debug = {.barebones = barebones}});
      t.update({x, y});  // compiles
      double& best = barebones ? lean : full;
      best = std::min(best, seconds([&] { t.fit(batches()); }));
    }
  }
  const double step = 1e3 * bare / kSteps;
  fmt::print(
      "a step of {:.3f} ms: Trainer adds {:.1f} us ({:.2f} % of 1 ms), barebones {:.1f} us\n", step,
      1e6 * (full - bare) / kSteps, 1e5 * (full - bare) / kSteps, 1e6 * (lean - bare) / kSteps);
}

}  // namespace
}  // namespace tandem::train
