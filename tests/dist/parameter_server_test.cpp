// SPDX-License-Identifier: Apache-2.0
// Parameter servers and their workers: one worker has the bits of one process, several those of
// DataParallel, whatever the number of servers; parameters are never older than the bound, and
// those of one version on all servers.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "tandem/base/hash/hash.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/parameter_server.h"
#include "tandem/dist/server_share_internal.h"
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

struct ServedJob {
  int workers = 1;  ///< 0: one process by itself
  int64_t updates = 12, staleness = 0;
  int servers = 1;
  const char* optimizer = "adamw";
  double clip = 0;
};

struct Served {
  StateDict state, moments;
  std::map<int64_t, int64_t> versions;  ///< of the parameters of each update
};

std::unique_ptr<optim::Optimizer> served_optimizer(const std::string& name, const nn::Module& net) {
  const std::vector<Param> p = net.parameters();
  if (name == "sgd") return std::make_unique<optim::SGD>(p, optim::SGDOptions{0.05, 0.9});
  if (name == "lamb") return std::make_unique<optim::LAMB>(p, optim::LAMBOptions{});
  if (name == "adafactor") return std::make_unique<optim::Adafactor>(p, optim::AdafactorOptions{});
  return std::make_unique<optim::AdamW>(p, optim::AdamWOptions{.lr = 0.01});
}

Served serve(const ServedJob& job) {
  std::mutex lock;
  Served out;
  run_ranks(job.workers == 0 ? 1 : job.workers + job.servers, [&](const auto& e) {
    manual_seed(3 + static_cast<uint64_t>(e->rank()));  // rank 0's values count
    ServedNet net;
    manual_seed(11);
    const std::unique_ptr<optim::Optimizer> made = served_optimizer(job.optimizer, net);
    optim::Optimizer& opt = *made;
    ParameterServer server(net, {.staleness = job.staleness, .servers = job.servers}, e);
    server.shard_optimizer(opt);
    server.run(
        job.updates,
        [&](const ServerTask& t) {
          if (e->size() == 1) opt.zero_grad();
          {
            std::lock_guard hold(lock);
            out.versions[t.update] = t.version;
          }
          served_loss(net, t.update, t.part, t.parts).backward();
        },
        [&] {
          if (job.clip > 0) server.clip_grad_norm_(opt.params(), job.clip);
          opt.step();
        });
    if (e->rank() != 0) return;
    out.state = net.state_dict();
    out.moments = opt.state_dict();
  });
  return out;
}

void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(same_bits(value, b.at(name))) << name;
}

TEST(ParameterServer, OneWorkerHasTheBitsOfOneProcess) {
  const Served one = serve({.workers = 0});
  for (const int64_t staleness : {0, 4}) {
    const Served served = serve({.staleness = staleness});
    expect_same(served.state, one.state);
    for (const auto& [update, version] : served.versions) EXPECT_EQ(version, update);
  }
}

