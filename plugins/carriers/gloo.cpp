// SPDX-License-Identifier: Apache-2.0
// The carrier "gloo": Gloo's collectives over TCP. Its connections are its own; the engine's hand
// their addresses around.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/dist/carrier.h"

namespace {

// Gloo writes to its sockets by writev(), so a rank whose peer has died would be ended by SIGPIPE
// before it can say which one. Threads that write, and those they start, live under this guard.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    // One that came meanwhile is Gloo's; it must not strike once the mask is as it was.
    const timespec now{};
    if (!was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

// Each rank sets one value under its rank and gets all others': that is an exchange.
class Exchange final : public gloo::rendezvous::Store {
 public:
  explicit Exchange(const TandemCarrierGroup& g) : group_(g) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    const int64_t bytes = static_cast<int64_t>(key.size() + data.size()) + 16;
    std::vector<int64_t> sizes(static_cast<size_t>(group_.size));
    gather(&bytes, sizeof bytes, sizes.data());
    int64_t most = 0;
    for (const int64_t n : sizes) most = std::max(most, n);
    std::vector<char> own(static_cast<size_t>(most)), all(own.size() * sizes.size());
    const int64_t head[2] = {static_cast<int64_t>(key.size()), static_cast<int64_t>(data.size())};
    std::memcpy(own.data(), head, sizeof head);
    std::memcpy(own.data() + 16, key.data(), key.size());
    if (!data.empty()) std::memcpy(own.data() + 16 + key.size(), data.data(), data.size());
    gather(own.data(), most, all.data());
    for (size_t r = 0; r < sizes.size(); ++r) {
      const char* p = all.data() + r * own.size();
      int64_t n[2];
      std::memcpy(n, p, sizeof n);
      values_[std::string(p + 16, static_cast<size_t>(n[0]))] =
          std::vector<char>(p + 16 + n[0], p + 16 + n[0] + n[1]);
    }
  }
  std::vector<char> get(const std::string& key) override {
    const auto it = values_.find(key);
    if (it == values_.end()) throw std::runtime_error("no rank has said '" + key + "'");
    return it->second;
  }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  void gather(const void* own, int64_t bytes, void* all) {
    if (group_.all_gather(group_.context, own, bytes, all) != 0)
      throw std::runtime_error("the ranks could not exchange addresses");
  }
  const TandemCarrierGroup& group_;
  std::map<std::string, std::vector<char>> values_;
};

struct State {
  std::shared_ptr<gloo::rendezvous::Context> context;
  uint32_t tag = 0;  ///< tells calls apart
};

void* open(const TandemCarrierGroup* g, char* error, size_t capacity) {
  try {
    const NoBrokenPipe guard;  // Gloo's own thread, which starts here, keeps the mask
    gloo::transport::tcp::attr at(g->address);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(at);
    auto s = std::make_unique<State>();
    s->context = std::make_shared<gloo::rendezvous::Context>(g->rank, g->size);
    Exchange exchange(*g);
    s->context->connectFullMesh(exchange, device);
    return s.release();
  } catch (const std::exception& e) {
    std::snprintf(error, capacity, "%s", e.what());
    return nullptr;
  }
}

template <class T>
gloo::AllreduceOptions::Func reduction(int op) {
  using Plain = void (*)(void*, const void*, const void*, size_t);
  return op == TANDEM_SUM   ? static_cast<Plain>(&gloo::sum<T>)
         : op == TANDEM_MIN ? static_cast<Plain>(&gloo::min<T>)
                            : static_cast<Plain>(&gloo::max<T>);
}

// What the options of all calls have.
template <class Options>
void set_common(State& s, const TandemCarrierCall& c, Options& o) {
  o.setTag(s.tag++);
  o.setTimeout(std::chrono::milliseconds(static_cast<int64_t>(std::min(c.timeout, 1e6) * 1000)));
}

template <class T>
void all_reduce(State& s, const TandemCarrierCall& c) {
  gloo::AllreduceOptions o(s.context);
  o.setOutput(static_cast<T*>(c.out), static_cast<size_t>(c.count));
  o.setReduceFunction(reduction<T>(c.op));
  set_common(s, c, o);
  gloo::allreduce(o);
}

void run(State& s, const TandemCarrierCall& c) {
  const auto n = static_cast<size_t>(c.count), all = n * static_cast<size_t>(s.context->size);
  auto* in = static_cast<char*>(const_cast<void*>(c.in));
  auto* out = static_cast<char*>(c.out);
  switch (c.kind) {
    case TANDEM_ALL_REDUCE:
      switch (c.type) {
        case TANDEM_U8:
          return all_reduce<uint8_t>(s, c);
        case TANDEM_I8:
          return all_reduce<int8_t>(s, c);
        case TANDEM_I16:
          return all_reduce<int16_t>(s, c);
        case TANDEM_I32:
          return all_reduce<int32_t>(s, c);
        case TANDEM_I64:
          return all_reduce<int64_t>(s, c);
        case TANDEM_F32:
          return all_reduce<float>(s, c);
        case TANDEM_F64:
          return all_reduce<double>(s, c);
      }
      break;
    case TANDEM_ALL_GATHER: {
      gloo::AllgatherOptions o(s.context);
      o.setInput(in, n);
      o.setOutput(out, all);
      set_common(s, c, o);
      return gloo::allgather(o);
    }
    case TANDEM_BROADCAST: {
      gloo::BroadcastOptions o(s.context);
      o.setOutput(out, n);
      o.setRoot(c.root);
      set_common(s, c, o);
      return gloo::broadcast(o);
    }
    case TANDEM_ALL_TO_ALL: {
      gloo::AlltoallOptions o(s.context);
      o.setInput(in, all);
      o.setOutput(out, all);
      set_common(s, c, o);
      return gloo::alltoall(o);
    }
    default:
      break;
  }
  throw std::runtime_error("a call that this carrier does not make");
}

// Gloo's calls wait for their end.
int begin(void* state, const TandemCarrierCall* call, char* error, size_t capacity) {
  try {
    const NoBrokenPipe guard;
    run(*static_cast<State*>(state), *call);
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(error, capacity, "%s", e.what());
    return -1;
  }
}
int test(void*, char*, size_t) { return 1; }

void close(void* state, int) { delete static_cast<State*>(state); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const TandemCarrier* tandem_carrier() {
  static const TandemCarrier self{TANDEM_CARRIER_ABI,
                                  "gloo",
                                  1u << TANDEM_ALL_REDUCE | 1u << TANDEM_ALL_GATHER |
                                      1u << TANDEM_BROADCAST | 1u << TANDEM_ALL_TO_ALL,
                                  0,
                                  open,
                                  begin,
                                  test,
                                  close};
  return &self;
}
