// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/server.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/serve/grpc/status.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/protocol/openai_internal.h"
#include "tandem/serve/server_internal.h"
#include "tandem/serve/shared_memory_internal.h"
#include "tandem/serve/trace.h"

namespace tandem::serve {

/// Runs tasks one after the other on a thread of its own.
class TaskThread {
 public:
  TaskThread() : thread_([this] { run(); }) {}
  ~TaskThread() {
    {
      const std::lock_guard hold(lock_);
      ends_ = true;
    }
    ready_.notify_one();
    thread_.join();
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  void post(std::function<void()> task) {
    {
      const std::lock_guard hold(lock_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

 private:
  void run() {
    std::unique_lock hold(lock_);
    for (;;) {
      ready_.wait(hold, [this] { return ends_ || !tasks_.empty(); });
      if (ends_) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      hold.unlock();
      task();
      hold.lock();
    }
  }
  std::mutex lock_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::thread thread_;
};

namespace {

bool is_loopback(std::string_view host) {
  if (host.starts_with('['))
    host = host.substr(1, host.find(']') - 1);
  else
    host = host.substr(0, host.find(':') == host.rfind(':') ? host.find(':') : host.size());
  const bool number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host == "::1" || (number && host.starts_with("127."));
}

// A page of another site that a browser on this machine shows must not reach a server that is open
// to this machine alone: browsers say where a page came from.
bool is_foreign(const HttpRequest& r) {
  const std::string* origin = r.header("origin");
  if (!origin) return false;
  const size_t scheme = origin->find("://");
  return scheme == std::string::npos || !is_loopback(std::string_view(*origin).substr(scheme + 3));
}

// What is said of regions holds for this process alone: it is not recorded.
bool is_shared_memory(const Call& call) {
  return call.path.size() > 1 && call.path[0] == "v2" && call.path[1].ends_with("sharedmemory");
}

bool is_of_same_host(const HttpRequest& r) {
  const std::string* origin = r.header("origin");
  const std::string* host = r.header("host");
  const size_t scheme = origin ? origin->find("://") : std::string::npos;
  return host && scheme != std::string::npos && origin->substr(scheme + 3) == *host;
}

void front_page(Call& call) {
  std::string text = "Tandem serves:\n";
  for (const ModelVersionPtr& v : call.server.repository.all())
    text += fmt::format("  {} version {} ({})\n", v->name, v->version, v->model->platform());
  text +=
      "\nPOST /v2/models/NAME/infer, /v1/models/NAME:predict, /predictions/NAME,\n"
      "     /v1/completions, /v1/chat/completions\n"
      "GET  /v2/health/ready, /v2/models/NAME, /metrics\n";
  call.answer({.content_type = "text/plain; charset=utf-8", .body = text});
}

void route(Call& call) {
  if (handle_page(call)) return;
  if (call.path.empty()) {
    if (asks_for_page(call.request())) refuse(404, "this server has no page");
    call.only("GET");
    return front_page(call);
  }
  if (call.path[0] == "metrics" && call.path.size() == 1) {
    call.only("GET");
    return call.answer({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_text(call.server)});
  }
  if (handle_predictions(call) || handle_openai(call) || handle_v2(call) || handle_tensorflow(call))
    return;
  refuse(404, "there is nothing at this path");
}

}  // namespace

void Call::answer(HttpResponse r) const {
  if (recorded) server.recorder->finish(*recorded, r.status, r.body);
  deflate_body(request(), r);
  exchange->answer(std::move(r));
}

HttpResponse Call::error_of(int status, std::string_view text) {
  HttpResponse r{.status = status};
  r.body = "{\"error\":";
  write_text(r.body, text);
  r.body += "}";
  if (status == 429 || status == 503) r.headers.emplace_back("Retry-After", "1");
  return r;
}

void Call::only(std::string_view method) const {
  if (is(method) || (method == "GET" && is("HEAD"))) return;
  throw Refusal{405, fmt::format("this path takes {} alone", method),
                method == "GET" ? "GET, HEAD" : std::string(method)};
}

ModelVersionPtr version_of(ServerContext& server, const std::string& name,
                           const std::string& version) {
  if (ModelVersionPtr v = server.repository.find(name, version)) return v;
  if (server.repository.versions(name).empty())
    refuse(404, "there is no model '{}'", one_line(name, 128));
  refuse(404, "model '{}' has no version '{}'", name, one_line(version, 32));
}

ModelVersionPtr picked_version(ServerContext& server, const std::string& name,
                               const std::string& version) {
  if (!version.empty()) return version_of(server, name, version);
  if (ModelVersionPtr v = server.repository.pick(name)) return v;
  return version_of(server, name);
}

ModelVersionPtr default_version(const Call& call) {
  if (!call.server.options.default_model.empty())
    return picked_version(call, call.server.options.default_model);
  std::string name;
  for (const ModelVersionPtr& v : call.server.repository.all()) {
    if (!name.empty() && v->name != name)
      refuse(400, "this path names no model and there are several; start with --default-model");
    name = v->name;
  }
  if (name.empty()) refuse(503, "no model is loaded");
  return picked_version(call, name);
}

int64_t check_inputs(const ModelVersion& v, const std::vector<Tensor>& inputs) {
  const std::vector<ModelPort>& ports = v.model->inputs();
  int64_t rows = -1;
  for (size_t i = 0; i < ports.size(); ++i) {
    const ModelPort& p = ports[i];
    const Tensor& x = inputs[i];
    bool fits = static_cast<size_t>(x.dim()) == p.shape.size();
    for (size_t d = 0; fits && d < p.shape.size(); ++d)
      fits = p.shape[d] < 0 || p.shape[d] == x.size(static_cast<int64_t>(d));
    if (!fits)
      refuse(400, "input '{}' expects the shape {}, got {}", p.name,
             recipe::shape_text(Shape(p.shape)), recipe::shape_text(x.shape()));
    if (p.shape.empty() || p.shape[0] >= 0) continue;
    if (rows >= 0 && x.size(0) != rows)
      refuse(400, "the inputs have {} and {} rows", rows, x.size(0));
    rows = x.size(0);
    if (rows == 0) refuse(400, "input '{}' has no rows", p.name);
  }
  return std::max<int64_t>(rows, 1);
}

namespace {

// Answers from the cache of a version, where it has one and the inputs are known. Else the answer
// will be kept.
bool answer_from_cache(const ModelVersionPtr& v, Job& job) {
  if (!v->cache) return false;
  const auto begin = Clock::now();
  if (auto outputs = v->cache->find(job.inputs)) {
    JobCounts& c = v->scheduler->counts();
    c.accepted.fetch_add(1, std::memory_order_relaxed);
    c.ok.fetch_add(1, std::memory_order_relaxed);
    c.total.add(seconds_since(begin));
    job.done({.outputs = std::move(*outputs), .kept = true});
    return true;
  }
  job.done = [v, inputs = job.inputs, done = std::move(job.done)](JobResult r) {
    if (r.status == 200) v->cache->put(inputs, r.outputs);
    done(std::move(r));
  };
  return false;
}

void run_step(const HttpExchangePtr& exchange, const ModelVersionPtr& v, Job job,
              const SequenceAsk& sequence) {
  if (sequence.id.empty())
    refuse(400,
           "inference request to model '{}' must specify a non-zero or non-empty correlation ID",
           v->name);
  if (job.rows != 1)
    refuse(400,
           "inference request to model '{}' must specify batch-size 1 due to requirements of "
           "sequence batcher",
           v->name);
  v->sequences->submit(v, sequence, std::move(job), exchange->on_loop());
}

}  // namespace

ModelVersionPtr version_of_step(const ModelVersionPtr& v, const SequenceAsk& sequence) {
  ModelVersionPtr began = v->sequences ? v->sequences->version_of(sequence) : nullptr;
  return began ? began : v;
}

void run_inputs(const HttpExchangePtr& exchange, const ModelVersionPtr& v,
                std::vector<Tensor> inputs, const RunTerms& terms,
                std::function<void(JobResult)> done) {
  if (!v->sequences && !terms.sequence.id.empty())
    refuse(400, "'sequence_id': model '{}' keeps no state between requests", v->name);
  if (exchange->trace || exchange->access)
    done = [v = v.get(), trace = exchange->trace, access = exchange->access,
            done = std::move(done)](JobResult r) {
      if (trace) trace->ran(v->name, v->version, r);
      if (access) access->ran(v->name, v->version, r);
      done(std::move(r));
    };
  Job job;
  job.rows = check_inputs(*v, inputs);
  job.inputs = std::move(inputs);
  job.timeout = terms.timeout > 0 ? terms.timeout : v->settings.timeout_ms / 1000;
  job.priority = priority_of(v->settings, terms.priority);
  job.gone = [e = exchange] { return e->gone(); };
  job.owner = v;
  if (v->traffic && v->traffic->shadow() && v->traffic->shadow() != v)
    // The client has its answer before the copy is made.
    job.done = [v, inputs = job.inputs, done = std::move(done)](const JobResult& r) {
      done(r);
      if (r.status == 200 && !r.kept) v->traffic->copy(inputs, r.outputs);
    };
  else
    job.done = std::move(done);
  if (v->sequences) return run_step(exchange, v, std::move(job), terms.sequence);
  if (answer_from_cache(v, job)) return;
  v->scheduler->submit(std::move(job), exchange->on_loop());
}

std::string timing_text(const JobResult& r) {
  using namespace std::string_view_literals;
  const auto microseconds = [](double s) { return std::to_string(std::llround(s * 1e6)); };
  std::string out;
  out.reserve(64);
  out.append("queue="sv).append(microseconds(r.queue_seconds)).append("us;compute="sv);
  out.append(microseconds(r.compute_seconds)).append("us;batch="sv).append(std::to_string(r.batch));
  if (r.kept) out.append(";cache=hit"sv);
  return out;
}

std::function<void(JobResult)> answer_with(const Call& call,
                                           std::function<HttpResponse(const JobResult&)> respond) {
  return [call = Call{call.exchange, call.server, {}, call.recorded},
          respond = std::move(respond)](const JobResult& r) {
    if (r.status != 200) return call.error(r.status, r.error);
    try {
      HttpResponse answer = respond(r);
      answer.headers.emplace_back("Tandem-Timing", timing_text(r));
      call.answer(std::move(answer));
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      call.error(refusal.status, refusal.text);
    }
  };
}

void infer(const Call& call, const ModelVersionPtr& v, std::vector<Tensor> inputs,
           const RunTerms& terms, std::function<HttpResponse(const JobResult&)> respond) {
  run_inputs(call.exchange, v, std::move(inputs), terms, answer_with(call, std::move(respond)));
}

struct Server::State {
  explicit State(ServerOptions o)
      : options(checked(std::move(o))),
        recorder(options.record.empty()
                     ? nullptr
                     : std::make_unique<Recorder>(options.record, options.record_bytes)),
        traces(options.traces.empty()
                   ? nullptr
                   : std::make_unique<TraceFile>(options.traces, options.traces_bytes)),
        access_log(options.access_log.path.empty()
                       ? nullptr
                       : std::make_unique<AccessLog>(options.access_log)),
        repository({.folder = options.models,
                    .defaults = options.defaults,
                    .links = options.links,
                    .from = options.from}),
        context{options,
                repository,
                [this] { return http->draining(); },
                [this] { return http->counts(); },
                [this] { return limited.load(); },
                recorder.get(),
                access_log.get(),
                shared_memory,
                [this](std::function<void()> task) { aside->post(std::move(task)); }} {
    repository.load_all();
    if (options.watch > 0) repository.watch(options.watch);
    options.http.reloaded = [this] {
      if (access_log) access_log->reopen();
      read_keys();
    };
    options.http.begun = [this](const HttpExchangePtr& e) { begin(e); };
    if (access_log)
      options.http.refused = [this](const HttpRequest& r, const HttpResponse& answer) {
        AccessRecord(r, *access_log).answer(answer, true, false, 0);
      };
    http = std::make_unique<HttpServer>(
        options.http, [this](const HttpExchangePtr& e) { handle(e); },
        [](int status, const std::string& reason) { return Call::error_of(status, reason); });
  }
  ~State() {
    http.reset();  // its workers may ask for work aside
    aside.reset();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static ServerOptions checked(ServerOptions o) {
    const bool alone = is_loopback(o.http.host);
    TD_CHECK(
        o.insecure || !o.keys.empty() || !o.http.tls.client_ca.empty() || alone, Value,
        "'{}' can be reached from other machines, and nobody is asked for a key\nGive "
        "--keys FILE, or --client-ca FILE, or --insecure if a firewall or a proxy guards it, or "
        "listen at 127.0.0.1.",
        o.http.host);
    if (!o.insecure && !alone && o.http.tls.empty())
      log_warning(
          "keys and data cross the network as they are: give --certificate FILE, or --insecure if "
          "what is in front of the server encrypts them");
    // Files are decoded, texts made tokens, and models loaded, beside the loop.
    o.http.beside = [vertex = o.predict_route](const HttpRequest& r) {
      static constexpr std::string_view kSlow[] = {
          "/predictions", "/invocations", "/v1/completions", "/v1/chat/", "/v1/embeddings"};
      const auto is_slow = [](std::string_view path) {
        return std::any_of(std::begin(kSlow), std::end(kSlow),
                           [&](std::string_view begin) { return path.starts_with(begin); });
      };
      if (!vertex.empty() && r.path == vertex) return true;
      if (r.path.find('%') == r.path.npos) return is_slow(r.path);
      const auto path = path_segments(r.path);  // an escape may hide the name
      return path && is_slow("/" + fmt::format("{}", fmt::join(*path, "/")));
    };
    o.http.streamed = is_grpc_streamed;
    return o;
  }

  std::shared_ptr<const ApiKeys> keys_now() const {
    const std::lock_guard hold(keys_lock);
    return keys;
  }
  void read_keys() {
    if (options.keys_file.empty()) return;
    const auto fresh = std::make_shared<ApiKeys>(options.keys_file);
    const std::lock_guard hold(keys_lock);
    if (keys) fresh->keep_rates(*keys);
    keys = fresh;
  }
  // 401 or 403 for who may not do it, 429 for who does it too often; `wait` is in seconds.
  static void refuse_key(const HttpExchangePtr& e, int status, double wait) {
    const std::string_view text = status == 401   ? "a key is needed: Authorization: Bearer KEY"
                                  : status == 403 ? "the key does not allow this"
                                                  : "the key allows no more requests at this rate";
    if (is_grpc(e->request)) return e->answer(grpc_error(status, text));
    HttpResponse r =
        e->request.path.starts_with("/v1/chat/") || e->request.path.starts_with("/v1/completions")
            ? openai_error(status, text)
            : Call::error_of(status, text);
    if (status == 401) r.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (status == 429) {
      std::erase_if(r.headers, [](const auto& h) { return h.first == "Retry-After"; });
      r.headers.emplace_back("Retry-After", fmt::format("{:.0f}", std::ceil(wait)));
    }
    e->answer(std::move(r));
  }

  // What belongs to a trace, or begins one where traces are written, and the line of the log.
  void begin(const HttpExchangePtr& e) {
    const auto asked = trace_context(e->request);
    const bool begins = traces && !asked && e->request.method == "POST" &&
                        scope_of(e->request, options.health_route) == KeyScope::infer;
    if (asked || begins) e->trace = std::make_shared<RequestTrace>(e->request, asked, traces.get());
    if (access_log) e->access = std::make_shared<AccessRecord>(e->request, *access_log);
    if (e->access && e->trace) e->access->traced(e->trace->id());
    if (!e->access && !e->trace) return;
    e->on_answer = [exchange = e.get()](HttpResponse& piece, bool last) {
      if (exchange->trace) exchange->trace->answer(piece, last);
      if (exchange->access)
        exchange->access->answer(piece, last, exchange->gone(), exchange->received.load());
    };
  }

  void handle(const HttpExchangePtr& e) {
    const HttpRequest& r = e->request;
    const std::shared_ptr<const ApiKeys> known = keys_now();
    // A page that this server itself sent may ask under any name that it has, if it has a key:
    // names alone do not tell (a foreign name may be made to lead to this machine).
    const bool foreign =
        !options.insecure && is_foreign(r) && (known->empty() || !is_of_same_host(r));
    if (!known->empty()) {
      double wait = 0;
      const int status = known->check(r, scope_of(r, options.health_route), &wait);
      if (status == 429) limited.fetch_add(1, std::memory_order_relaxed);
      if (status != 0) return refuse_key(e, status, wait);
    }
    if (is_grpc(r) && !foreign) return handle_grpc(e, context);
    Call call{e, context, {}, {}};
    try {
      if (foreign) refuse(403, "pages of other sites are not answered");
      std::string reason;
      if (const int status = inflate_body(e->request, options.http.limits, reason))
        refuse(status, "{}", reason);
      if (r.header("content-encoding") && !e->hold(r.body.size())) refuse_held();
      auto path = path_segments(r.path);
      if (!path) refuse(404, "there is nothing at this path");
      call.path = std::move(*path);
      if (recorder && r.method == "POST" && !is_shared_memory(call) &&
          scope_of(r, options.health_route) == KeyScope::infer)
        call.recorded = recorder->begin(e->request);
      route(call);
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      HttpResponse r = Call::error_of(refusal.status, refusal.text);
      if (!refusal.allow.empty()) r.headers.emplace_back("Allow", refusal.allow);
      call.answer(std::move(r));
    }
  }

  ServerOptions options;
  std::atomic<uint64_t> limited{0};
  mutable std::mutex keys_lock;
  std::shared_ptr<const ApiKeys> keys = std::make_shared<const ApiKeys>(options.keys);
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<TraceFile> traces;
  std::unique_ptr<AccessLog> access_log;
  SharedMemory shared_memory{options.shared_memory};
  Repository repository;
  ServerContext context;
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<TaskThread> aside = std::make_unique<TaskThread>();
};

Server::Server(ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Server::~Server() = default;
void Server::run() { state_->http->run(); }
void Server::drain(double delay, double wait) noexcept { state_->http->drain(delay, wait); }
void Server::reload() noexcept { state_->http->reload(); }
int Server::port() const { return state_->http->port(); }
std::string Server::url() const { return state_->http->url(); }
Repository& Server::repository() { return state_->repository; }
std::string Server::metrics() const { return metrics_text(state_->context); }

}  // namespace tandem::serve
