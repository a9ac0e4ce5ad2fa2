// SPDX-License-Identifier: Apache-2.0
// Counters and histograms in Prometheus's text format.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#include <fmt/format.h>

#include <fstream>

#include "tandem/serve/server_internal.h"

#include <unistd.h>

namespace tandem::serve {
namespace {

// Bounds of the histograms, in seconds.
constexpr double kBounds[] = {1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
                              0.01, 0.025,  0.05, 0.1,  0.25,   0.5,  1,    2.5,    10};

void family(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void histogram(std::string& out, std::string_view name, const std::string& labels,
               const Histogram& h) {
  for (const double bound : kBounds)
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, h.at_most(bound));
  out += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, h.count());
  out += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, h.sum(), name, labels,
                     h.count());
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::string labels_of(const ModelVersion& v) {
  return fmt::format("model=\"{}\",version=\"{}\"", v.name, v.version);
}

void process(std::string& out, ServerContext& server) {
  const HttpCounts h = server.counts();
  const auto one = [&out](std::string_view name, std::string_view type, std::string_view help,
                          double v) {
    family(out, name, type, help);
    out += fmt::format("{} {}\n", name, v);
  };
  one("tandem_http_connections_total", "counter", "Connections accepted.",
      static_cast<double>(h.accepted));
  one("tandem_http_connections", "gauge", "Connections that are open.",
      static_cast<double>(h.open));
  one("tandem_http_requests_total", "counter", "Complete HTTP requests.",
      static_cast<double>(h.requests));
  one("tandem_http_refused_total", "counter", "Requests that were broken, too large or too slow.",
      static_cast<double>(h.refused));
  one("tandem_http_dropped_total", "counter",
      "Connections closed because the client left, did not read, or made room.",
      static_cast<double>(h.dropped));
  one("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes());
}

}  // namespace

std::string metrics_text(ServerContext& server) {
  std::string out;
  process(out, server);
  const std::vector<ModelVersionPtr> all = server.repository.all();
  family(out, "tandem_requests_total", "counter",
         "Requests by what became of them; rejected ones met a full queue.");
  for (const ModelVersionPtr& v : all) {
    const JobCounts& c = v->scheduler->counts();
    const auto line = [&](const char* what, uint64_t n) {
      out += fmt::format("tandem_requests_total{{{},result=\"{}\"}} {}\n", labels_of(*v), what, n);
    };
    line("ok", c.ok);
    line("failed", c.failed);
    line("expired", c.expired);
    line("cancelled", c.cancelled);
    line("rejected", c.rejected);
  }
  family(out, "tandem_rows_total", "counter", "Rows that models ran on.");
  for (const ModelVersionPtr& v : all)
    out += fmt::format("tandem_rows_total{{{}}} {}\n", labels_of(*v), v->scheduler->counts().rows);
  family(out, "tandem_runs_total", "counter", "Runs of models: rows / runs is the mean batch.");
  for (const ModelVersionPtr& v : all)
    out += fmt::format("tandem_runs_total{{{}}} {}\n", labels_of(*v), v->scheduler->counts().runs);
  family(out, "tandem_queue_length", "gauge", "Requests that wait.");
  for (const ModelVersionPtr& v : all)
    out += fmt::format("tandem_queue_length{{{}}} {}\n", labels_of(*v), v->scheduler->waiting());
  family(out, "tandem_request_seconds", "histogram", "From acceptance to the answer.");
  for (const ModelVersionPtr& v : all)
    histogram(out, "tandem_request_seconds", labels_of(*v), v->scheduler->counts().total);
  family(out, "tandem_queue_seconds", "histogram", "Time before a request runs.");
  for (const ModelVersionPtr& v : all)
    histogram(out, "tandem_queue_seconds", labels_of(*v), v->scheduler->counts().queue);
  family(out, "tandem_compute_seconds", "histogram", "Time of a run of the model.");
  for (const ModelVersionPtr& v : all)
    histogram(out, "tandem_compute_seconds", labels_of(*v), v->scheduler->counts().compute);
  return out;
}

}  // namespace tandem::serve
