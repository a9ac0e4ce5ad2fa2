// SPDX-License-Identifier: Apache-2.0
// A parameter server and its workers: one worker has the bits of one process, several those of
// DataParallel; parameters are never older than the bound.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "tandem/base/hash/hash.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/parameter_server.h"
#include "tandem/graph/rng.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

struct ServedNet : nn::Module {
  nn::Linear first, second;
  nn::BatchNorm1d norm;
  nn::Dropout drop;
  explicit ServedNet(int64_t hidden = 16)
      : first(12, hidden), second(hidden, 4), norm(hidden), drop(0.3) {
    TD_REGISTER(first, second, norm, drop);
  }
  Tensor forward(Tensor x) { return second(drop(relu(norm(first(x))))); }
};

constexpr int64_t kServedRows = 8;
Tensor served_rows(int64_t update) {
  const GeneratorGuard random({77, static_cast<uint64_t>(update) * 1000});
  return randn({kServedRows, 12});
}
Tensor served_labels(int64_t update) {
  return remainder(arange(kServedRows) + update, 4).to(DType::i64);
}

Tensor served_loss(ServedNet& net, int64_t update, int64_t part, int64_t parts) {
  const int64_t begin = part * kServedRows / parts, n = kServedRows / parts;
  return cross_entropy(net(narrow(served_rows(update), 0, begin, n)),
                       narrow(served_labels(update), 0, begin, n));
}

struct Served {
  StateDict state;
  std::map<int64_t, int64_t> versions;  ///< of the parameters of each update
};

// One server and `workers`; 0: one process by itself.
Served serve(int workers, int64_t updates, int64_t staleness) {
  std::mutex lock;
  Served out;
  run_ranks(workers + 1, [&](const std::shared_ptr<Engine>& e) {
    manual_seed(3 + static_cast<uint64_t>(e->rank()));  // rank 0's values count
    ServedNet net;
    manual_seed(11);
    optim::AdamW opt(net.parameters(), {.lr = 0.01});
    ParameterServer server(net, {.staleness = staleness}, e);
    server.run(
        updates,
        [&](const ServerTask& t) {
          if (e->size() == 1) opt.zero_grad();
          {
            std::lock_guard hold(lock);
            out.versions[t.update] = t.version;
          }
          served_loss(net, t.update, t.part, t.parts).backward();
        },
        [&] { opt.step(); });
    if (e->rank() == 0) out.state = net.state_dict();
  });
  return out;
}

void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(same_bits(value, b.at(name))) << name;
}

TEST(ParameterServer, OneWorkerHasTheBitsOfOneProcess) {
  const Served one = serve(0, 12, 0);
  for (const int64_t staleness : {0, 4}) {
    const Served served = serve(1, 12, staleness);
    expect_same(served.state, one.state);
    for (const auto& [update, version] : served.versions) EXPECT_EQ(version, update);
  }
}

TEST(ParameterServer, SynchronousWorkersHaveTheBitsOfDataParallel) {
  for (const int workers : {2, 4}) {
    StateDict parallel;
    run_ranks(workers, [&](const std::shared_ptr<Engine>& e) {
      manual_seed(3);
      ServedNet net;
      manual_seed(11);
      const GeneratorState base = generator_state();
      optim::AdamW opt(net.parameters(), {.lr = 0.01});
      DataParallel model(net, {}, e);
      uint64_t offset = base.offset;
      for (int64_t u = 0; u < 12; ++u) {
        opt.zero_grad();
        model.sync_buffers();
        // What part p of an update draws, as in the Trainer.
        set_generator_state(
            {e->rank() == 0 ? base.seed : hash_combine(base.seed, static_cast<uint64_t>(e->rank())),
             offset});
        served_loss(net, u, e->rank(), workers).backward();
        offset = generator_state().offset;
        opt.step();
      }
      if (e->rank() == 0) parallel = net.state_dict();
    });
    expect_same(serve(workers, 12, 0).state, parallel);
  }
}

TEST(ParameterServer, ParametersAreNoOlderThanTheBound) {
  for (const int64_t staleness : {0, 1, 2, 5}) {
    const Served s = serve(3, 40, staleness);
    EXPECT_EQ(s.versions.size(), 40u);
    for (const auto& [update, version] : s.versions) {
      EXPECT_LE(version, update);
      EXPECT_GE(version, update - staleness) << update;
    }
  }
}

