// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/preempt.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/failures_internal.h"
#include "tandem/base/log.h"
#include "tandem/train/http_request.h"
#include "tandem/train/run_state.h"

namespace tandem::train {

// What a cloud's address is asked with. Named outside, since PreemptGuard::Watch holds one.
struct PreemptQuestion {
  std::string url, token_url;
  std::vector<std::pair<std::string, std::string>> headers;
  double deadline = 30;
};

namespace {

std::atomic<int64_t> g_notice{0};  // nanoseconds of the steady clock; 0: none
std::atomic<double> g_deadline{30};

int64_t steady_now() {  // what a signal's handler may call
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}
void notice() {
  int64_t none = 0;
  g_notice.compare_exchange_strong(none, steady_now());
  request_stop();
}
void notice_signal(int) { notice(); }

PreemptQuestion question_of(const PreemptOptions& o) {
  PreemptQuestion q{.url = o.url, .headers = o.headers};
  if (o.url == "aws") {
    q.url = "http://169.254.169.254/latest/meta-data/spot/instance-action";
    q.token_url = "http://169.254.169.254/latest/api/token";
    q.deadline = 120;
  } else if (o.url == "gcp") {
    q.url = "http://metadata.google.internal/computeMetadata/v1/instance/preempted";
    q.headers.emplace_back("Metadata-Flavor", "Google");
  }
  if (o.deadline > 0) q.deadline = o.deadline;
  TD_CHECK(q.url.empty() || q.url.starts_with("http://"), Value,
           "a preemption address is 'aws', 'gcp' or http://host[:port]/path, got '{}'", o.url);
  return q;
}

bool says_so(const HttpReply& r) {
  if (r.status != 200) return false;
  std::string text = r.body;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text != "FALSE" && text != "NONE" && text != "false";
}

}  // namespace

struct PreemptGuard::Watch {
  PreemptQuestion question;
  double every;
  int signal = 0;
  struct sigaction old {};
  std::thread thread;
  std::mutex lock;
  std::condition_variable wake;
  bool end = false;

  // AWS wants a token of its own kind where version 2 of the service is demanded.
  void fetch_token() {
    try {
      const HttpReply r =
          http_request({.method = "PUT",
                        .url = question.token_url,
                        .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}},
                        .seconds = 1});
      std::erase_if(question.headers,
                    [](const auto& h) { return h.first == "X-aws-ec2-metadata-token"; });
      if (r.status == 200) question.headers.emplace_back("X-aws-ec2-metadata-token", r.body);
    } catch (const Error&) {  // then it is asked without
    }
  }
  void run() {
    bool told = false;
    if (!question.token_url.empty()) fetch_token();
    for (std::unique_lock hold(lock); !end;) {
      hold.unlock();
      try {
        const HttpReply r =
            http_request({.url = question.url, .headers = question.headers, .seconds = 2});
        if (says_so(r)) return notice();
        if (r.status == 401 && !question.token_url.empty()) fetch_token();
      } catch (const Error& e) {
        if (!told) log_warning("no word about preemption: {}", e.what());
        told = true;
      }
      hold.lock();
      wake.wait_for(hold, std::chrono::duration<double>(every), [&] { return end; });
    }
  }
};

PreemptGuard::PreemptGuard(const PreemptOptions& o) : watch_(std::make_unique<Watch>()) {
  watch_->question = question_of(o);
  watch_->every = std::max(o.every, 0.01);
  g_notice = 0;
  g_deadline = watch_->question.deadline;
  if (o.signal != 0) {
    struct sigaction action {};
    action.sa_handler = notice_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    TD_CHECK(::sigaction(o.signal, &action, &watch_->old) == 0, Value,
             "signal {} cannot be caught\nUSR1 is a good choice.", o.signal);
    watch_->signal = o.signal;
  }
  if (!watch_->question.url.empty())
    watch_->thread = start_thread("word about preemption", [w = watch_.get()] { w->run(); });
}

PreemptGuard::~PreemptGuard() {
  if (watch_->thread.joinable()) {
    {
      const std::lock_guard hold(watch_->lock);
      watch_->end = true;
    }
    watch_->wake.notify_all();
    watch_->thread.join();
  }
  if (watch_->signal != 0) ::sigaction(watch_->signal, &watch_->old, nullptr);
  g_notice = 0;
}

bool preempted() { return g_notice.load() != 0; }
double preempt_seconds_left() {
  const int64_t at = g_notice.load();
  if (at == 0) return INFINITY;
  return g_deadline.load() - static_cast<double>(steady_now() - at) * 1e-9;
}
std::string stop_reason() {
  return preempted()     ? "preempted"
         : stop_signal() ? fmt::format("signal {}", stop_signal())
                         : "asked to stop";
}
void say_if_late() {
  if (preempted() && preempt_seconds_left() < 0)
    log_warning("the state was saved {:.1f} s after the notice's deadline",
                -preempt_seconds_left());
}
int signal_of(const std::string& name) {
  const std::string n = name.starts_with("SIG") ? name.substr(3) : name;
  return n == "USR1"   ? SIGUSR1
         : n == "USR2" ? SIGUSR2
         : n == "HUP"  ? SIGHUP
         : n == "TERM" ? SIGTERM
                       : 0;
}

std::string signal_name(int signal) {
  for (const char* name : {"USR1", "USR2", "HUP", "TERM"})
    if (signal != 0 && signal_of(name) == signal) return name;
  return "";
}

namespace detail {

int preempt_signal(const std::string& name) {
  const int signal = name.empty() ? 0 : signal_of(name);
  TD_CHECK(name.empty() || signal != 0, Value,
           "preempt_signal expects USR1, USR2, HUP or TERM, got '{}'", name);
  return signal;
}

void check_preempt_url(const std::string& url) {
  TD_CHECK(url.empty() || url == "aws" || url == "gcp" || url.starts_with("http://"), Value,
           "preempt_url expects aws, gcp or http://..., got '{}'", url);
}

}  // namespace detail

}  // namespace tandem::train
