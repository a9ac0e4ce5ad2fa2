// SPDX-License-Identifier: Apache-2.0
// Models and their versions: which are found, replaced while requests run, batched with the bits of
// rows alone, and that each request is answered once.
#include "tandem/serve/model/repository.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>

#include "tandem/base/parallel.h"
#include "tandem/nn/nn.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/external.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/tflite_builder.h"
#include "tests/serve/jobs_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> numbers(const Repository& r, const std::string& name) {
  std::vector<int64_t> out;
  for (const ModelVersionPtr& v : r.versions(name)) out.push_back(v->version);
  return out;
}

TEST(Repository, FindsVersionsByPolicyAndNothingOutside) {
  const TempFolder t, outside;
  put_model(outside / "secret.onnx", scale_model(9));
  for (const char* v : {"1", "2", "10", "007", "0", "x"})
    put_model(t / (std::string("a/") + v + "/model.onnx"), scale_model(2));
  fs::create_directories(t / "a/5");  // still empty
  put_model(t / "b.onnx", scale_model(3));
  put_model(t / "c/some_name.onnx", scale_model(4));
  put_model(t / "d.tflite", onnx::tflite_network());
  put_model(t / "e/1/model.tflite", onnx::tflite_network());
  put_model(t / "broken/1/model.onnx", "no model");
  put_model(t / ".hidden/1/model.onnx", scale_model(4));
  put_model(t / "bad key/1/model.onnx", scale_model(4));
  put_model(t / "typo/1/model.onnx", scale_model(4));
  put_model(t / "typo/serve.yaml", "max_bach: 3\n");
  put_model(t / "levels/1/model.onnx", scale_model(4));
  put_model(t / "levels/serve.yaml", "priority_levels: 2\ndefault_priority: 3\n");
  put_model(t / "expects/1/model.onnx", scale_model(4));
  put_model(t / "expects/serve.yaml", "versions: [1, 4]\n");
  fs::create_symlink(outside / "secret.onnx", t / "link.onnx");
  fs::create_directory_symlink(outside.path(), t / "linked");
  Repository r({.folder = t.path().string()});
  r.load_all();
  EXPECT_EQ(numbers(r, "a"), (std::vector<int64_t>{10}));
  EXPECT_EQ(numbers(r, "b"), (std::vector<int64_t>{1}));
  EXPECT_EQ(numbers(r, "c"), (std::vector<int64_t>{1}));
  EXPECT_EQ(numbers(r, "d"), (std::vector<int64_t>{1}));
  EXPECT_EQ(numbers(r, "e"), (std::vector<int64_t>{1}));
  EXPECT_EQ(r.all().size(), 5u);
  EXPECT_FALSE(r.ready());
  std::string reasons;
  for (const IndexEntry& e : r.index())
    if (!e.ready) reasons += e.name + ": " + e.reason + "\n";
  for (const char* part : {"broken: ", "did you mean 'max_batch'", "no version 4", "path leads out",
                           "default_priority 3 is not one of its 2 priority_levels"})
    EXPECT_TRUE(has(reasons, part)) << part << "\n" << reasons;
  EXPECT_FALSE(has(reasons, t.path().string())) << reasons;
  EXPECT_FALSE(has(reasons, outside.path().string())) << reasons;
  for (const char* bad :
       {"..", "../x", "a/10", "", ".hidden", "link", "linked", "none", "b.onnx/../b"})
    EXPECT_THROW(r.load(bad), Error) << bad;
  write_file(t / "a/serve.yaml", "latest: 2\n");
  r.load("a");
  EXPECT_EQ(numbers(r, "a"), (std::vector<int64_t>{2, 10}));
  write_file(t / "a/serve.yaml", "versions: [1, 2]\nlabels: [old=1]\n");
  r.load("a");
  EXPECT_EQ(numbers(r, "a"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(r.find("a", "old")->version, 1);
  EXPECT_EQ(r.find("a")->version, 2);
  EXPECT_FALSE(r.find("a", "10"));
  // A load that fails leaves what was there.
  write_file(t / "a/2/model.onnx", "broken");
  EXPECT_THROW(r.load("a"), Error);
  EXPECT_EQ(numbers(r, "a"), (std::vector<int64_t>{1, 2}));
  r.unload("a");
  EXPECT_FALSE(r.find("a"));
  EXPECT_THROW(r.unload("a"), Error);
}

TEST(Repository, AModelIsServedUnderItsOwnName) {
  const TempFolder t;
  put_model(t / "one.onnx", scale_model(2));
  Repository r({.folder = t / "one.onnx"});
  r.load_all();
  EXPECT_TRUE(r.find("one", "1"));
  EXPECT_THROW(Repository({.folder = t / "none"}), Error);
  write_file(t / "text", "x");
  EXPECT_THROW(Repository({.folder = t / "text"}), Error);
}

TEST(Repository, OverwrittenFilesDoNoHarm) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", mlp_model(64, 4096, 8));  // large enough to be mapped
  Repository r({.folder = t.path().string()});
  r.load_all();
  r.wait_for_warm_up();
  fs::resize_file(t / "m/1/model.onnx", 0);
  const ModelVersionPtr v = r.find("m");
  const std::vector<Tensor> y = v->model->run(0, {ones({1, 64})}, 1);
  EXPECT_EQ(y[0].size(1), 8);
}

// Loading beside answers takes second place; what answers afterwards does not.
TEST(Repository, ThreadsOfAModelLoadedLaterAnswerAtFullPriority) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", scale_model(2));
  Repository r({.folder = t.path().string()});
  r.load_all();
  const auto rank = [] { return getpriority(PRIO_PROCESS, 0); };  // of this thread, on Linux
  const int own = rank();
  std::atomic<int> others{0};
  const auto look = [&] {
    if (rank() != own) ++others;
  };
  for (int i = 0; i < 2; ++i) {
    std::atomic<bool> done{false};
    r.find("m")->scheduler->submit({.inputs = {ones({1, 4})}, .done = [&](const JobResult& result) {
                                      EXPECT_EQ(result.status, 200) << result.error;
                                      look();
                                      done = true;
                                      done.notify_one();
                                    }});
    done.wait(false);
    parallel_for(0, 64, 1, [&](int64_t, int64_t) { look(); });
    r.load("m");
  }
  EXPECT_EQ(others, 0);
  EXPECT_EQ(rank(), own);
  put_model(t / "m/1/model.onnx", "no model");
  EXPECT_THROW(r.load("m"), Error) << "what the other thread throws comes here";
}