// A worker that holds update 0 lets the other one go as far as the bound, and no further.
TEST(ParameterServer, WorkersThatRunAheadWait) {
  constexpr int64_t kBound = 3;
  std::atomic<int> ahead{0};
  std::atomic<bool> given{false};
  run_ranks(3, [&](const std::shared_ptr<Engine>& e) {
    ServedNet net;
    optim::SGD opt(net.parameters(), {.lr = 0.01});
    ParameterServer server(net, {.staleness = kBound}, e);
    if (server.is_server()) {
      server.run(
          12, [](const ServerTask&) {}, [&] { opt.step(); });
      return;
    }
    while (const std::optional<ServerTask> t = server.next_task()) {
      served_loss(net, t->update, 0, 1).backward();
      if (t->update == 0) {
        while (ahead < kBound) std::this_thread::yield();
        given = true;
      } else {
        EXPECT_TRUE(t->update <= kBound || given) << t->update;
        ++ahead;
      }
      server.give_result(*t);
    }
    EXPECT_GE(ahead, kBound);
  });
}

TEST(ParameterServer, UpdatesComeInOrderWithNotes) {
  run_ranks(4, [&](const std::shared_ptr<Engine>& e) {
    ServedNet net;
    ParameterServer server(net, {.staleness = 6}, e);
    if (!server.is_server()) {
      while (const std::optional<ServerTask> t = server.next_task()) {
        EXPECT_EQ(t->numbers[1], t->update * t->update);
        server.give_result(*t, fmt::format("update {}", t->update));
      }
      return;
    }
    for (int64_t u = 0; u < 30; ++u) {
      const ServerUpdate got = server.collect([](int64_t next) {
        return next < 30 ? std::optional(ServerTask{.numbers = {0, next * next, 0}}) : std::nullopt;
      });
      EXPECT_EQ(got.update, u);
      EXPECT_LE(got.staleness, 6);
      ASSERT_EQ(got.notes.size(), 1u);
      EXPECT_EQ(got.notes[0], fmt::format("update {}", u));
      for (const Param& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
    }
    EXPECT_EQ(server.updates(), 30);
    server.dismiss();
  });
}

TEST(ParameterServer, NetsThatDifferAreNamed) {
  for (const std::string& text : errors_of_ranks(3, [](const std::shared_ptr<Engine>& e) {
         ServedNet net(e->rank() == 2 ? 9 : 16);
         ParameterServer(net, {}, e);
       })) {
    EXPECT_TRUE(has(text, "rank 0 has parameter 'first.weight' float32[16, 12], rank 2 ")) << text;
  }
  for (const std::string& text : errors_of_ranks(2, [](const std::shared_ptr<Engine>& e) {
         ServedNet net;
         ParameterServer(net, {.staleness = e->rank()}, e);
       })) {
    EXPECT_TRUE(has(text, "the option staleness=0, rank 1 ")) << text;
  }
}

// What a worker or the server does wrong ends the others with its name.
TEST(ParameterServer, ErrorsEndAll) {
  for (const int culprit : {0, 1, 2}) {
    const std::vector<std::string> texts =
        errors_of_ranks(3, [&](const std::shared_ptr<Engine>& e) {
          ServedNet net;
          optim::SGD opt(net.parameters(), {.lr = 0.01});
          ParameterServer server(net, {.staleness = 2}, e);
          const auto fails = [&](int64_t update) {
            TD_CHECK(e->rank() != culprit || update < 4, Value, "the data ends here");
          };
          int64_t made = 0;
          server.run(
              1000, [&](const ServerTask& t) { fails(t.update); }, [&] { fails(made++); });
        });
    for (int r = 0; r < 3; ++r)
      EXPECT_TRUE(has(texts[static_cast<size_t>(r)],
                      r == culprit ? "the data ends here" : fmt::format("rank {} (", culprit)))
          << r << ": " << texts[static_cast<size_t>(r)];
  }
}

// A worker's numbers are sizes and places on the server.
TEST(ParameterServer, ResultsOfOtherTasksAreRefused) {
  const std::pair<void (*)(ServerTask&), const char*> cases[] = {
      {[](ServerTask& t) { t.part = 1000; }, "update 0, got that of part 1000 of update 0"},
      {[](ServerTask& t) { t.part = -1; }, "update 0, got that of part -1 of update 0"},
      {[](ServerTask& t) { t.update = 7; }, "update 0, got that of part 0 of update 7"},
  };
  for (const auto& [change, wanted] : cases) {
    const std::vector<std::string> texts =
        errors_of_ranks(2, [change = change](const std::shared_ptr<Engine>& e) {
          ServedNet net;
          ParameterServer server(net, {}, e);
          if (e->rank() == 0) return server.run(3, {}, [] {});
          ServerTask task = *server.next_task();
          EXPECT_TRUE(has(thrown([&] { server.give_result(task, std::string(1 << 25, 'n')); }),
                          "expects a note of at most 16777216 bytes, got 33554432"));
          change(task);
          server.give_result(task);
          server.next_task();
        });
    EXPECT_TRUE(has(texts[0], wanted)) << texts[0];
    EXPECT_TRUE(has(texts[1], "training has failed on the parameter server")) << texts[1];
  }
}

}  // namespace
}  // namespace tandem::distributed
