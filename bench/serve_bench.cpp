// SPDX-License-Identifier: Apache-2.0
// What serving costs: `bench_serve [SECONDS] [PART]` starts servers in this process on one core and
// clients on another, in turns, and prints medians. echo: the same HTTP server without models.
// PART: small, grpc, large, batches or reloads; all of them without it. Linux.
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

void measure(std::vector<Arm>& arms, double seconds, int turns) {
  for (int t = 0; t < turns; ++t)
    for (Arm& a : arms) {
      serve::LoadReport r;
      serve::run_load(
          {.url = a.url, .connections = a.connections, .seconds = seconds, .warm_seconds = 0.2},
          a.request, r);
      a.rates.push_back(r.rate());
      a.p50.push_back(r.latency.quantile(0.5));
      a.p99.push_back(r.latency.quantile(0.99));
      if (r.other + r.broken > 0) fmt::print("{}: {} wrong answers\n", a.name, r.other + r.broken);
    }
  fmt::print("{:28}{:>12}{:>12}{:>12}{:>10}\n", "", "requests/s", "p50 us", "p99 us", "to echo");
  for (const Arm& a : arms)
    fmt::print("{:28}{:>12.0f}{:>12.0f}{:>12.0f}{:>10.2f}\n", a.name, median(a.rates),
               median(a.p50) * 1e6, median(a.p99) * 1e6, median(a.rates) / median(arms[0].rates));
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
double direct_rate(const std::string& file, int64_t rows, double seconds) {
  const auto model = serve::Servable::load(file, {.max_batch = rows});
  model->warm_up();
  const Tensor x = randn({rows, 784});
  int64_t n = 0;
  const auto begin = Clock::now();
  for (; seconds_since(begin) < seconds; ++n) model->run(0, {x}, rows);
  return static_cast<double>(n * rows) / seconds_since(begin);
}

void reload_under_load(const std::string& url, int reloads) {
  const serve::LoadRequest request = serve::v2_request(url, "mlp", 1, true);
  serve::LoadReport quiet, loaded;
  serve::run_load({.url = url, .connections = 4, .seconds = 2}, request, quiet);
  std::atomic<bool> done{false};
  int failed = 0;
  const double before = resident_mb();
  std::thread admin([&] {
    serve::HttpClient client{serve::HttpUrl(url)};
    for (int i = 0; i < reloads; ++i)
      failed += client.post("/v2/repository/models/mlp/load", "").status != 200;
    done = true;
  });
  uint64_t ok = 0, wrong = 0;
  std::vector<double> p99;
  while (!done) {
    serve::LoadReport r;
    serve::run_load({.url = url, .connections = 4, .seconds = 1, .warm_seconds = 0}, request, r);
    ok += r.ok;
    wrong += r.other + r.broken;
    p99.push_back(r.latency.quantile(0.99));
  }
  admin.join();
  fmt::print(
      "{} reloads under load: {} failed, {} requests, {} wrong; p99 quiet {:.2f} ms, median "
      "second {:.2f} ms, worst {:.2f} ms; resident {:.0f} -> {:.0f} MB\n",
      reloads, failed, ok, wrong, quiet.latency.quantile(0.99) * 1e3, median(p99) * 1e3,
      *std::max_element(p99.begin(), p99.end()) * 1e3, before, resident_mb());
}

serve::LoadRequest mirror(serve::LoadRequest r) {
  r.path = "/echo";
  return r;
}

void small_models(const OnCore0& echo, const OnCore0& server, double seconds) {
  const serve::LoadRequest small = serve::v2_request(server.url, "null", 1, true);
  std::vector<Arm> null{
      {"echo, 1 connection", echo.url, mirror(small), 1},
      {"null, binary", server.url, small, 1},
      {"null, JSON", server.url, serve::v2_request(server.url, "null", 1, false), 1}};
  measure(null, seconds, 5);
  std::vector<Arm> many{{"echo, 16 connections", echo.url, mirror(small), 16},
                        {"null, binary", server.url, small, 16}};
  measure(many, seconds, 5);
}

void large_input(const OnCore0& echo, const OnCore0& server, double seconds) {
  const serve::LoadRequest image = serve::v2_request(server.url, "image", 1, true);
  std::vector<Arm> large{{"echo, 602 kB", echo.url, mirror(image), 1},
                         {"602 kB through a model", server.url, image, 1}};
  measure(large, seconds, 5);
}

void batches(const OnCore0& server, const std::string& folder, double seconds) {
  std::vector<Arm> mlp{
      {"mlp, 1 connection", server.url, serve::v2_request(server.url, "mlp", 1, true), 1},
      {"mlp, 64 connections", server.url, serve::v2_request(server.url, "mlp", 1, true), 64}};
  {
    OnCore0 alone([&](OnCore0& at) { serve_models(at, folder, 1); });
    mlp.push_back({"mlp, 1, no batching", alone.url, mlp[0].request, 1});
    mlp.push_back({"mlp, 64, no batching", alone.url, mlp[0].request, 64});
    measure(mlp, seconds, 5);
  }
  std::thread([&] {
    stay_on(0);
    for (const int64_t rows : {1, 32})
      fmt::print("mlp called directly, batches of {}: {:.0f} rows/s\n", rows,
                 direct_rate(folder + "/mlp/1/model.onnx", rows, seconds));
  }).join();
}

int run(double seconds, const std::string& part) {
  init();
  set_num_threads(1);
  const std::string folder = fs::temp_directory_path() / fmt::format("bench-serve-{}", getpid());
  write_models(folder);
  stay_on(1);
  {
    OnCore0 echo(serve_echo), server([&](OnCore0&at) { serve_models(at, folder, 32); });
    fmt::print("resident: {:.0f} MB\n", resident_mb());
    const auto wanted = [&](const char* name) { return part.empty() || part == name; };
    if (wanted("small")) small_models(echo, server, seconds);
    if (wanted("grpc")) {
      bench_grpc(server.url, "null", seconds, 1, 5);
      bench_grpc(server.url, "null", seconds, 16, 5);
      bench_grpc(server.url, "image", seconds, 1, 3);
    }
    if (wanted("large")) large_input(echo, server, seconds);
    if (wanted("batches")) batches(server, folder, seconds);
    if (wanted("reloads")) reload_under_load(server.url, 1000);
  }
  remove_folder(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::stod(argv[1]) : 1, argc > 2 ? argv[2] : "");
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