// ---- batches

// Weights in a file beside the model come along, from wherever it is served; neighbours stay.
TEST(Repository, WeightsBesideAModelComeAlong) {
  const TempFolder t;
  nn::Linear net(4, 2);
  for (const char* file : {"flat.onnx", "deep/1/model.onnx", "named/net.onnx"}) {
    fs::create_directories(fs::path(t / file).parent_path());
    onnx::export_onnx(net, ones({1, 4}), t / file, {.external_data = true});
    EXPECT_EQ(onnx::external_locations(t / file).size(), 1u) << file;
  }
  fs::create_symlink("nowhere", t / "deep/1/dangling");
  {
    Repository r({.folder = t.path().string()});
    r.load_all();
    for (const char* name : {"flat", "deep", "named"}) EXPECT_TRUE(r.find(name, "")) << name;
  }
  // A link is not followed, although a copy would no longer show it.
  fs::rename(t / "flat.safetensors", t / "elsewhere");
  fs::create_symlink("elsewhere", t / "flat.safetensors");
  Repository r({.folder = t.path().string()});
  r.load_all();
  EXPECT_FALSE(r.find("flat", ""));
  EXPECT_TRUE(r.find("deep", ""));
}

// What a model's folder holds may not lead out either, unless links are allowed.
TEST(Repository, LinksInsideAModelStayInside) {
  const TempFolder t, outside;
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  fs::create_directories(t / "m");
  fs::copy(std::string(root ? root : ".") + "/tests/golden/hf/bert", t / "m/1",
           fs::copy_options::recursive);
  fs::rename(t / "m/1/model.safetensors", outside / "weights");
  fs::create_symlink(outside / "weights", t / "m/1/model.safetensors");
  Repository r({.folder = t.path().string()});
  r.load_all();
  EXPECT_FALSE(r.find("m"));
  EXPECT_TRUE(r.knows("m"));
  Repository free({.folder = t.path().string(), .links = true});
  free.load_all();
  EXPECT_TRUE(free.find("m"));
}

