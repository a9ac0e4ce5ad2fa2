// SPDX-License-Identifier: Apache-2.0
// Folders of Triton, TensorFlow Serving and TorchServe, served as they are.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/base/budget.h"
#include "tandem/io/text_proto.h"
#include "tandem/io/zip_internal.h"
#include "tandem/serve/model/foreign_internal.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

bool any_has(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& n) { return has(n, part); });
}

TEST(TextProto, ReadsWhatProtobufWrites) {
  const io::TextMessage m = io::parse_text_proto(
      "# a comment\nname: \"a\" 'b\\n\\x41\\101'  n: -7; yes: true,\n"
      "list: [1, 2,\n 3]\ninner { x: 1 } inner: < x: 2 >\nempty: []\n[a.b/c] { }\n",
      "text");
  EXPECT_EQ(m.find("name")->text, "ab\nAA");
  EXPECT_EQ(m.find("n")->as_int(), -7);
  EXPECT_EQ(m.find("yes")->as_bool(), true);
  EXPECT_EQ(m.find("list")->as_int(), 3);
  EXPECT_EQ(m.find("inner")->message[0].find("x")->as_int(), 2);
  EXPECT_EQ(m.find("inner")->line, 5);
  EXPECT_EQ(m.find("empty"), nullptr);
  EXPECT_EQ(m.fields.size(), 9U);
  EXPECT_EQ(m.find("name")->as_int(), std::nullopt);
}

TEST(TextProto, SaysWhatIsDamaged) {
  const std::pair<std::string, const char*> cases[] = {
      {"a: \"x\n", "line 1: a string does not end"},
      {"a {\n b: 1\n", "line 3: the message does not"},
      {"a: 1 }", "a brace is closed"},
      {"a b", "after 'a' comes a colon"},
      {"a:", "'a' has no value"},
      {"a: [1, 2", "a list does not end"},
      {": 1", "a field has a name"},
      {"[a", "does not end"},
      {"a: '\\x'", "damaged escape"},
      {"a: '\\777'", "damaged escape"},
  };
  for (const auto& [text, says] : cases) {
    const std::string said =
        thrown([&, t = text] { io::parse_text_proto(t, "f"); }, ErrorKind::Format);
    EXPECT_TRUE(has(said, says)) << text << ": " << said;
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "a{";
  EXPECT_TRUE(has(thrown([&] { io::parse_text_proto(deep, "f"); }), "nested too deeply"));
}

const char* const kConfig = R"(
name: "scale"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" } ]
version_policy: { specific: { versions: [1, 3] } }
instance_group [ { count: 2 kind: KIND_GPU } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 150
  default_queue_policy { max_queue_size: 32 default_timeout_microseconds: 500000 }
  priority_levels: 4
  default_priority_level: 2
}
optimization { graph { level: 1 } }
parameters { key: "a" value: { string_value: "b" } }
)";

