// SPDX-License-Identifier: Apache-2.0
// Counters and histograms in Prometheus's text format.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>

#include "tandem/serve/model/ensemble.h"
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
  one("tandem_rate_limited_total", "counter", "Requests beyond the rate of their API key.",
      static_cast<double>(server.limited()));
  if (server.access_log)
    one("tandem_access_log_lost_total", "counter", "Lines of the access log that were not written.",
        static_cast<double>(server.access_log->lost()));
  one("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes());
}

// Versions that are tried: canaries and shadows.
void tried(std::string& out, const std::vector<ModelVersionPtr>& all) {
  std::vector<ModelVersionPtr> canaries, shadows;
  for (const ModelVersionPtr& v : all) {
    if (!v->traffic) continue;
    if (v->version == v->settings.canary.version) canaries.push_back(v);
    if (v->version == v->settings.shadow) shadows.push_back(v);
  }
  if (!canaries.empty())
    family(out, "tandem_canary_share", "gauge",
           "The part of the requests that a canary gets; 0 after it was taken back.");
  for (const ModelVersionPtr& v : canaries)
    out += fmt::format("tandem_canary_share{{{}}} {}\n", labels_of(*v), v->traffic->share());
  if (shadows.empty()) return;
  family(out, "tandem_shadow_total", "counter", "Copies for a shadow by what came of them.");
  for (const ModelVersionPtr& v : shadows) {
    const ShadowCounts& c = v->traffic->shadow_counts();
    const auto line = [&](const char* what, uint64_t n) {
      out += fmt::format("tandem_shadow_total{{{},result=\"{}\"}} {}\n", labels_of(*v), what, n);
    };
    line("equal", c.equal);
    line("different", c.different);
    line("failed", c.failed);
    line("skipped", c.skipped);
  }
  family(out, "tandem_shadow_difference", "gauge",
         "The largest difference of a number between a shadow's answers and those given.");
  for (const ModelVersionPtr& v : shadows) {
    const double d = v->traffic->shadow_counts().difference.load();
    out += fmt::format("tandem_shadow_difference{{{}}} {}\n", labels_of(*v),
                       std::isinf(d) ? "+Inf" : fmt::format("{}", d));
  }
}

// Of language models.
void texts(std::string& out, const std::vector<ModelVersionPtr>& all) {
  std::vector<ModelVersionPtr> of;
  for (const ModelVersionPtr& v : all)
    if (v->text) of.push_back(v);
  if (of.empty()) return;
  family(out, "tandem_texts_total", "counter", "Texts by what became of them.");
  for (const ModelVersionPtr& v : of) {
    const TextCounts& c = v->text->engine.counts();
    const auto line = [&](const char* what, uint64_t n) {
      out += fmt::format("tandem_texts_total{{{},result=\"{}\"}} {}\n", labels_of(*v), what, n);
    };
    line("ok", c.ok);
    line("failed", c.failed);
    line("cancelled", c.cancelled);
    line("rejected", c.rejected + c.displaced);
  }
  family(out, "tandem_tokens_total", "counter",
         "Tokens read, found in the cache and generated; tokens guessed, and guesses accepted.");
  for (const ModelVersionPtr& v : of) {
    const TextCounts& c = v->text->engine.counts();
    const auto line = [&](const char* kind, uint64_t n) {
      out += fmt::format("tandem_tokens_total{{{},kind=\"{}\"}} {}\n", labels_of(*v), kind, n);
    };
    line("prompt", c.prompt_tokens);
    line("shared", c.shared_tokens);
    line("new", c.new_tokens);
    line("drafted", c.drafted_tokens);
    line("accepted", c.accepted_tokens);
  }
  const auto gauge = [&](const char* name, const char* help, const auto& value) {
    family(out, name, "gauge", help);
    for (const ModelVersionPtr& v : of)
      out += fmt::format("{}{{{}}} {}\n", name, labels_of(*v), value(v->text->engine));
  };
  gauge("tandem_texts_running", "Texts that grow.",
        [](TextEngine& e) { return e.counts().running.load(); });
  gauge("tandem_texts_waiting", "Texts that wait.",
        [](TextEngine& e) { return e.counts().waiting.load(); });
  gauge("tandem_cache_usage", "The part of the cache's blocks that texts hold.", [](TextEngine& e) {
    return static_cast<double>(e.counts().blocks_held.load()) / static_cast<double>(e.blocks());
  });
  family(out, "tandem_first_token_seconds", "histogram", "From acceptance to the first token.");
  for (const ModelVersionPtr& v : of)
    histogram(out, "tandem_first_token_seconds", labels_of(*v),
              v->text->engine.counts().first_token);
  family(out, "tandem_token_seconds", "histogram", "From one token to the next.");
  for (const ModelVersionPtr& v : of)
    histogram(out, "tandem_token_seconds", labels_of(*v), v->text->engine.counts().between_tokens);
}

