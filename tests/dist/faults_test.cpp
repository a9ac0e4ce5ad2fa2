// SPDX-License-Identifier: Apache-2.0
// What goes wrong in jobs, one scenario each: every rank names the culprit with rank, host, step
// and call, all end within the deadline, and no process is left. Ranks that share this process play
// what happens before a job is together; the others are started by launch().
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/files/file.h"
#include "tandem/compile/compile.h"
#include "tandem/dist/carrier_internal.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/dist/deeds_helper.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/environment.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

// ---- what a rank does

struct Net : nn::Module {
  nn::Linear first, second;
  Net(int64_t hidden, bool bias) : first(4, hidden), second(hidden, 2, {.bias = bias}) {
    TD_REGISTER(first, second);
  }
  Tensor forward(Tensor x) { return second(relu(first(x))); }
};

// Rank 1 acts once the others have ended step 2: what they then know of it does not depend on how
// fast they are.
void meet_before_deed(const Engine& e) {
  const std::string folder = std::getenv("TANDEM_TEST_FOLDER");
  if (e.rank() != 1) {
    write_file(fmt::format("{}/{}", folder, e.rank()), "");
    return;
  }
  const Clock::time_point begin = Clock::now();
  for (int r = 0; r < e.size(); r += 2)
    while (!file_exists(fmt::format("{}/{}", folder, r)) && seconds_since(begin) < 20)
      ::usleep(1000);
}

// 100 MB each way, of which rank 1 sees the first milliseconds, and so does rank 2 of some.
void move_much(Engine& e, Deed deed, Deed of_rank_2 = nullptr) {
  std::vector<float> x(25000000, 1.0f);
  e.barrier({"all are there", 20}).wait();
  std::jthread ends;
  if (e.rank() == 2) deed = of_rank_2;
  if (e.rank() != 0 && deed)
    ends = std::jthread([&] {
      ::usleep(30000);
      deed(e);
    });
  e.set_step(1);
  e.all_reduce({x.data(), static_cast<int64_t>(x.size()), DType::f32}, ReduceOp::sum, {"much", 20})
      .wait();
}

void train(const std::string& name) {
  const std::shared_ptr<Engine>& e = world();
  if (name == "kill while moving") return move_much(*e, deeds().at("kill"));
  if (name == "stop while moving") return move_much(*e, deeds().at("stop"));
  if (name == "kill while one sleeps")
    return move_much(*e, deeds().at("kill"), deeds().at("sleep"));
  const bool odd = e->rank() == 1;
  Net net(name == "wrong shape" && odd ? 9 : 8, !(name == "no bias" && odd));
  if (name == "wrong dtype" && odd) net.second.to(DType::f64);
  if (name == "frozen" && odd) net.first.requires_grad_(false);
  DataParallel model(net, {.shards = name == "wrong options" && odd ? 2 : 4});
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  auto update = [&] {
    opt.zero_grad();
    model(ones({2, 4})).sum().backward();
    opt.step();
    return zeros({});
  };
  constexpr std::string_view kCompiled = " compiled";
  const bool compiled = name.ends_with(kCompiled);
  const auto deed = deeds().find(compiled ? name.substr(0, name.size() - kCompiled.size()) : name);
  auto program = compile(update);
  for (int step = 1; step <= 6; ++step) {
    if (step == 3 && deed != deeds().end()) {
      meet_before_deed(*e);
      if (odd) deed->second(*e);
    }
    compiled ? program() : update();
  }
}

// The child of the tests below; by itself there is nothing to play.
TEST(FaultChild, Plays) {
  if (scenario().empty() || scenario().starts_with("matrix") || scenario() == "near")
    GTEST_SKIP() << "played by other tests";
  if (scenario() == "exec") return;
  if (scenario() == "a call comes first") {  // and joins the job by itself
    const Tensor sum = all_reduce(ones({2}));
    barrier();
    fmt::print("the sum is {}\n", sum.sum().item<float>());
    return;
  }
  try {
    train(scenario());
  } catch (const Error& e) {
    fmt::print(stderr, "error {}: {}\n", to_string(e.kind()), e.what());
    std::fflush(stderr);
    ::_exit(70);
  }
  fmt::print("trained\n");
}