// A server has whole parameters, so optimizers that look at them, and norms, are those of one.
TEST(ParameterServer, SeveralServersHaveTheBitsOfOne) {
  for (const char* optimizer : {"sgd", "adamw", "lamb", "adafactor"}) {
    for (const double clip : {0.0, 0.5}) {
      const Served one = serve({.workers = 0, .optimizer = optimizer, .clip = clip});
      for (const int servers : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {}", optimizer, clip, servers));
        for (const int64_t staleness : {0, 1, 4}) {
          const Served s = serve({1, 12, staleness, servers, optimizer, clip});
          expect_same(s.state, one.state);
          expect_same(s.moments, one.moments);
        }
      }
      const Served two = serve({2, 12, 0, 1, optimizer, clip});
      for (const int servers : {2, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {}", optimizer, clip, servers));
        const Served s = serve({2, 12, 0, servers, optimizer, clip});
        expect_same(s.state, two.state);
        expect_same(s.moments, two.moments);
      }
    }
  }
}

TEST(ParameterServer, NormsOfSeveralServersAreThoseOfOne) {
  for (const double p : {1.0, 2.0, 3.0, HUGE_VAL}) {
    std::mutex lock;
    std::vector<Tensor> norms;
    for (const int servers : {1, 2, 3})
      run_ranks(servers + 1, [&](const std::shared_ptr<Engine>& e) {
        manual_seed(3);
        ServedNet net;
        ParameterServer server(net, {.servers = servers}, e);
        server.run(
            1, [&](const ServerTask&) { served_loss(net, 0, 0, 1).backward(); },
            [&] {
              const Tensor norm = server.get_total_norm(net.parameters(), p);
              const std::lock_guard hold(lock);
              norms.push_back(norm);
            });
      });
    ASSERT_EQ(norms.size(), 6u);
    for (const Tensor& n : norms) EXPECT_TRUE(same_bits(n, norms[0])) << p;
  }
}

// The group in which servers add up norms: the first ranks, by send and recv of all.
TEST(ParameterServer, ServersAreAGroup) {
  run_ranks(3, [](const std::shared_ptr<Engine>& all) {
    if (all->rank() == 2) return all->barrier().wait();
    const std::shared_ptr<Engine> e = engine_of_servers(all, 2);
    EXPECT_EQ(e->rank(), all->rank());
    EXPECT_EQ(e->size(), 2);
    std::vector<float> x{1.0F + static_cast<float>(e->rank()), 5};
    e->all_reduce({x.data(), 2, DType::f32}).wait();
    EXPECT_EQ(x, (std::vector<float>{3, 10}));
    int64_t n = 7 + e->rank();
    e->broadcast({&n, 1, DType::i64}, 1).wait();
    EXPECT_EQ(n, 8);
    EXPECT_TRUE(has(thrown([&] { e->barrier().wait(); }, ErrorKind::Unsupported),
                    "barrier among parameter servers, whose group knows all_reduce()"));
    EXPECT_TRUE(has(thrown([&] { e->split(0, 0); }, ErrorKind::Unsupported), "split()"));
    all->barrier().wait();
  });
}

struct EvenNet : nn::Module {
  std::vector<nn::Linear> layers;
  EvenNet() {
    for (int k = 0; k < 6; ++k) layers.emplace_back(64, 64);
    TD_REGISTER(layers);
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& l : layers) x = tanh(l(x));
    return x;
  }
};

// Of S servers each sends and receives, and keeps moments of, one S-th.
TEST(ParameterServer, ServersShareBytesAndMoments) {
  std::map<int, std::vector<double>> moved, moments;
  for (const int servers : {1, 2, 3}) {
    moved[servers].resize(static_cast<size_t>(servers));
    moments[servers].resize(static_cast<size_t>(servers));
    run_ranks(servers + 2, [&, n = servers](const std::shared_ptr<Engine>& e) {
      EvenNet net;
      optim::AdamW opt(net.parameters(), {.lr = 0.01});
      ParameterServer server(net, {.servers = n}, e);
      server.shard_optimizer(opt);
      const auto rank = static_cast<size_t>(e->rank());
      const auto bytes = [&] {
        double sum = 0;
        for (const CallTotals& t : e->call_totals())
          if (t.label == "parameters" || t.label == "gradients")
            sum += static_cast<double>(t.bytes);
        return sum;
      };
      const double before = bytes();
      server.run(
          5,
          [&](const ServerTask&) {
            net.forward(ones({2, 64})).sum().backward();
          },
          [&] {
            opt.step();
            moved[n][rank] = bytes() - before;
            moments[n][rank] = 0;
            for (const auto& [name, v] : opt.state_dict())
              if (name.ends_with(".exp_avg")) moments[n][rank] += static_cast<double>(v.numel());
          });
    });
  }
  for (const int servers : {2, 3})
    for (size_t s = 0; s < static_cast<size_t>(servers); ++s) {
      EXPECT_NEAR(moved[servers][s] / moved[1][0], 1.0 / servers, 0.15 / servers) << servers << s;
      EXPECT_NEAR(moments[servers][s] / moments[1][0], 1.0 / servers, 0.02) << servers << s;
    }
}

// Each update adds 1 to all parameters: a worker sees its task's version in every one of them.
TEST(ParameterServer, ParametersAreOfOneVersionOnAllServers) {
  for (const int servers : {2, 3})
    run_ranks(servers + 3, [&](const std::shared_ptr<Engine>& e) {
      const NoGradGuard no_grad;
      EvenNet net;
      for (const Param& p : net.parameters()) p.assign_(zeros(p.shape()));
      ParameterServer server(net, {.staleness = 4, .servers = servers}, e);
      server.run(
          60,
          [&](const ServerTask& t) {
            for (const Param& p : net.parameters())
              EXPECT_TRUE(same_bits(p.value(), full(p.shape(), static_cast<double>(t.version))));
          },
          [&] {
            for (const Param& p : server.parameters()) p.assign_(p.value() + 1);
          });
      if (!server.is_main()) return;
      for (const Param& p : net.parameters())
        EXPECT_TRUE(same_bits(p.value(), full(p.shape(), 60.0)));
    });
}