// Of versions whose answers are kept.
void caches(std::string& out, const std::vector<ModelVersionPtr>& all) {
  std::vector<ModelVersionPtr> of;
  for (const ModelVersionPtr& v : all)
    if (v->cache) of.push_back(v);
  if (of.empty()) return;
  family(out, "tandem_response_cache_total", "counter",
         "Requests that were answered before, that were not, and answers that made room.");
  for (const ModelVersionPtr& v : of) {
    const auto line = [&](const char* what, uint64_t n) {
      out += fmt::format("tandem_response_cache_total{{{},result=\"{}\"}} {}\n", labels_of(*v),
                         what, n);
    };
    line("hit", v->cache->hits().count());
    line("miss", v->cache->misses().count());
    line("evicted", v->cache->evicted());
  }
  family(out, "tandem_response_cache_bytes", "gauge", "What kept answers and their inputs take.");
  for (const ModelVersionPtr& v : of)
    out += fmt::format("tandem_response_cache_bytes{{{}}} {}\n", labels_of(*v), v->cache->bytes());
}

// Of models with state; all versions of one have them together.
void sequences(std::string& out, const std::vector<ModelVersionPtr>& all) {
  std::map<std::string, const SequenceCounts*> of;
  for (const ModelVersionPtr& v : all)
    if (v->sequences) of[v->name] = &v->sequences->counts();
  if (of.empty()) return;
  family(out, "tandem_sequences", "gauge", "Sequences whose state is kept.");
  for (const auto& [name, counts] : of)
    out += fmt::format("tandem_sequences{{model=\"{}\"}} {}\n", name, counts->open);
  family(out, "tandem_sequences_total", "counter",
         "Sequences that began, ended and were idle for too long; steps that were refused.");
  for (const auto& [name, counts] : of) {
    const auto line = [&, &name = name](const char* what, uint64_t n) {
      out +=
          fmt::format("tandem_sequences_total{{model=\"{}\",result=\"{}\"}} {}\n", name, what, n);
    };
    line("started", counts->started);
    line("ended", counts->ended);
    line("idle", counts->expired);
    line("refused", counts->refused);
  }
}

void ensembles(std::string& out, const std::vector<ModelVersionPtr>& all) {
  std::string seconds, failed;
  for (const ModelVersionPtr& v : all) {
    if (!v->model->ensemble()) continue;
    size_t number = 0;
    for (const auto& step : v->model->ensemble()->steps()) {
      const std::string labels = fmt::format("ensemble=\"{}\",step=\"{}\",{}", v->name, ++number,
                                             labels_of(*step->version));
      histogram(seconds, "tandem_ensemble_step_seconds", labels, step->seconds);
      failed += fmt::format("tandem_ensemble_step_failures_total{{{}}} {}\n", labels, step->failed);
    }
  }
  if (seconds.empty()) return;
  family(out, "tandem_ensemble_step_seconds", "histogram",
         "Time of a step of an ensemble, with the wait for its model.");
  out += seconds;
  family(out, "tandem_ensemble_step_failures_total", "counter", "Steps that failed.");
  out += failed;
}

}  // namespace

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

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
    line("rejected", c.rejected + c.displaced);
  }
  tried(out, all);
  caches(out, all);
  sequences(out, all);
  ensembles(out, all);
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
  texts(out, all);
  return out;
}

}  // namespace tandem::serve