struct Fault {
  const char* name;
  int code;                        ///< of the job
  int failed;                      ///< the rank that the launcher names
  std::vector<const char*> texts;  ///< of ranks 0 and 2
  double most = 20;                ///< seconds
  const char* engine = "tcp";
  double notice = 4;                    ///< seconds, of play()
  std::vector<const char*> below = {};  ///< in what all print
};
void PrintTo(const Fault& f, std::ostream* out) { *out << f.name; }

class Faults : public ::testing::TestWithParam<Fault> {};
TEST_P(Faults, AreNamed) {
  const Fault& f = GetParam();
  if (f.engine != std::string("tcp") && !find_plugin(f.engine).carrier)
    GTEST_SKIP() << find_plugin(f.engine).problem;
  const Environment engine("TANDEM_DIST_ENGINE", f.engine);
  const Played p = play(f.name, 3, f.notice);
  EXPECT_EQ(p.result.code, f.code) << p.err;
  if (f.failed >= 0) {
    EXPECT_EQ(p.result.failed, f.failed) << p.result.text << "\n" << p.err;
  }
  for (const char* text : f.texts)
    for (const char* rank : {"[0] error", "[2] error"}) {
      bool found = false;
      for (size_t at = p.err.find(rank); at != p.err.npos; at = p.err.find(rank, at + 1))
        found |= has(p.err.substr(at, p.err.find('\n', at) - at), text);
      EXPECT_TRUE(found) << rank << " lacks: " << text << "\n" << p.err;
    }
  for (const char* text : f.below) EXPECT_TRUE(has(p.err, text)) << text << "\n" << p.err;
  EXPECT_LT(p.seconds, f.most);
  EXPECT_EQ(p.left, 0);
}
const char* kHost = "rank 1 (host ";
INSTANTIATE_TEST_SUITE_P(
    Scenarios, Faults,
    ::testing::Values(
        Fault{"none", 0, -1, {}},
        Fault{"kill",
              137,
              1,
              {kHost, "is dead: its connections closed without a word, last seen in step 2",
               "at call #7 all_reduce sum float32"}},
        Fault{"segv", 139, 1, {kHost, "is dead", "in step 2"}},
        Fault{"exit 7", 7, 1, {kHost, "is dead", "in step 2"}}, Fault{"child", 9, 1, {}},
        Fault{"child in a group", 9, 1, {}},
        Fault{"stop",
              70,
              -1,
              {kHost, "has not answered for 3.", "in step 2"},
              20,
              "tcp",
              4,
              {"It is stopped, by a signal or a debugger."}},
        Fault{"hang",
              70,
              -1,
              {kHost, "lives but has not made call #", "for 4.0 s, last seen in step 2"},
              20,
              "tcp",
              4,
              {"Where rank 1 is, the innermost call first:", "] usleep+0x",
               "] tandem::distributed::hang+0x", "(tandem_test_dist)"}},
        Fault{"kill compiled", 137, 1, {kHost, "is dead", "in step 2 at call #"}},
        Fault{"hang compiled", 70, -1, {"in step 3, call #", kHost, "last seen in step 2"}},
        Fault{"deaf", 70, -1, {kHost, "lives but has not made call #"}, 25},
        Fault{"exit 0", 70, -1, {kHost, "has left the group", "in step 2"}},
        Fault{"throw", 70, -1, {kHost}},
        Fault{"abort", 70, -1, {kHost, "has ended the group: the disk is full"}},
        Fault{"other call", 70, -1, {"rank 1", "broadcast from rank 0 float32[1] 'the rate'"}},
        Fault{"one call more", 70, -1, {"rank 1", "float32[1] 'the loss'", "bucket 0"}},
        Fault{"wrong shape",
              70,
              -1,
              {"the nets of the ranks differ: rank 0 has parameter 'first.weight' float32[8, 4], "
               "rank 1 ",
               "has parameter 'first.weight' float32[9, 4]"}},
        Fault{"no bias",
              70,
              -1,
              {"rank 0 has parameter 'second.bias' float32[2], rank 1 ", "has bucket 0"}},
        Fault{"wrong dtype",
              70,
              -1,
              {"rank 0 has parameter 'second.weight' float32",
               "has parameter 'second.weight' float64"}},
        Fault{"frozen", 70, -1, {"has parameter 'first.weight' float32[8, 4], frozen"}},
        Fault{"wrong options",
              70,
              -1,
              {"shards=4 sync_batchnorm=false sharding=0 bucket_cap_mb=0", ", rank 1 (host ",
               "shards=2"}},
        Fault{"kill", 137, 1, {kHost, "is dead", "in step 2"}, 20, "gloo"},
        // Where a connection closes while bytes of a send are on their way, Gloo (of 2022) does not
        // wake who waits for that send: it says its error when its time is over, which is the
        // deadline and a second.
        Fault{"kill while moving", 137, 1, {kHost, "is dead", "in step 1"}, 20, "gloo", 8},
        // Rank 2 wakes when both others are gone, and writes to what they have closed.
        Fault{"kill while one sleeps", 137, 1, {kHost, "is dead"}, 20, "gloo", 8},
        Fault{"stop while moving", 70, -1, {kHost, "has not answered for 3."}, 20, "gloo"}));