// A checkpoint in the middle is that of one process, and resumes with another number of servers.
TEST(ParameterServer, StatesAreWholeAndResumeWithOtherServers) {
  const Served one = serve({.workers = 0, .updates = 9});
  StateDict weights, moments;
  GeneratorState random;
  for (const int servers : {1, 3, 2})
    run_ranks(servers + 1, [&, n = servers](const std::shared_ptr<Engine>& e) {
      manual_seed(3);
      ServedNet net;
      manual_seed(11);
      optim::AdamW opt(net.parameters(), {.lr = 0.01});
      ParameterServer server(net, {.staleness = 1, .servers = n}, e);
      server.shard_optimizer(opt);
      const int64_t begin = n == 1 ? 0 : n == 3 ? 3 : 6;
      if (server.is_main() && !weights.empty()) {
        net.load_state_dict(weights);
        opt.load_state_dict(server.parts_of_optim_state(opt, moments));
        server.scatter();
        set_generator_state(random);
      }
      int64_t made = 0;
      server.run(
          3, [&](const ServerTask& t) { served_loss(net, begin + t.update, 0, 1).backward(); },
          [&] {
            opt.step();
            if (!server.is_main() || ++made < 3) return;
            server.gather();
            weights = StateDict();
            for (const auto& [name, v] : net.state_dict()) weights[name] = v.clone();
            moments = StateDict();
            for (const auto& [name, v] : server.optim_state_dict(opt)) moments[name] = v.clone();
            random = generator_state();
          });
    });
  expect_same(weights, one.state);
  expect_same(moments, one.moments);
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
    for (const int servers : {1, 2, 3})
      expect_same(serve({.workers = workers, .servers = servers}).state, parallel);
  }
}

TEST(ParameterServer, ParametersAreNoOlderThanTheBound) {
  for (const int64_t staleness : {0, 1, 2, 5}) {
    for (const int servers : {1, 2, 3}) {
      const Served s = serve({3, 40, staleness, servers});
      EXPECT_EQ(s.versions.size(), 40u);
      for (const auto& [update, version] : s.versions) {
        EXPECT_LE(version, update);
        EXPECT_GE(version, update - staleness) << update;
      }
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

TEST(ParameterServer, SomeRanksMustBeWorkers) {
  const auto texts = [](int ranks, int servers) {
    return errors_of_ranks(ranks, [servers](const std::shared_ptr<Engine>& e) {
      ServedNet net;
      ParameterServer(net, {.servers = servers}, e);
    });
  };
  for (const int servers : {2, 4})
    for (const std::string& text : texts(2, servers)) {
      const int wanted = servers + 1;
      EXPECT_TRUE(has(text, fmt::format("{} parameter servers and a worker are {} ranks, and there "
                                        "are 2",
                                        servers, wanted)))
          << text;
      EXPECT_TRUE(has(text, fmt::format("tandem launch -n {}", wanted))) << text;
    }
  for (const std::string& text : texts(2, 0))
    EXPECT_TRUE(has(text, "expects at least 1 server, got 0")) << text;
}

// What a worker or a server does wrong ends the others with its name.
TEST(ParameterServer, ErrorsEndAll) {
  for (const auto& [servers, culprit] :
       {std::pair{1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}, {2, 3}}) {
    const std::vector<std::string> texts =
        errors_of_ranks(servers + 2, [&, n = servers, culprit = culprit](const auto& e) {
          ServedNet net;
          optim::SGD opt(net.parameters(), {.lr = 0.01});
          ParameterServer server(net, {.staleness = 2, .servers = n}, e);
          const auto fails = [&](int64_t update) {
            TD_CHECK(e->rank() != culprit || update < 4, Value, "the data ends here");
          };
          int64_t made = 0;
          server.run(
              1000, [&](const ServerTask& t) { fails(t.update); }, [&] { fails(made++); });
        });
    for (int r = 0; r < servers + 2; ++r)
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
