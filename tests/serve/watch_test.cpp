// SPDX-License-Identifier: Apache-2.0
// A folder that is watched: versions come and go under requests, what is half written is left
// alone, and what cannot be loaded does no harm.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>

#include "tandem/serve/model/folder_watch_internal.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

constexpr double kLooks = 0.02;
bool comes(const std::function<bool()>& what) {
  for (int i = 0; i < 4000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}
void let_looks_pass(int n) {
  std::this_thread::sleep_for(std::chrono::duration<double>(n * kLooks));
}

std::vector<int64_t> served(Running& server, const std::string& name) {
  std::vector<int64_t> out;
  for (const ModelVersionPtr& v : server->repository().versions(name)) out.push_back(v->version);
  return out;
}
bool serves(Running& server, const std::string& name, const std::vector<int64_t>& versions) {
  return comes([&] { return served(server, name) == versions; });
}
std::string reason_of(Running& server, const std::string& name) {
  for (const IndexEntry& e : server->repository().index())
    if (e.name == name && !e.reason.empty()) return e.reason;
  return "";
}

// The folder is there with its file or not at all, however late a look comes in between.
void put_version(const TempFolder& t, int v, const std::string& bytes) {
  put_model(t / fmt::format("m/.{}/model.onnx", v), bytes);
  fs::rename(t / fmt::format("m/.{}", v), t / fmt::format("m/{}", v));
}
void put_version(const TempFolder& t, int v) {
  put_version(t, v, scale_model(static_cast<float>(v)));
}

TEST(WatchedFolder, VersionsComeAndGoAndNoRequestFails) {
  const TempFolder t;
  put_version(t, 1);
  write_file(t / "m/serve.yaml", "latest: 2\n");
  Running server({.models = t.path().string(), .watch = kLooks});
  Askers clients(server, 3);
  for (int v = 2; v <= 8; ++v) {
    put_version(t, v);
    ASSERT_TRUE(serves(server, "m", {v - 1, v})) << v;
    fs::remove_all(t / fmt::format("m/{}", v - 1));
    ASSERT_TRUE(serves(server, "m", {v})) << v;
  }
  put_version(t, 20);
  ASSERT_TRUE(serves(server, "m", {8, 20}));
  fs::remove_all(t / "m/20");  // the newest goes
  ASSERT_TRUE(serves(server, "m", {8}));
  clients.stop();
  EXPECT_EQ(clients.wrong(), 0);
  EXPECT_GT(clients.answers(), 20);
  EXPECT_EQ(server.get("/v2/models/m/versions/20").status, 404);
}

TEST(WatchedFolder, ModelsComeAndGo) {
  const TempFolder t;
  put_model(t / "m.onnx", scale_model(1));
  Running server({.models = t.path().string(), .allow_load = true, .watch = kLooks});
  put_model(t / "new/1/model.onnx", scale_model(3));
  ASSERT_TRUE(serves(server, "new", {1}));
  put_model(t / "flat.onnx", scale_model(5));
  ASSERT_TRUE(serves(server, "flat", {1}));
  EXPECT_TRUE(has(server.post("/v2/models/flat/infer", Askers::kBody).body, "[5.0,5.0,5.0,5.0]"));
  put_model(t / "flat.onnx", scale_model(6));  // in its place
  EXPECT_TRUE(comes([&] {
    return has(server.post("/v2/models/flat/infer", Askers::kBody).body, "[6.0,6.0,6.0,6.0]");
  }));
  // Unloaded by request: it stays so, whatever happens to its files.
  EXPECT_EQ(server.post("/v2/repository/models/new/unload", "").status, 200);
  put_model(t / "new/2/model.onnx", scale_model(4));
  put_model(t / "last.onnx", scale_model(4));
  ASSERT_TRUE(serves(server, "last", {1}));
  let_looks_pass(4);
  EXPECT_TRUE(served(server, "new").empty());
  EXPECT_EQ(server.post("/v2/repository/models/new/load", "").status, 200);
  EXPECT_EQ(served(server, "new"), (std::vector<int64_t>{2}));
  fs::remove_all(t / "new");
  fs::remove(t / "flat.onnx");
  EXPECT_TRUE(serves(server, "new", {}));
  EXPECT_TRUE(serves(server, "flat", {}));
  EXPECT_EQ(server.get("/v2/health/ready").status, 200);
  EXPECT_EQ(served(server, "m"), (std::vector<int64_t>{1}));
}

TEST(WatchedFolder, WhatStaysKeepsItsCountsAndSettingsCount) {
  const TempFolder t;
  put_version(t, 1);
  put_version(t, 2);
  write_file(t / "m/serve.yaml", "latest: 0\n");
  Running server({.models = t.path().string(), .watch = kLooks});
  const ModelVersionPtr one = server->repository().find("m", "1");
  put_version(t, 3);
  ASSERT_TRUE(serves(server, "m", {1, 2, 3}));
  EXPECT_EQ(server->repository().find("m", "1"), one);
  write_file(t / "m/serve.yaml", "latest: 0\nlabels: [old=1]\n");
  ASSERT_TRUE(comes([&] { return server->repository().find("m", "old") != nullptr; }));
  EXPECT_NE(server->repository().find("m", "1"), one);
  write_file(t / "m/serve.yaml", "versions: [2]\n");
  EXPECT_TRUE(serves(server, "m", {2}));
}

TEST(WatchedFolder, WhatCannotBeLoadedKeepsTheOldAndIsSaidOnce) {
  const TempFolder t;
  put_version(t, 1);
  Running server({.models = t.path().string(), .watch = kLooks});
  ::testing::internal::CaptureStderr();
  put_version(t, 2, "no model");
  put_model(t / "other/1/model.onnx", "no model");
  EXPECT_TRUE(comes([&] { return !reason_of(server, "m").empty(); }));
  EXPECT_TRUE(comes([&] { return !reason_of(server, "other").empty(); }));
  let_looks_pass(10);
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t times = 0;
  for (size_t at = log.find("'m' has changed"); at != std::string::npos;
       at = log.find("'m' has changed", at + 1))
    ++times;
  EXPECT_EQ(times, 1U) << log;
  EXPECT_EQ(served(server, "m"), (std::vector<int64_t>{1}));
  EXPECT_FALSE(has(reason_of(server, "m"), t.path().string()));
  // A newcomer that fails does not make the server unready.
  EXPECT_EQ(server.get("/v2/health/ready").status, 200);
  put_model(t / "m/2/model.onnx", scale_model(2));
  EXPECT_TRUE(serves(server, "m", {2}));
  EXPECT_EQ(reason_of(server, "m"), "");
}

TEST(WatchedFolder, WhatIsStillWrittenIsLeftAlone) {
  const TempFolder t;
  put_version(t, 1);
  const double period = 0.3;
  Running server({.models = t.path().string(), .watch = period});
  const std::string whole = mlp_model(64, 256, 8);
  fs::create_directories(t / "m/2");
  put_model(t / "m/.3/model.onnx", "half a model");
  const auto begin = Clock::now();
  size_t written = 0;
  while (seconds_since(begin) < 4 * period) {
    if (written + 40 < whole.size()) written += 40;
    write_file(t / "m/2/model.onnx", whole.substr(0, written));
    ASSERT_EQ(reason_of(server, "m"), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(served(server, "m"), (std::vector<int64_t>{1}));
  write_file(t / "m/2/model.onnx", whole);
  EXPECT_TRUE(serves(server, "m", {2}));
  EXPECT_EQ(reason_of(server, "m"), "");
}

// The kernel tells of a folder before it can be asked to tell of what comes into it.
TEST(WatchedFolder, WhatComesIntoANewFolderIsNoticed) {
  const TempFolder t;
  put_model(t / "repo/m/1/model.onnx", scale_model(1));
  put_version(t, 1);
  Running own({.models = t.path().string(), .watch = kLooks});
  Running triton({.models = t / "repo", .from = "triton", .watch = kLooks});
  for (const char* folder : {"m/2", "repo/m/2"}) fs::create_directories(t / folder);
  let_looks_pass(5);
  for (const char* folder : {"m/2", "repo/m/2"})
    put_model(t / (std::string(folder) + "/model.onnx"), scale_model(2));
  EXPECT_TRUE(serves(own, "m", {2}));
  EXPECT_TRUE(serves(triton, "m", {2}));
}

TEST(WatchedFolder, FoldersOfOtherServersAreWatched) {
  const TempFolder t;
  put_model(t / "repo/m/1/model.onnx", scale_model(1));
  write_file(t / "repo/m/config.pbtxt", "backend: \"onnxruntime\"");
  put_model(t / "base/1/model.onnx", scale_model(1));
  write_file(t / "models.config",
             "model_config_list { config { name: 'n' base_path: 'base' model_platform: "
             "'tensorflow' } }");
  {
    Running server({.models = t / "repo", .from = "triton", .watch = kLooks});
    put_model(t / "repo/m/2/model.onnx", scale_model(2));
    EXPECT_TRUE(serves(server, "m", {2}));
    write_file(t / "repo/m/config.pbtxt", "version_policy { all {} }");
    EXPECT_TRUE(serves(server, "m", {1, 2}));
  }
  Running server({.models = t / "models.config", .from = "tfserving", .watch = kLooks});
  put_model(t / "base/7/model.onnx", scale_model(2));
  EXPECT_TRUE(serves(server, "n", {7}));
}

TEST(FolderWatch, TellsOfChangesAndStops) {
  const TempFolder t;
  FolderWatch watch;
  EXPECT_TRUE(watch.add({t.path().string()}));
  EXPECT_FALSE(watch.add({t.path().string()}));
  EXPECT_TRUE(watch.told());
  std::thread writer([&] { write_file(t / "new", "x"); });
  const auto begin = Clock::now();
  watch.wait_for_change(60);
  EXPECT_LT(seconds_since(begin), 50);
  writer.join();
  watch.add({t.path().string(), t / "none"});
  EXPECT_FALSE(watch.told());  // then it is looked at every period
  watch.stop();
  watch.wait_for_change(60);
  watch.pause(60);
  EXPECT_LT(seconds_since(begin), 50);
}

TEST(WatchedFolder, ThePeriodIsASetting) {
  EXPECT_EQ(server_options(read_server_settings("", {"models=m"})).watch, 1);
  EXPECT_EQ(server_options(read_server_settings("", {"models=m", "watch=0"})).watch, 0);
  EXPECT_TRUE(has(thrown([] { read_server_settings("", {"watch=-1"}); }), "watch"));
  EXPECT_TRUE(has(thrown([] { read_server_settings("", {"wacht=1"}); }), "did you mean 'watch'"));
}

}  // namespace
}  // namespace tandem::serve