// ---- the launcher

TEST(Launcher, PrefixesLinesAndGivesVariables) {
  ::testing::internal::CaptureStdout();
  const LaunchResult r =
      launch({.ranks = 2,
              .command = {"sh", "-c",
                          "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
                          "$TANDEM_NUM_THREADS ${#TANDEM_TOKEN} $((MASTER_PORT > 0)); printf tail"},
              .threads = 1});
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(r.code, 0);
  for (const char* line : {"[0] 0 0 2 2 127.0.0.1 1 64 1\n", "[1] 1 1 2 2 127.0.0.1 1 64 1\n",
                           "[0] tail\n", "[1] tail\n"})
    EXPECT_EQ(count(out, line), 1u) << out;
}

TEST(Launcher, TheFirstCallJoinsTheJob) {
  const Played p = play("a call comes first", 3);
  EXPECT_EQ(p.result.code, 0) << p.err;
  EXPECT_EQ(count(p.out, "the sum is 6\n"), 3u) << p.out << p.err;
}

TEST(Launcher, EndsAllWhenOneFails) {
  const Clock::time_point begin = Clock::now();
  const LaunchResult r = launch(
      {.ranks = 3, .command = {"sh", "-c", "[ $RANK = 2 ] && exit 5; sleep 100"}, .grace = 1});
  EXPECT_EQ(r.code, 5);
  EXPECT_EQ(r.failed, 2);
  EXPECT_TRUE(has(r.text, "ended with code 5")) << r.text;
  EXPECT_LT(seconds_since(begin), 20);
}

TEST(Launcher, PassesSignalsOn) {
  char folder[] = "/tmp/tandem-ranks-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string runs = std::string(folder) + "/";
  const pid_t child = ::fork();
  if (child == 0) {
    const LaunchResult r =
        launch({.ranks = 2, .command = {"sh", "-c", "touch " + runs + "$RANK; exec sleep 100"}});
    ::_exit(r.code);
  }
  const Clock::time_point begin = Clock::now();
  while (!(file_exists(runs + "0") && file_exists(runs + "1")) && seconds_since(begin) < 20)
    ::usleep(1000);
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 130);
  std::filesystem::remove_all(folder);
}

