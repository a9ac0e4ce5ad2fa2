// SPDX-License-Identifier: Apache-2.0
// `tandem bench-serve URL`: load tests in any protocol, sweeps of rates, recorded requests again.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/commands_internal.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/init.h"
#include "tandem/serve/load_test.h"
#include "tandem/serve/record.h"

namespace tandem::cli {
namespace {

struct BenchServeOptions {
  serve::LoadOptions load = {.connections = 0};  ///< 0: not given
  serve::LoadModel model;
  std::string protocol = "v2", path = "/v2/health/live", body, type = "application/json";
  int closed = 0;
  bool text_form = false, as_json = false;
  std::string sweep, page;
  double most_p99_ms = 10;
  std::string replay;
  serve::ReplayOptions again;
};

// Recorded requests once more: 3 where answers are to be compared and differ.
int replay_requests(BenchServeOptions o) {
  o.again.url = o.load.url;
  if (o.load.connections > 0) o.again.connections = o.load.connections;
  o.again.key = o.model.key;
  const std::vector<serve::RecordedRequest> requests = serve::read_recorded(o.replay);
  TD_CHECK(!requests.empty(), Format, "'{}' holds no requests", o.replay);
  serve::ReplayReport report;
  serve::replay(o.again, requests, report);
  if (o.as_json)
    fmt::print("{}\n", report.json());
  else
    fmt::print("{}", report.text());
  if (report.different > 0) return 3;
  return report.broken > 0 || (!o.again.compare && report.other > 0) ? 1 : 0;
}

// What is asked: a model, a file that is posted, or a path.
serve::LoadRequest bench_request(BenchServeOptions& o) {
  if (!o.model.name.empty()) {
    const std::vector<std::string>& all = serve::load_protocols();
    const auto at = std::find(all.begin(), all.end(), o.text_form ? "v2-json" : o.protocol);
    o.model.protocol = static_cast<serve::LoadProtocol>(at - all.begin());
    return serve::load_request(o.load.url, o.model);
  }
  serve::LoadRequest out{.path = o.path};
  if (!o.body.empty()) {
    out.method = "POST";
    out.body = read_file(o.body);
    out.headers.emplace_back("Content-Type", o.type);
  }
  if (!o.model.key.empty()) out.headers.emplace_back("Authorization", "Bearer " + o.model.key);
  return out;
}

std::vector<double> rates_of(const std::string& text) {
  std::vector<double> out;
  if (text == "auto") return out;
  for (const std::string& word : CLI::detail::split(text, ',')) {
    char* end = nullptr;
    out.push_back(std::strtod(word.c_str(), &end));
    TD_CHECK(!word.empty() && *end == 0 && out.back() > 0, Value,
             "--sweep: '{}' is not a rate above 0\nGive rates as 500,1000,2000, or auto.", word);
  }
  return out;
}

// 3 where no rate is within the bound.
int sweep_rates(const BenchServeOptions& o, const serve::LoadRequest& request) {
  const serve::SweepReport report = serve::sweep_load(
      {.load = o.load, .rates = rates_of(o.sweep), .most_p99 = o.most_p99_ms / 1e3}, request,
      [](const serve::SweepPoint& p) {
        fmt::print(stderr, "{:.0f}/s: p50 {:.3f} ms, p99 {:.3f} ms{}\n", p.rate, p.p50 * 1e3,
                   p.p99 * 1e3, p.within ? "" : ", beyond the bound");
      });
  if (o.as_json)
    fmt::print("{}\n", report.json());
  else
    fmt::print("{}", report.text());
  if (!o.page.empty()) {
    const std::string what = o.model.name.empty() ? request.path : o.model.name;
    write_file(o.page, report.html("Load: " + what,
                                   {{"Server", o.load.url},
                                    {"Request", request.method + " " + request.path},
                                    {"Protocol", o.model.name.empty() ? "HTTP" : o.protocol},
                                    {"Connections", std::to_string(o.load.connections)},
                                    {"Seconds of a rate", fmt::format("{:g}", o.load.seconds)}}));
    fmt::print(stderr, "wrote {}\n", o.page);
  }
  return report.best() > 0 ? 0 : 3;
}

int bench_serve(BenchServeOptions o) {
  if (!o.replay.empty()) return replay_requests(o);
  o.load.connections = std::max({o.load.connections, o.closed, 1});
  const serve::LoadRequest request = bench_request(o);
  if (!o.sweep.empty()) return sweep_rates(o, request);
  serve::LoadReport report;
  serve::run_load(o.load, request, report);
  if (o.as_json)
    fmt::print("{}\n", report.json());
  else
    fmt::print("{}", report.text());
  return report.good() ? 0 : 1;
}

void add_requests(CLI::App& verb, BenchServeOptions& o) {
  verb.add_option("--model", o.model.name, "Ask this model, with random numbers or a prompt");
  verb.add_option("--protocol", o.protocol,
                  "v2 (tensors as bytes), v2-json, grpc (V2), tensorflow, tensorflow-grpc "
                  "(TensorFlow Serving's predict), completions, chat (OpenAI's, as events)")
      ->check(CLI::IsMember(serve::load_protocols()));
  verb.add_flag("--text", o.text_form, "As --protocol v2-json");
  verb.add_option("--rows", o.model.rows, "Rows of a request (1)");
  verb.add_option("--prompt", o.model.prompt,
                  "Of texts; the request's number is put in front of it");
  verb.add_option("--tokens", o.model.tokens, "Of texts: tokens at most (64)");
  verb.add_option("--path", o.path, "Without --model: GET this path (/v2/health/live)");
  verb.add_option("--body", o.body, "With --path: a file that is posted there");
  verb.add_option("--type", o.type, "Of --body: its content type (application/json)");
  verb.add_option("--key", o.model.key, "An API key");
}

void add_load(CLI::App& verb, BenchServeOptions& o) {
  auto* closed = verb.add_option(
      "--closed", o.closed, "Closed loop with N connections, as wrk: --connections N, no --rate");
  verb.add_option("--connections", o.load.connections, "Connections (1; of --replay 8)")
      ->excludes(closed);
  verb.add_option("--streams", o.load.streams, "Over HTTP/2: requests at a time, each connection");
  verb.add_flag("--http2", o.load.http2, "HTTP/2 with prior knowledge, as gRPC always has it");
  auto* rate = verb.add_option("--rate", o.load.rate, "Requests a second; 0: closed loop");
  rate->excludes(closed);
  verb.add_option("--seconds", o.load.seconds, "Time that is measured (5), of each rate")
      ->check(CLI::PositiveNumber);
  verb.add_option("--patience", o.load.patience, "Seconds after it for the last answers (5)")
      ->check(CLI::NonNegativeNumber);
  auto* sweep = verb.add_option(
      "--sweep", o.sweep,
      "Open loops at these rates (500,1000,2000), or auto: looks for the highest rate "
      "whose p99 is within --p99-ms");
  sweep->excludes(closed)->excludes(rate);
  verb.add_option("--p99-ms", o.most_p99_ms, "Of --sweep: the bound (10)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--page", o.page, "Of --sweep: write a page with the latencies over the rate")
      ->needs(sweep);
}

}  // namespace

void add_bench_serve(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "bench-serve",
      "Measure a server's rate and latency\n\n"
      "  tandem bench-serve http://127.0.0.1:8000 --model mlp --closed 8\n"
      "  tandem bench-serve http://127.0.0.1:8000 --model mlp --connections 64 --rate 5000 "
      "--json\n"
      "  tandem bench-serve http://127.0.0.1:8000 --model gpt2 --protocol completions --closed 4\n"
      "  tandem bench-serve http://127.0.0.1:8000 --model mlp --sweep auto --connections 64 "
      "--page load.html\n"
      "  tandem bench-serve http://127.0.0.1:8000 --replay requests.rec --compare\n\n"
      "With --rate latency counts from when a request was due (open loop), without it each "
      "connection waits for its answer (closed loop). Exit code 1: a request has no good answer; "
      "3: no rate of a sweep is within the bound, or answers differ from recorded ones");
  auto o = std::make_shared<BenchServeOptions>();
  verb->add_option("url", o->load.url, "http://HOST:PORT")->required();
  add_requests(*verb, *o);
  add_load(*verb, *o);
  verb->add_option("--replay", o->replay,
                   "Send what `tandem serve --record FILE` wrote, with the time between requests");
  verb->add_option("--speed", o->again.speed, "Of --replay: 2 in half the time; 0: at once (1)");
  verb->add_flag("--compare", o->again.compare, "Of --replay: answers with those recorded");
  verb->add_flag("--json", o->as_json, "The report as JSON");
  verb->callback([&code, o] {
    init();
    code = bench_serve(*o);
  });
}

}  // namespace tandem::cli