TEST(FromTriton, ItsRepositoryIsServed) {
  const TempFolder t;
  for (const int v : {1, 2, 3})
    put_model(t / ("repo/scale/" + std::to_string(v) + "/model.onnx"),
              scale_model(static_cast<float>(v)));
  write_file(t / "repo/scale/config.pbtxt", kConfig);
  put_model(t / "repo/plain/1/net.onnx", scale_model(10));
  write_file(t / "repo/plain/config.pbtxt",
             "default_model_filename: 'net.onnx' platform: 'onnxruntime_onnx'");
  put_model(t / "repo/both/1/model.onnx", scale_model(1));
  write_file(t / "repo/both/config.pbtxt", "platform: \"ensemble\"");

  const auto layout = open_foreign("triton", t / "repo");
  EXPECT_EQ(layout->names(), (std::vector<std::string>{"both", "plain", "scale"}));
  const ForeignModel m = layout->model("scale", {});
  EXPECT_EQ(m.settings.versions, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(m.settings.max_batch, 8);
  EXPECT_EQ(m.settings.instances, 2);
  EXPECT_EQ(m.settings.delay_us, 150);
  EXPECT_EQ(m.settings.queue, 32);
  EXPECT_EQ(m.settings.timeout_ms, 500);
  EXPECT_EQ(m.settings.priority_levels, 4);
  EXPECT_EQ(m.settings.default_priority, 2);
  EXPECT_EQ(m.settings.shapes, "x:1x4");
  for (const char* name : {"'optimization' (line 16)", "'parameters'", "'preferred_batch_size'"})
    EXPECT_TRUE(any_has(m.notes, name)) << name;
  if (is_host(device_named("auto"))) {
    EXPECT_TRUE(any_has(m.notes, "'kind' (line 8) has no effect: no CUDA device is there"));
    EXPECT_TRUE(m.settings.devices.empty());
  } else {
    EXPECT_EQ(m.settings.devices, std::vector<std::string>{"cuda:0"});
  }
  EXPECT_FALSE(any_has(m.notes, "'name'"));

  Running server({.models = t / "repo", .from = "triton", .allow_load = true});
  EXPECT_EQ(server.post("/predictions/scale", "[[1,2,3,4]]").body, "{\"y\":[[3.0,6.0,9.0,12.0]]}");
  EXPECT_EQ(server.post("/predictions/scale/1", "[[1,2,3,4]]").body, "{\"y\":[[1.0,2.0,3.0,4.0]]}");
  EXPECT_EQ(server.get("/v2/models/scale/versions/2").status, 404);
  EXPECT_EQ(server.post("/predictions/plain", "[[1,1,1,1]]").body,
            "{\"y\":[[10.0,10.0,10.0,10.0]]}");
  EXPECT_EQ(server.get("/v2/models/both").status, 404);
  EXPECT_TRUE(has(server.post("/v2/repository/index", "").body, "needs ensemble_scheduling"));
  // A change of the configuration holds after a reload.
  write_file(t / "repo/scale/config.pbtxt", "version_policy { latest { num_versions: 1 } }");
  put_model(t / "repo/scale/7/model.onnx", scale_model(7));
  EXPECT_EQ(server.post("/v2/repository/models/scale/load", "").status, 200);
  EXPECT_EQ(server.post("/predictions/scale", "[[1,1,1,1]]").body, "{\"y\":[[7.0,7.0,7.0,7.0]]}");
  EXPECT_EQ(server.get("/v2/models/scale/versions/1").status, 404);
}

TEST(FromTriton, GroupsOfInstancesAddUp) {
  const TempFolder t;
  put_model(t / "repo/m/1/model.onnx", scale_model(1));
  write_file(t / "repo/m/config.pbtxt",
             "instance_group [ { count: 2 kind: KIND_CPU }, { count: 3 kind: KIND_CPU } ]");
  const ForeignModel m = open_foreign("triton", t / "repo")->model("m", {});
  EXPECT_EQ(m.settings.instances, 5);
  EXPECT_TRUE(m.settings.devices.empty());
}

TEST(FromTriton, RefusesByName) {
  const TempFolder t;
  put_model(t / "repo/m/1/model.onnx", scale_model(1));
  const std::pair<std::string, const char*> cases[] = {
      {"backend: 'python'", "line 1: the backend 'python' runs the model's code"},
      {"\nplatform: 'tensorrt_plan'", "line 2: models of 'tensorrt_plan' cannot be read"},
      {"sequence_batching { }", "names no state"},
      {"sequence_batching { state { input_name: 'a' output_name: 'b' initial_state { data_file: "
       "'f' } } }",
       "not read from a file"},
      {"sequence_batching { state { input_name: 'a' } }", "needs input_name and output_name"},
      {"sequence_batching { control_input { name: 'a' control { kind: CONTROL_SEQUENCE_START "
       "fp32_false_true: [0, 2] } } }",
       "controls are 0 and 1"},
      {"model_transaction_policy { decoupled: true }", "several answers"},
      {"name: 'other'", "the name 'other' is not the folder's"},
      {"max_batch_size: -1", "'max_batch_size' expects a whole number from 0"},
      {"max_batch_size: 1.5", "got '1.5'"},
      {"instance_group { count: 1000 }", "'count' expects"},
      {"dynamic_batching: 3", "'dynamic_batching' expects { ... }"},
      {"version_policy { specific { versions: [0] } }", "'versions' expects"},
      {"default_model_filename: '../../etc/passwd'", "is not the name of a file"},
      {"input {", "the message does not end"},
  };
  for (const auto& [text, says] : cases) {
    write_file(t / "repo/m/config.pbtxt", text);
    const std::string said = thrown([&] { open_foreign("triton", t / "repo")->model("m", {}); });
    EXPECT_TRUE(has(said, says)) << text << ": " << said;
  }
  EXPECT_TRUE(has(thrown([&] { open_foreign("tritn", t / "repo"); }), "did you mean 'triton'"));
  EXPECT_TRUE(has(thrown([&] { open_foreign("triton", t / "none"); }), "no such file or folder"));
  EXPECT_TRUE(has(thrown([&] { open_foreign("triton", t / "repo")->model("../m", {}); }),
                  "there is no model"));
}

TEST(FromTensorflowServing, ItsModelListIsServed) {
  const TempFolder t;
  for (const int v : {1, 4, 9})
    put_model(t / ("far/scale/" + std::to_string(v) + "/model.onnx"),
              scale_model(static_cast<float>(v)));
  put_model(t / "conf/near/00000002/model.onnx", scale_model(2));
  write_file(t / "conf/models.config",
             "model_config_list {\n  config {\n    name: 'scale'\n    base_path: '" +
                 (t / "far/scale") +
                 "'\n    model_platform: 'tensorflow'\n    model_version_policy { all {} }\n"
                 "    version_labels { key: 'stable' value: 4 }\n"
                 "    logging_config { sampling_config { } }\n  }\n"
                 "  config { name: 'near' base_path: 'near' }\n}\n");
  const ForeignModel m = open_foreign("tfserving", t / "conf")->model("scale", {});
  EXPECT_EQ(m.settings.latest, 0);
  EXPECT_TRUE(any_has(m.notes, "'logging_config' (line 8)"));
  Running server({.models = t / "conf/models.config", .from = "tfserving"});
  EXPECT_EQ(server->repository().versions("scale").size(), 3U);
  const std::string rows = "{\"instances\": [[1, 1, 1, 1]]}";
  EXPECT_TRUE(has(server.post("/v1/models/scale:predict", rows).body, "[9.0,9.0,9.0,9.0]"));
  EXPECT_TRUE(
      has(server.post("/v1/models/scale/labels/stable:predict", rows).body, "[4.0,4.0,4.0,4.0]"));
  EXPECT_TRUE(has(server.post("/v1/models/near:predict", rows).body, "[2.0,2.0,2.0,2.0]"));
  // A base path alone, as --model_base_path has it.
  Running alone({.models = t / "far/scale", .from = "tfserving"});
  EXPECT_EQ(alone.post("/v1/models/scale:predict", rows).status, 200);

  const std::pair<std::string, const char*> cases[] = {
      {"model_config_list { config { name: 'a' base_path: 's3://b/a' } }", "no URL is fetched"},
      {"model_config_list { config { name: 'a' } }", "'a' has no base_path"},
      {"model_config_list { config { base_path: '/' } }", "a config needs a name"},
      {"model_config_list { config { name: 'a' } config { name: 'a' } }", "stands there twice"},
      {"model_config_list { config { name: '../a' base_path: 'x' } }", "a config needs a name"},
      {"model_config_list { config { name: 'a' base_path: '/nowhere/at/all' } }", "No such file"},
      {"model_config_lst { }", "'model_config_lst' is not a field"},
      {"custom_model_config { }", "is code"},
  };
  for (const auto& [text, says] : cases) {
    write_file(t / "bad", text);
    const std::string said = thrown([&] { open_foreign("tfserving", t / "bad")->model("a", {}); });
    EXPECT_TRUE(has(said, says)) << text << ": " << said;
  }
}

// An archive as torch-model-archiver makes it.
void put_archive(const std::string& path, const std::string& manifest,
                 const std::vector<std::pair<std::string, std::string>>& files) {
  io::ZipWriter zip(path);
  for (const auto& [name, content] : files) zip.add(name, {content}, true);
  if (!manifest.empty()) zip.add("MAR-INF/MANIFEST.json", {manifest}, true);
  zip.commit();
}
std::string manifest_of(const std::string& weights) {
  return "{\"runtime\": \"python\", \"model\": {\"modelName\": \"scale\", \"serializedFile\": \"" +
         weights + "\", \"handler\": \"handler.py\", \"modelVersion\": \"2.1\"}, " +
         "\"archiverVersion\": \"0.12.0\"}";
}

TEST(FromTorchServe, ArchivesOfOnnxAreServedOthersAreExplained) {
  const TempFolder t;
  std::filesystem::create_directories(t / "ts/model-store");
  put_archive(t / "ts/model-store/scale.mar", manifest_of("net.onnx"),
              {{"net.onnx", scale_model(5)}, {"handler.py", "import os"}});
  put_archive(t / "ts/model-store/dense.mar", manifest_of("dense.pt"),
              {{"dense.pt", std::string(3000, 'w')},
               {"handler.py", "import os"},
               {"index_to_name.json", "{}"}});
  write_file(t / "ts/config.properties",
             "# of TorchServe\ninference_address=http://0.0.0.0:8765\njob_queue_size = 77\n"
             "load_models: all\ndefault_workers_per_model=2\nmax_request_size=1048576\n"
             "models={\\\n  \"scale\": {\"2.1\": {\"marName\": \"scale.mar\", \\\n"
             "  \"batchSize\": 16, \"maxBatchDelay\": 3, \"responseTimeout\": 9}}}\n");
  const ServerSettings s = read_server_settings(
      "", {"models=" + (t / "ts"), "from=torchserve", "defaults.latest=0", "body_mb=2"});
  EXPECT_EQ(s.port, 8765);
  EXPECT_EQ(s.host, "127.0.0.1") << "open to others only where it is asked for";
  EXPECT_EQ(s.defaults.queue, 77);
  EXPECT_EQ(s.defaults.instances, 2);
  EXPECT_EQ(s.defaults.latest, 0);
  EXPECT_EQ(s.body_mb, 2) << "what was given wins";
  const auto layout = open_foreign("torchserve", t / "ts");
  const ForeignModel m = layout->model("scale", s.defaults);
  EXPECT_EQ(m.settings.max_batch, 16);
  EXPECT_EQ(m.settings.delay_us, 3000);
  EXPECT_TRUE(any_has(m.notes, "'responseTimeout'"));
  EXPECT_TRUE(any_has(m.notes, "the handler 'handler.py' is code and is not run"));
  EXPECT_FALSE(file_exists(m.folder + "/handler.py"));
  const std::string said = thrown([&] { layout->model("dense", {}); }, ErrorKind::Unsupported);
  for (const char* part :
       {"'dense.mar' holds version 2.1", "weights dense.pt (3000 B)", "handler handler.py",
        "index_to_name.json", "torch.onnx.export", "MODELS/dense/2/model.onnx"})
    EXPECT_TRUE(has(said, part)) << part << ": " << said;
  Running server({.models = t / "ts/config.properties", .from = "torchserve"});
  EXPECT_EQ(server.post("/predictions/scale/2", "[[1,1,1,1]]").body, "{\"y\":[[5.0,5.0,5.0,5.0]]}");
  EXPECT_EQ(server.post("/predictions/dense", "[[1,1,1,1]]").status, 404);
}

TEST(FromTorchServe, DamagedArchivesAreErrors) {
  const TempFolder t;
  std::filesystem::create_directories(t / "s");
  const std::string file = t / "s/a.mar";
  const auto says = [&] {
    return thrown([&] { open_foreign("torchserve", t / "s")->model("a", {}); });
  };
  EXPECT_TRUE(has(says(), "has no archives"));
  write_file(file, "not a zip file");
  EXPECT_TRUE(has(says(), "a.mar"));
  put_archive(file, "", {{"x", "y"}});
  EXPECT_TRUE(has(says(), "has no MAR-INF/MANIFEST.json"));
  put_archive(file, "{\"model\": 3}", {});
  EXPECT_TRUE(has(says(), "describes no model"));
  put_archive(file, "{", {});
  EXPECT_TRUE(has(says(), "a.mar"));
  put_archive(file, manifest_of("../../net.onnx"), {{"../../net.onnx", scale_model(1)}});
  EXPECT_TRUE(has(says(), "does not hold the file"));
  EXPECT_FALSE(file_exists(t / "net.onnx"));
  // A few bytes that would become 32 MB, where files may cost one.
  set_default_limits({.bytes = 1 << 20});
  put_archive(file, manifest_of("net.onnx"), {{"net.onnx", std::string(32 << 20, '0')}});
  const std::string said = says();
  set_default_limits({});
  EXPECT_TRUE(has(said, "--limits")) << said;
  write_file(t / "s/config.properties", "load_models=http://x.example/a.mar");
  EXPECT_TRUE(has(says(), "no URL is fetched"));
  write_file(t / "s/config.properties", "load_models=../s/a.mar");
  EXPECT_TRUE(has(says(), "which is not in"));
}

}  // namespace
}  // namespace tandem::serve