TEST(Servable, RowsHaveTheirOwnBitsInEveryBatch) {
  const auto s = servable(mlp_model(48, 64, 10));
  ASSERT_TRUE(s->batched()) << s->note();
  const int64_t most = s->sizes().back().rows;
  manual_seed(3);
  std::vector<Tensor> rows, alone;
  for (int i = 0; i < 200; ++i) {
    rows.push_back(randn({1, 48}));
    alone.push_back(s->run(0, {rows.back()}, 1)[0]);
  }
  for (size_t i = 0, n = 1; i + n <= rows.size();
       i += n, n = n % static_cast<size_t>(most + 9) + 1) {
    const Tensor x = cat(std::vector<Tensor>(rows.begin() + static_cast<std::ptrdiff_t>(i),
                                             rows.begin() + static_cast<std::ptrdiff_t>(i + n)));
    const Tensor y = s->run(0, {x}, static_cast<int64_t>(n))[0];
    ASSERT_EQ(y.size(0), static_cast<int64_t>(n));
    for (size_t k = 0; k < n; ++k)
      ASSERT_TRUE(same_bits(y.narrow(0, static_cast<int64_t>(k), 1), alone[i + k])) << n;
  }
}

TEST(Servable, ModelsWhoseRowsSeeEachOtherAreNotBatched) {
  const auto mixing = servable(mixing_model());
  EXPECT_FALSE(mixing->batched());
  EXPECT_TRUE(has(mixing->note(), "alone")) << mixing->note();
  EXPECT_FALSE(servable(mixing_model(), {.same_bits = false})->batched());
  EXPECT_FALSE(servable(scale_model(2), {.max_batch = 1})->batched());
  const auto fixed = servable(onnx::model({{onnx::node("Neg", {"x"}, {"y"})},
                                           {},
                                           {sized_port("x", 1, {2, 2})},
                                           {sized_port("y", 1, {2, 2})}}));
  EXPECT_TRUE(has(fixed->note(), "fixed")) << fixed->note();
  EXPECT_EQ(fixed->run(0, {ones({2, 2})}, 2)[0].size(0), 2);
}

TEST(Servable, SizesCoverEveryNumberOfRows) {
  const auto s = servable(scale_model(2), {.max_batch = 16});
  ASSERT_EQ(s->sizes().back().rows, 16) << s->note();
  for (int64_t rows = 1; rows < 70; ++rows) {
    int64_t sum = 0, last = 0;
    for (const int64_t n : s->cover(rows)) {
      EXPECT_LT(sum, rows);
      sum += last = n;
    }
    EXPECT_GE(sum, rows);
    EXPECT_LT(sum - rows, last);
  }
}

// ---- the scheduler

TEST(Scheduler, BatchesWhatWaitsAndBoundsTheQueue) {
  const auto model = servable(scale_model(2), {.max_batch = 8});
  Sent sent;
  {
    Scheduler s(model, {.queue = 20});
    std::unique_lock busy(model->lock_of(0));  // the instance is taken: jobs wait
    for (int i = 0; i < 30; ++i) s.submit(sent.job({full({1, 4}, i)}));
    EXPECT_EQ(sent.with(429), 10);
    EXPECT_EQ(s.counts().rejected, 10u);
    busy.unlock();
    ASSERT_TRUE(sent.wait(30));
    EXPECT_EQ(sent.with(200), 20);
    EXPECT_EQ(s.counts().ok, 20u);
    EXPECT_EQ(s.counts().rows, 20u);
    EXPECT_LE(s.counts().runs, 4u);  // 8 + 8 + 4
    for (const JobResult& r : sent.results)
      if (r.status == 200) {
        EXPECT_EQ(r.outputs[0].shape().to_string(), "[1, 4]");
      }
  }
}