TEST(Launcher, RefusesWhatCannotRun) {
  EXPECT_TRUE(
      has(thrown([] { launch({.ranks = 2, .command = {"/no/such/program"}}); }, ErrorKind::Io),
          "'/no/such/program' cannot be started: No such file"));
  EXPECT_TRUE(has(thrown([] { launch({.ranks = 0, .command = {"true"}}); }, ErrorKind::Value),
                  "1 to 1024 ranks, got 0"));
  EXPECT_TRUE(has(thrown([] { launch({.ranks = 1}); }, ErrorKind::Value), "expects a program"));
}

// ---- before a job is together

void meet_only(const std::shared_ptr<Engine>& e) { e->barrier().wait(); }

TEST(Rendezvous, StrangersAreKeptOut) {
  const int port = some_port();
  EngineOptions o = quick_options();
  std::thread rank0([&] { meet_only(make_engine(place_of(0, 2, port), o)); });
  const auto knock = [&](const char* bytes, size_t n) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<uint16_t>(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) ::usleep(1000);
    EXPECT_EQ(::send(fd, bytes, n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
    return fd;
  };
  const std::string noise(1000, 'x');
  const int silent = knock("", 0), talks = knock(noise.data(), noise.size());
  // A rank with another token is told so.
  o.token = "a token that is another one";
  const std::string text = thrown([&] { make_engine(place_of(1, 2, port), o); }, ErrorKind::Io);
  EXPECT_TRUE(has(text, "did not let rank 1 in")) << text;
  o.token = quick_options().token;
  const Clock::time_point begin = Clock::now();
  meet_only(make_engine(place_of(1, 2, port), o));  // the silent one holds nobody up
  EXPECT_LT(seconds_since(begin), 10);
  rank0.join();
  ::close(silent);
  ::close(talks);
}

TEST(Rendezvous, WrongJobs) {
  const int port = some_port();
  EngineOptions o = quick_options();
  o.start_timeout = 5;
  std::string first;
  std::thread rank0(
      [&] { first = thrown([&] { make_engine(place_of(0, 3, port), o); }, ErrorKind::Io); });
  std::thread rank1([&] { thrown([&] { make_engine(place_of(1, 3, port), o); }, ErrorKind::Io); });
  ::usleep(1000000);
  const auto text = [&](int rank, int size, ErrorKind kind) {
    return thrown([&] { make_engine(place_of(rank, size, port), o); }, kind);
  };
  EXPECT_TRUE(has(text(0, 3, ErrorKind::Io), "is taken: another job runs there"));
  EXPECT_TRUE(has(text(1, 3, ErrorKind::Value), "rank 1 is there already"));
  EXPECT_TRUE(has(text(2, 4, ErrorKind::Value),
                  "rank 2 says that there are 4 ranks, rank 0 at 127.0.0.1:"));
  rank0.join();
  rank1.join();
  EXPECT_TRUE(has(first, "1 of 3 ranks have not come to 127.0.0.1:")) << first;
  EXPECT_TRUE(has(first, "within 5 s: 2")) << first;
  EXPECT_TRUE(has(text(1, 3, ErrorKind::Io), "nobody answers on 127.0.0.1:"));
}

TEST(Rendezvous, TheUsersOwnSecret) {
  char folder[] = "/tmp/tandem-token-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  {
    const Environment cache("TANDEM_CACHE_DIR", folder), none("TANDEM_TOKEN", "");
    EngineOptions o = quick_options();
    o.token = "";
    run_ranks(2, meet_only, o);
    EXPECT_EQ(read_file(std::string(folder) + "/dist-token").size(), 64u);
    const Environment brief("TANDEM_TOKEN", "brief");
    EXPECT_TRUE(has(errors_of_ranks(2, meet_only, o)[0], "expected at least 16"));
  }
  std::filesystem::remove_all(folder);
}

// ---- calls that ranks of one process make

