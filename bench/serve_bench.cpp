// SPDX-License-Identifier: Apache-2.0
// What serving costs: `bench_serve [--check] [SECONDS] [PART] [RELOADS]` starts servers in this
// process on one core and clients on another, in turns, and prints medians and bars. echo: the same
// HTTP server without models. PART: small, grpc, large, batches, process or reloads; all of them
// without it. --check: exit code 3 where a bar is missed. Linux.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "bench/resident.h"
#include "bench/serve_bench.h"
#include "tandem/base/clock.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/parallel.h"
#include "tandem/init.h"
#include "tandem/onnx/export.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/load_test.h"
#include "tandem/serve/server.h"

namespace {

using namespace tandem;
namespace fs = std::filesystem;

double resident_mb() { return static_cast<double>(bench::resident_bytes("VmRSS:")) / 1048576; }

/// One way to ask one server.
struct Arm {
  const char* name;
  std::string url;
  serve::LoadRequest request;
  int connections;
  std::vector<double> rates = {}, p50 = {}, p99 = {};
};

void load_once(std::vector<Arm>& arms, double seconds) {
  for (Arm& a : arms) {
    serve::LoadReport r;
    serve::run_load(
        {.url = a.url, .connections = a.connections, .seconds = seconds, .warm_seconds = 0.2},
        a.request, r);
    a.rates.push_back(r.rate());
    a.p50.push_back(r.latency.quantile(0.5));
    a.p99.push_back(r.latency.quantile(0.99));
    if (!r.good()) fmt::print("{}: {} wrong answers\n", a.name, r.other + r.broken + r.unanswered);
  }
}

void print_arms(const std::vector<Arm>& arms) {
  fmt::print("{:28}{:>12}{:>12}{:>12}{:>10}\n", "", "requests/s", "p50 us", "p99 us", "to first");
  for (const Arm& a : arms)
    fmt::print("{:28}{:>12.0f}{:>12.0f}{:>12.0f}{:>10.2f}\n", a.name, median(a.rates),
               median(a.p50) * 1e6, median(a.p99) * 1e6, median(a.rates) / median(arms[0].rates));
}

void measure(std::vector<Arm>& arms, double seconds, int turns) {
  for (int t = 0; t < turns; ++t) load_once(arms, seconds);
  print_arms(arms);
}

void write_models(const std::string& folder) {
  const auto put = [&](const std::string& name, const std::function<Tensor(Tensor)>& f,
                       const Shape& sample) {
    make_folders(folder + "/" + name + "/1");
    onnx::export_onnx(f, zeros(sample), folder + "/" + name + "/1/model.onnx",
                      {.dynamic = {{0, "batch"}}, .external_data = false});
  };
  put("null", [](Tensor x) { return -x; }, {2, 1});
  put("image", [](Tensor x) { return -x; }, {2, 3, 224, 224});
  const Tensor a = randn({784, 1024}) / 28, b = randn({1024, 1024}) / 32,
               c = randn({1024, 10}) / 32;
  put("mlp",
      [=](Tensor x) {
        return matmul(relu(matmul(relu(matmul(x, constant(a))), constant(b))), constant(c));
      },
      {2, 784});
}

void serve_echo(OnCore0& at) {
  serve::HttpServer server({}, [](const serve::HttpExchangePtr& e) {
    e->answer({.content_type = "application/octet-stream", .body = std::move(e->request.body)});
  });
  at.url = server.url();
  at.stop = [&server] { server.drain(0, 0); };
  at.ready = true;
  server.run();
}

void serve_models(OnCore0& at, const std::string& folder, int64_t max_batch) {
  const auto begin = Clock::now();
  serve::Server server(
      {.models = folder, .defaults = {.max_batch = max_batch}, .allow_load = true});
  fmt::print("start to ready, max_batch {}: {:.0f} ms\n", max_batch, seconds_since(begin) * 1e3);
  server.repository().wait_for_warm_up();
  for (const serve::ModelVersionPtr& v : server.repository().all())
    fmt::print("  {}: one row {:.1f} us, batches to {} {}\n", v->name,
               v->model->seconds_of_one() * 1e6, v->model->sizes().back().rows, v->model->note());
  at.url = server.url();
  at.stop = [&server] { server.drain(0, 0); };
  at.ready = true;
  server.run();
}

/// Rows a second of the model itself, called in a loop with batches of `rows`.
double direct_rate(serve::Servable& model, int64_t rows, double seconds) {
  const Tensor x = randn({rows, 784});
  int64_t n = 0;
  const auto begin = Clock::now();
  for (; seconds_since(begin) < seconds; ++n) model.run(0, {x}, rows);
  return static_cast<double>(n * rows) / seconds_since(begin);
}

/// Rows a second through the queue, without HTTP: each of `clients` rows is asked for again as soon
/// as it is answered.
double queued_rate(const std::shared_ptr<serve::Servable>& model, int64_t clients, double seconds) {
  std::atomic<int64_t> answered{0}, open{clients};
  std::atomic<bool> ends{false};
  const Tensor x = randn({1, 784});
  serve::Scheduler scheduler(model, {});
  std::function<void()> ask = [&] {
    scheduler.submit({.inputs = {x}, .done = [&](const serve::JobResult& r) {
                        if (r.status == 200) answered.fetch_add(1);
                        if (ends.load())
                          open.fetch_sub(1);
                        else
                          ask();
                      }});
  };
  const auto begin = Clock::now();
  for (int64_t i = 0; i < clients; ++i) ask();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double rate = static_cast<double>(answered.load()) / seconds_since(begin);
  ends = true;
  while (open.load() > 0) std::this_thread::yield();
  return rate;
}

// Quiet seconds and seconds with reloads take turns: what else the machine does meets both.
void reload_under_load(const std::string& url, int reloads, Bars& bars) {
  constexpr int kTurns = 10;
  const serve::LoadRequest request = serve::v2_request(url, "mlp", 1, true);
  uint64_t ok = 0, wrong = 0;
  const auto second = [&] {
    serve::LoadReport r;
    serve::run_load({.url = url, .connections = 4, .seconds = 1, .warm_seconds = 0}, request, r);
    ok += r.ok;
    wrong += r.other + r.broken + r.unanswered;
    return r.latency.quantile(0.99) * 1e3;
  };
  second();
  int failed = 0;
  const double before = resident_mb();
  std::vector<double> quiet, loaded;
  for (int turn = 0; turn < kTurns; ++turn) {
    quiet.push_back(second());
    std::atomic<bool> done{false};
    std::thread admin([&] {
      serve::HttpClient client{serve::HttpUrl(url)};
      for (int i = 0; i < reloads / kTurns; ++i)
        failed += client.post("/v2/repository/models/mlp/load", "").status != 200;
      done = true;
    });
    while (!done) loaded.push_back(second());
    admin.join();
  }
  fmt::print(
      "{} reloads under load: {} failed, {} requests, {} wrong; p99 of a quiet second {:.2f} ms, "
      "of "
      "one with reloads {:.2f} ms ({:.2f} x), worst {:.2f} ms; resident {:.0f} -> {:.0f} MB\n",
      reloads / kTurns * kTurns, failed, ok, wrong, median(quiet), median(loaded),
      median(loaded) / median(quiet), *std::max_element(loaded.begin(), loaded.end()), before,
      resident_mb());
  bars.most("requests and reloads that failed", static_cast<double>(wrong) + failed, 0);
  bars.most("p99 with reloads to a quiet second's", median(loaded) / median(quiet), 1.5);
}

serve::LoadRequest mirror(serve::LoadRequest r) {
  r.path = "/echo";
  return r;
}

void small_models(const OnCore0& echo, const OnCore0& server, double seconds, Bars& bars) {
  const serve::LoadRequest small = serve::v2_request(server.url, "null", 1, true);
  std::vector<Arm> null{
      {"echo, 1 connection", echo.url, mirror(small), 1},
      {"null, binary", server.url, small, 1},
      {"null, JSON", server.url, serve::v2_request(server.url, "null", 1, false), 1}};
  measure(null, seconds, 5);
  std::vector<Arm> many{{"echo, 16 connections", echo.url, mirror(small), 16},
                        {"null, binary", server.url, small, 16}};
  measure(many, seconds, 5);
  for (const std::vector<Arm>* arms : {&null, &many}) {
    const Arm &from = arms->at(0), &of = arms->at(1);
    const auto bar = [&](const char* what) {
      return fmt::format("REST, {} connections, {} to the echo's", of.connections, what);
    };
    bars.least(bar("requests/s"), median(of.rates) / median(from.rates), 0.8);
    bars.most(bar("p50"), median(of.p50) / median(from.p50), 1.5);
  }
}

void large_input(const OnCore0& echo, const OnCore0& server, double seconds, Bars& bars) {
  const serve::LoadRequest image = serve::v2_request(server.url, "image", 1, true);
  std::vector<Arm> large{{"echo, 602 kB", echo.url, mirror(image), 1},
                         {"602 kB through a model", server.url, image, 1}};
  measure(large, seconds, 5);
  bars.most("602 kB through a model, p50 in us", median(large[1].p50) * 1e6, 300);
}

// What batching costs: rows through the queue, and through HTTP in requests of 32 rows and of one,
// as parts of what the model does when it is called with batches of 32. For requests of one row
// there is a bound, too: on one core the time that the same HTTP server takes to echo a request
// comes on top of the model's.
void batches(const OnCore0& echo, const OnCore0& server, const std::string& folder, double seconds,
             Bars& bars) {
  constexpr int64_t kRows = 32;
  constexpr int kTurns = 5;
  const serve::LoadRequest one = serve::v2_request(server.url, "mlp", 1, true);
  std::vector<Arm> arms{
      {"mlp, 1 connection", server.url, one, 1},
      {"mlp, 64 connections", server.url, one, 64},
      {"mlp, 4, of 32 rows each", server.url, serve::v2_request(server.url, "mlp", kRows, true), 4},
      {"echo, 64 connections", echo.url, mirror(one), 64}};
  std::vector<double> direct, queued, alone;
  std::thread([&] {
    stay_on(0);
    const auto model = serve::Servable::load(folder + "/mlp/1/model.onnx", {.max_batch = kRows});
    model->warm_up();
    for (int t = 0; t < kTurns; ++t) {
      alone.push_back(direct_rate(*model, 1, seconds / 2));
      direct.push_back(direct_rate(*model, kRows, seconds / 2));
      queued.push_back(queued_rate(model, 2 * kRows, seconds / 2));
      std::thread([&] {
        stay_on(1);
        load_once(arms, seconds);
      }).join();
    }
  }).join();
  {
    OnCore0 single([&](OnCore0& at) { serve_models(at, folder, 1); });
    std::vector<Arm> more{{"mlp, 1, no batching", single.url, one, 1},
                          {"mlp, 64, no batching", single.url, one, 64}};
    // The lone client, with and without batching, in turns.
    std::vector<Arm> lone{more[0], arms[0]};
    for (Arm& a : lone) a.rates = a.p50 = a.p99 = {};
    measure(more, seconds, kTurns);
    measure(lone, seconds, kTurns);
    bars.most("lone client, p50 to that without batching",
              median(lone[1].p50) / median(lone[0].p50), 1.05);
  }
  print_arms(arms);
  const double rate = median(direct), echoed = median(arms[3].rates);
  const auto line = [rate](const char* what, double rows) {
    fmt::print("{:36}{:>10.0f} rows/s{:>8.2f}\n", what, rows, rows / rate);
  };
  line("mlp called directly, one row", median(alone));
  line("mlp called directly, batches of 32", rate);
  line("through the queue, 64 rows at a time", median(queued));
  line("through HTTP, requests of 32 rows", median(arms[2].rates) * kRows);
  line("through HTTP, 64 requests of a row", median(arms[1].rates));
  line("  its bound: the model and an echo", 1 / (1 / rate + 1 / echoed));
  bars.least("rows/s through the queue to direct calls of batches", median(queued) / rate, 0.9);
  bars.least("rows/s in requests of 32 rows to direct calls of batches",
             median(arms[2].rates) * kRows / rate, 0.9);
}

void run(double seconds, const std::string& part, int reloads, const std::string& tool,
         Bars& bars) {
  init();
  set_num_threads(1);
  const std::string folder = fs::temp_directory_path() / fmt::format("bench-serve-{}", getpid());
  write_models(folder);
  stay_on(1);
  const auto wanted = [&](const char* name) { return part.empty() || part == name; };
  if (wanted("process")) {
    const Tensor weights = randn({1600, 1600}) / 40;  // 10 MB
    const std::string file = folder + "/ten.onnx";
    onnx::export_onnx([=](Tensor x) { return matmul(x, constant(weights)); }, zeros({2, 1600}),
                      file, {.dynamic = {{0, "batch"}}, .external_data = false});
    bench_process(tool, file, static_cast<double>(fs::file_size(file)), bars);
    fs::remove(file);
  }
  {
    OnCore0 echo(serve_echo), server([&](OnCore0&at) { serve_models(at, folder, 32); });
    fmt::print("resident: {:.0f} MB\n", resident_mb());
    if (wanted("small")) small_models(echo, server, seconds, bars);
    if (wanted("grpc")) {
      bench_grpc(server.url, "null", seconds, 1, 5, bars);
      bench_grpc(server.url, "null", seconds, 16, 5, bars);
      bench_grpc(server.url, "image", seconds, 1, 3, bars);
    }
    if (wanted("large")) large_input(echo, server, seconds, bars);
    if (wanted("batches")) batches(echo, server, folder, seconds, bars);
    if (wanted("reloads")) reload_under_load(server.url, reloads, bars);
  }
  remove_folder(folder);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    const bool check = std::erase(words, "--check") > 0;
    const auto word = [&](size_t i, const char* without) {
      return i < words.size() ? words[i] : std::string(without);
    };
    Bars bars;
    run(std::stod(word(0, "1")), word(1, ""), std::stoi(word(2, "1000")),
        fs::path(argv[0]).parent_path() / "tandem", bars);
    if (bars.missed() > 0) fmt::print("{} bars are missed\n", bars.missed());
    return check && bars.missed() > 0 ? 3 : 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