TEST(Scheduler, OneThatFailsFailsAlone) {
  const auto model = servable(lookup_model(), {.max_batch = 8});
  ASSERT_TRUE(model->batched()) << model->note();
  Sent sent;
  Scheduler s(model, {});
  std::unique_lock busy(model->lock_of(0));
  for (const int64_t index : {0, 1, 99, 3}) s.submit(sent.job({full({1}, index, DType::i64)}));
  busy.unlock();
  ASSERT_TRUE(sent.wait(4));
  EXPECT_EQ(sent.with(200), 3);
  EXPECT_EQ(sent.with(400), 1);
}

// Whose row is it that a batch's answer lacks? Its rows are run one by one.
TEST(Scheduler, ABatchThatLosesRowsRunsAlone) {
  const auto model = servable(dropping_model(), {.max_batch = 8});
  ASSERT_TRUE(model->batched()) << model->note();
  Sent sent;
  Scheduler s(model, {});
  std::unique_lock busy(model->lock_of(0));
  for (const float x : {0.0f, 1.0f, -2000.0f, 3.0f}) s.submit(sent.job({full({1}, x)}));
  busy.unlock();
  ASSERT_TRUE(sent.wait(4));
  ASSERT_EQ(sent.with(200), 4);
  int64_t rows = 0;
  for (const JobResult& r : sent.results) rows += r.outputs[0].size(0);
  EXPECT_EQ(rows, 3);
}

TEST(Scheduler, LateCancelledAndUnloadedJobsAreAnswered) {
  const auto model = servable(scale_model(2));
  Sent sent;
  std::atomic<bool> gone{false};
  {
    Scheduler s(model, {.queue = 8});
    std::unique_lock busy(model->lock_of(0));
    Job late = sent.job({ones({1, 4})}), left = sent.job({ones({1, 4})});
    late.timeout = 1e-6;
    left.gone = [&gone] { return gone.load(); };
    s.submit(std::move(late));
    s.submit(std::move(left));
    s.submit(sent.job({ones({1, 4})}));
    gone = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    busy.unlock();
    ASSERT_TRUE(sent.wait(3));
    EXPECT_EQ(sent.with(504), 1);
    EXPECT_EQ(sent.with(499), 1);
    EXPECT_EQ(sent.with(200), 1);
    const JobCounts& c = s.counts();
    EXPECT_EQ(c.accepted, c.ok + c.failed + c.expired + c.cancelled);
    // A full queue of clients that left takes new ones.
    busy.lock();
    for (int i = 0; i < 8; ++i) {
      Job j = sent.job({ones({1, 4})});
      j.gone = [] { return true; };
      s.submit(std::move(j));
    }
    s.submit(sent.job({ones({1, 4})}));
    EXPECT_EQ(sent.with(429), 0);
    busy.unlock();
    ASSERT_TRUE(sent.wait(12));
    busy.lock();
    s.submit(sent.job({ones({1, 4})}), true);
    EXPECT_EQ(sent.count, 12);  // the instance is busy: it waits
    busy.unlock();
    ASSERT_TRUE(sent.wait(13));
  }
  EXPECT_EQ(sent.with(200), 3);
}

TEST(Scheduler, AFreeFastModelAnswersOnTheCallersThread) {
  const auto model = servable(scale_model(2));
  model->took_alone(1e-6);  // however slow this machine is today
  Sent sent;
  Scheduler s(model, {});
  s.submit(sent.job({ones({1, 4})}), true);
  EXPECT_EQ(sent.count, 1);
}