TEST(Faults, CallsThatDiffer) {
  const struct {
    void (*call)(Engine& e);
    const char* text;
  } kCases[] = {
      {[](Engine& e) {
         float x[4] = {};
         e.all_reduce({x, e.rank() == 1 ? 3 : 4, DType::f32}).wait();
       },
       "all_reduce sum float32[3]"},
      {[](Engine& e) {
         double x[4] = {};
         e.all_reduce({x, 2, e.rank() == 1 ? DType::f32 : DType::f64}).wait();
       },
       "all_reduce sum float32[2]"},
      {[](Engine& e) {
         float x[4] = {};
         e.all_reduce({x, 4, DType::f32}, e.rank() == 1 ? ReduceOp::max : ReduceOp::sum).wait();
       },
       "all_reduce max float32[4]"},
      {[](Engine& e) {
         float x[4] = {};
         e.broadcast({x, 4, DType::f32}, e.rank() == 1 ? 1 : 0).wait();
       },
       "broadcast from rank 1 float32[4]"},
      {[](Engine& e) {
         float x[4] = {};
         e.all_reduce({x, 4, DType::f32}, ReduceOp::sum, {e.rank() == 1 ? "b" : "a"}).wait();
       },
       "all_reduce sum float32[4] 'b'"},
  };
  for (const auto& c : kCases)
    for (const std::string& text :
         errors_of_ranks(3, [&](const std::shared_ptr<Engine>& e) { c.call(*e); })) {
      EXPECT_TRUE(has(text, "the ranks make different calls")) << text;
      EXPECT_TRUE(has(text, c.text) && has(text, "rank 1")) << text;
    }
}

TEST(Faults, SendWithoutRecv) {
  EngineOptions o = quick_options();
  o.timeout = 1;
  o.deadline = 5;
  const std::vector<std::string> texts = errors_of_ranks(
      2,
      [](const std::shared_ptr<Engine>& e) {
        float x = 0;
        if (e->rank() == 0) e->recv({&x, 1, DType::f32}, 1, {"the mask"}).wait();
        ::usleep(2000000);
        e->barrier().wait();
      },
      o);
  EXPECT_TRUE(
      has(texts[0], "has waited 1.0 s in recv from rank 1 float32[1] 'the mask' for rank 1"))
      << texts[0];
  EXPECT_TRUE(has(texts[1], "every send needs a matching recv")) << texts[1];
}

// Rank 3 waits for rank 2, which waits for rank 1: that one is late.
TEST(Faults, TheRankThatOthersWaitForIsNamed) {
  EngineOptions o = quick_options();
  o.timeout = 2.5;
  const std::vector<std::string> texts = errors_of_ranks(
      4,
      [](const std::shared_ptr<Engine>& e) {
        float x = 0;
        if (e->rank() == 3) e->recv({&x, 1, DType::f32}, 2, {"a value"}).wait();
        if (e->rank() == 2) e->recv({&x, 1, DType::f32}, 1, {"a value", 20}).wait();
        ::usleep(4000000);
        e->barrier().wait();
      },
      o);
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "rank 3 has waited 2.5 s in recv from rank 2")) << text;
    EXPECT_TRUE(has(text, "for rank 1 (host ")) << text;
    EXPECT_TRUE(has(text, "for which others wait too")) << text;
  }
}

// A rank that makes no call hears of the end all the same: with no launcher it ends by itself.
TEST(Faults, AHungRankEndsWithItsGroup) {
  const int port = some_port();
  EngineOptions o = quick_options();
  o.deadline = 2;
  const pid_t hung = ::fork();
  if (hung == 0) {
    ::freopen("/dev/null", "w", stderr);
    const std::shared_ptr<Engine> e = make_engine(place_of(1, 2, port), o);
    for (;;) ::usleep(1000);
  }
  o.timeout = 1;
  const std::shared_ptr<Engine> e = make_engine(place_of(0, 2, port), o);
  EXPECT_TRUE(
      has(thrown([&] { e->barrier({"here"}).wait(); }, ErrorKind::Io), "lives but has not made"));
  EXPECT_TRUE(has(thrown([&] { e->barrier(); }, ErrorKind::Io), "lives but has not made"));
  int status = 0;
  ::waitpid(hung, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 70);
}

}  // namespace
}  // namespace tandem::distributed
