// SPDX-License-Identifier: Apache-2.0
// The background thread starts with the first request and never ends; its state is never
// destroyed. After a fork the child has no such thread: it asks for nothing.
#include "tandem/codegen/jit.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/base/failures_internal.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/log.h"
#include "tandem/base/parallel.h"

namespace tandem::codegen {
namespace {

thread_local int scopes = 0;
std::atomic<bool> in_use{true};

/// Loops of one translation unit: enough to share the compiler's start, few enough not to wait.
constexpr size_t kUnit = 12;

bool turned_off() {
  const char* v = std::getenv("TANDEM_JIT");
  return v && (std::strcmp(v, "0") == 0 || std::strcmp(v, "off") == 0);
}

class Queue {
 public:
  // The code of a text; a new one waits for the compiler.
  JitCode* find_or_add(const std::string& text);
  void install(JitCompiler* c) {
    std::lock_guard hold(lock_);
    compiler_ = c;
  }
  bool wait(double seconds);
  std::string compile_alone(JitSource& source);
  JitStats stats();
  void count(bool equal) {
    std::lock_guard hold(lock_);
    ++(equal ? stats_.accepted : stats_.differed);
  }

 private:
  void work();
  void run_unit(JitCompiler* compiler, const std::vector<JitCode*>& unit);
  void note(const std::string& problem);

  std::mutex lock_;
  std::mutex compiling_;  // one call of the compiler at a time; never taken inside lock_
  std::condition_variable more_, done_;
  std::unordered_map<std::string_view, std::unique_ptr<JitCode>> codes_;  // by their text
  std::deque<JitCode*> waiting_;
  JitStats stats_;
  JitCompiler* compiler_ = nullptr;
  pid_t owner_ = 0;  // of the thread
  bool busy_ = false;
  int notes_ = 0;
};

Queue& queue() {
  static Queue* q = new Queue;
  return *q;
}

// No request comes twice for a plan that holds this.
JitCode* never() {
  static JitCode* code = [] {
    auto* c = new JitCode("", "");
    c->state = JitCode::dropped;
    return c;
  }();
  return code;
}

JitCode* Queue::find_or_add(const std::string& text) {
  const pid_t self = getpid();
  std::lock_guard hold(lock_);
  if (const auto it = codes_.find(text); it != codes_.end()) return it->second.get();
  if (!compiler_ || (owner_ && owner_ != self)) return nullptr;
  const uint64_t h = hash_string(text);
  auto code = std::make_unique<JitCode>(fmt::format("td_{:016x}_{}", h, text.size()), text);
  JitCode* c = code.get();
  codes_.emplace(c->text, std::move(code));
  ++stats_.requested;
  waiting_.push_back(c);
  if (!owner_) {
    try {
      start_thread("the compiler of loops", [this] { work(); }).detach();
    } catch (const Error& e) {  // loops run interpreted
      compiler_ = nullptr;
      waiting_.clear();
      note(e.what());
      return nullptr;
    }
    owner_ = self;
  }
  more_.notify_one();
  return c;
}

void Queue::work() {
  SerialGuard serial;
#if defined(__linux__)
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
#endif
  std::unique_lock hold(lock_);
  for (;;) {
    more_.wait(hold, [&] { return !waiting_.empty(); });
    busy_ = true;
    if (waiting_.size() < kUnit) {  // a first run asks for many in a row
      hold.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      hold.lock();
    }
    std::vector<JitCode*> unit;
    while (!waiting_.empty() && unit.size() < kUnit) {
      unit.push_back(waiting_.front());
      waiting_.pop_front();
    }
    JitCompiler* compiler = compiler_;
    hold.unlock();
    run_unit(compiler, unit);
    hold.lock();
    busy_ = false;
    if (waiting_.empty()) done_.notify_all();
  }
}

void Queue::run_unit(JitCompiler* compiler, const std::vector<JitCode*>& unit) {
  std::vector<JitSource> sources;
  for (const JitCode* c : unit) sources.push_back({c->name, c->text});
  std::string problem;
  if (compiler) {
    std::lock_guard alone(compiling_);
    problem = compiler->compile(sources);
  }
  std::lock_guard hold(lock_);
  for (size_t k = 0; k < unit.size(); ++k) {
    const JitSource& s = sources[k];
    ++(!s.code ? stats_.failed : s.cached ? stats_.cached : stats_.compiled);
    unit[k]->code = s.code;
    unit[k]->state.store(s.code ? JitCode::candidate : JitCode::dropped, std::memory_order_release);
  }
  if (!problem.empty()) note(problem);
}

std::string Queue::compile_alone(JitSource& source) {
  JitCompiler* compiler;
  {
    std::lock_guard hold(lock_);
    compiler = compiler_;
  }
  if (!compiler) return "no backend has installed a compiler: call tandem::init() first";
  std::lock_guard alone(compiling_);
  const std::string problem = compiler->compile_alone(source);
  if (source.code) return "";
  return problem.empty() ? "there is no C compiler (cc, gcc, clang or TANDEM_CC)" : problem;
}

void Queue::note(const std::string& problem) {
  if (stats_.problem.empty()) stats_.problem = problem;
  if (++notes_ <= 3) log_warning("compiled loops: {}", problem);
}

bool Queue::wait(double seconds) {
  const pid_t self = getpid();
  std::unique_lock hold(lock_);
  if (owner_ != self) return true;
  return done_.wait_for(hold, std::chrono::duration<double>(seconds),
                        [&] { return waiting_.empty() && !busy_; });
}

JitStats Queue::stats() {
  JitCompiler* c;
  JitStats s;
  {
    std::lock_guard hold(lock_);
    s = stats_;
    c = compiler_;
  }
  if (c) {
    s.compiler = c->compiler();
    s.cache = c->cache();
  }
  s.on = c && !turned_off() && !c->is_off();
  return s;
}

}  // namespace

JitScope::JitScope() { ++scopes; }
JitScope::~JitScope() { --scopes; }
bool jit_wanted() { return scopes > 0 && jit_in_use(); }

void set_jit_compiler(JitCompiler* compiler) { queue().install(compiler); }

void use_jit(bool on) { in_use = on; }
bool jit_in_use() { return in_use.load(std::memory_order_relaxed); }

void request_jit(const TilePlan& plan) {
  request_jit(plan.jit, worth_compiling(plan) ? emit_c(plan, "TDM_NAME") : "");
}

void request_jit(const JitSlot& slot, const std::string& text) {
  static const bool off = turned_off();
  JitCode* code = off || text.empty() ? never() : queue().find_or_add(text);
  if (!code) code = never();
  JitCode* none = nullptr;
  slot.code.compare_exchange_strong(none, code, std::memory_order_release);
}

std::string compile_now(JitSource& source) { return queue().compile_alone(source); }

void jit_checked(JitCode& code, bool equal) {
  queue().count(equal);
  if (!equal)
    log_warning("a compiled loop gave other bits than the interpreter and is dropped:\n{}",
                code.text);
}

}  // namespace tandem::codegen

namespace tandem {

JitStats jit_stats() { return codegen::queue().stats(); }
bool wait_for_jit(double seconds) { return codegen::queue().wait(seconds); }

}  // namespace tandem