// A model that could be fast, and whose open sizes may have to be compiled first: never on the
// thread of all connections.
TEST(Scheduler, OpenSizesAreRunElsewhere) {
  const auto model = servable(scale_model(2, -1));
  model->took_alone(1e-6);
  Sent sent;
  Scheduler s(model, {});
  std::thread::id ran_on;
  Job job = sent.job({ones({1, 7})});
  job.done = [&, done = std::move(job.done)](JobResult r) {
    ran_on = std::this_thread::get_id();
    done(std::move(r));
  };
  s.submit(std::move(job), true);
  ASSERT_TRUE(sent.wait(1));
  EXPECT_EQ(sent.with(200), 1);
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

// Whichever thread is woken, a job does not wait for an instance that is busy while another is
// free.
TEST(Scheduler, AFreeInstanceTakesWhatWaits) {
  const auto model = servable(scale_model(2), {.instances = 2});
  Sent sent;
  Scheduler s(model, {});
  for (int i = 0; i < 20; ++i) {
    const std::lock_guard busy(model->lock_of(i % 2));
    s.submit(sent.job({ones({1, 4})}));
    ASSERT_TRUE(sent.wait(i + 1)) << i;
  }
  EXPECT_EQ(sent.with(200), 20);
}

// Requests that a loop read in one turn, as its handlers submit them: `done` of each has the last
// hold on its scheduler, as requests have on a version that was replaced.
TEST(Scheduler, JobsOfOneTurnRunTogetherAtItsEnd) {
  const auto model = servable(scale_model(2), {.max_batch = 8});
  ASSERT_TRUE(model->batched()) << model->note();
  model->took_alone(1e-6);  // however slow this machine is today
  constexpr int kJobs = 21;
  Sent sent;
  std::thread::id loop;
  std::vector<std::thread::id> ran_on;
  int at_once = -1;
  HttpServer server({}, [&](const HttpExchangePtr& e) {
    loop = std::this_thread::get_id();
    auto s = std::make_shared<Scheduler>(model, SchedulerOptions{});
    std::weak_ptr<Scheduler> last = s;
    for (int i = 0; i < kJobs; ++i) {
      Job job = sent.job({full({1, 4}, i)});
      job.owner = s;
      job.gone = [i] { return i == 18; };
      job.done = [&, e, done = std::move(job.done), end = i == kJobs - 1](JobResult r) {
        ran_on.push_back(std::this_thread::get_id());
        done(std::move(r));
        if (end) e->answer({});
      };
      s->submit(std::move(job), true);
    }
    at_once = sent.count;
    s.reset();
    EXPECT_FALSE(last.expired());
  });
  std::thread serving([&] { server.run(); });
  EXPECT_EQ(HttpClient("127.0.0.1", server.port()).get("/").status, 200);
  server.drain(0, 5);
  serving.join();
  EXPECT_EQ(at_once, 16);  // two full batches do not wait
  ASSERT_EQ(sent.count, kJobs);
  for (size_t i = 0; i < kJobs; ++i) EXPECT_EQ(ran_on[i], loop);
  EXPECT_EQ(sent.with(499), 1);
  for (const JobResult& r : sent.results) {
    if (r.status == 499) continue;
    ASSERT_EQ(r.status, 200) << r.error;
    EXPECT_EQ(r.outputs[0].shape().to_string(), "[1, 4]");
  }
  // Cancelled ones are answered before the batch runs.
  const auto twice = [&](size_t i) {
    return sent.results[i].outputs[0].select(1, 3).item<float>();
  };
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(sent.results[i].batch, 8);
    EXPECT_EQ(twice(i), 2 * static_cast<float>(i));
  }
  EXPECT_EQ(sent.results[16].status, 499);
  EXPECT_EQ(sent.results[17].batch, 4);
  const float rest[] = {16, 17, 19, 20};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(twice(17 + i), 2 * rest[i]);
}

// ---- under load

// Each of many connections sends several requests at once, some of them leave before the answers:
// answers are those of their requests, in their order.
TEST(ServingUnderLoad, PipelinedRequestsOfOneTurnKeepTheirOrder) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", scale_model(2, 1));
  Running server({.models = t.path().string()});
  constexpr int kConnections = 12, kEach = 20;
  const auto body = [](int n) {
    return fmt::format(
        "{{\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[{}]}}]}}",
        n);
  };
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int c = 0; c < kConnections; ++c) clients.push_back(server.client());
  for (int c = 0; c < kConnections; ++c) {
    std::string all;
    for (int k = 0; k < kEach; ++k)
      all += request_text("POST", "/v2/models/m/infer", "x", body(c * kEach + k), {});
    clients[static_cast<size_t>(c)]->send(all);
    if (c % 4 == 3) clients[static_cast<size_t>(c)].reset();
  }
  for (int c = 0; c < kConnections; ++c)
    for (int k = 0; c % 4 != 3 && k < kEach; ++k) {
      const HttpResponse r = clients[static_cast<size_t>(c)]->receive();
      EXPECT_EQ(r.status, 200);
      const std::string want = fmt::format("\"data\":[{}.0]", 2 * (c * kEach + k));
      EXPECT_TRUE(has(r.body, want)) << r.body;
    }
  const ModelVersionPtr v = server->repository().find("m");
  server->drain(0, 5);
  server.join();
  const JobCounts& n = v->scheduler->counts();
  EXPECT_GE(n.ok, static_cast<uint64_t>(kConnections / 4 * 3 * kEach));
  EXPECT_EQ(n.accepted, n.ok + n.cancelled);
}

TEST(ServingUnderLoad, ReloadsLoseNoRequest) {
  const TempFolder t;
  put_model(t / "m/1/model.onnx", scale_model(1));
  Running server({.models = t.path().string(), .allow_load = true});
  Askers clients(server, 3);
  const auto admin = server.client();
  for (int v = 2; v <= 21; ++v) {
    put_model(t / fmt::format("m/{}/model.onnx", v), scale_model(static_cast<float>(v)));
    const HttpResponse r = admin->post("/v2/repository/models/m/load", "");
    EXPECT_EQ(r.status, 200) << r.body;
    EXPECT_TRUE(has(admin->get("/v2/models/m").body, fmt::format("\"versions\":[\"{}\"]", v)));
  }
  EXPECT_EQ(
      admin->post("/v2/repository/models/m/load", "{\"parameters\":{\"config\":\"{}\"}}").status,
      400);
  EXPECT_EQ(admin->post("/v2/repository/models/..%2fx/load", "").status, 400);
  clients.stop();
  EXPECT_EQ(clients.wrong(), 0);
  EXPECT_GT(clients.answers(), 20);
  EXPECT_EQ(admin->post("/v2/repository/models/m/unload", "{}").status, 200);
  EXPECT_EQ(admin->get("/v2/models/m").status, 404);
  EXPECT_TRUE(has(admin->post("/v2/repository/index", "").body, "unloaded"));
}

TEST(ServingUnderLoad, DrainingLosesNoRequest) {
  const TempFolder t;
  put_model(t / "m.onnx", mlp_model(32, 64, 8));
  auto server = std::make_unique<Running>(ServerOptions{.models = t.path().string()});
  std::atomic<int> answers{0}, lost{0};
  std::vector<std::thread> clients;
  const int port = (*server)->port();
  for (int k = 0; k < 4; ++k)
    clients.emplace_back([&answers, &lost, port] {
      try {
        const HttpClient probe("127.0.0.1", port);
      } catch (const Error&) {
        return;
      }
      std::string body = "{\"instances\":[[0";
      for (int i = 1; i < 32; ++i) body += ",1";
      body += "]]}";
      std::unique_ptr<HttpClient> c;
      for (;;) {
        try {
          if (!c) c = std::make_unique<HttpClient>("127.0.0.1", port, 10);
        } catch (const Error&) {
          return;  // nobody listens any more
        }
        try {
          const HttpResponse r = c->post("/v1/models/m:predict", body);
          if (r.status != 200) ++lost;
          ++answers;
          if (r.close) return;
        } catch (const Error&) {
          ++lost;
          return;
        }
      }
    });
  while (answers < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  (*server)->drain(0.3, 10);
  server->join();
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(lost, 0);
  server.reset();
}

// Shut down at once while requests run and wait: they may end on threads of the version itself.
TEST(ServingUnderLoad, EndsAtOnceInTheMiddleOfRequests) {
  const TempFolder t;
  put_model(t / "m.onnx", mlp_model(256, 2048, 8));
  std::string body = "{\"instances\":[[0";
  for (int i = 1; i < 256; ++i) body += ",1";
  body += "]]}";
  for (int round = 0; round < 5; ++round) {
    Running server({.models = t.path().string(), .defaults = {.max_batch = 1}});
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int k = 0; k < 16; ++k) {
      clients.push_back(server.client());
      clients.back()->send(request_text("POST", "/v1/models/m:predict", "h", body, {}));
    }
    EXPECT_EQ(clients[0]->receive().status, 200);
    server->drain(0, 0);
    server->drain(0, 0);
    server.join();
  }
}

}  // namespace
}  // namespace tandem::serve
