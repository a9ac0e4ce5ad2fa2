// SPDX-License-Identifier: Apache-2.0
// Ensembles: graphs of models with the bits of their models in turn, refused by name where they do
// not fit, and made again when a model is replaced.
#include "tandem/serve/model/ensemble.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "tandem/ops/ops.h"
#include "tandem/serve/deploy/models_internal.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const char* const kDiamond = R"(
ensemble:
  - {model: last, input_map: [a=left, b=flags], output_map: [na=result, nb=signs]}
  - {model: half, input_map: [x=image], output_map: [y=left]}
  - {model: count, input_map: [x=numbers], output_map: [y=flags]}
)";
const char* const kImage =
    "{\"inputs\":[{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[1,2,3,4]},"
    "{\"name\":\"numbers\",\"datatype\":\"INT64\",\"shape\":[2],\"data\":[5,-6]}]}";

std::string count_model() {
  return onnx::model({{onnx::node("Abs", {"x"}, {"y"})},
                      {},
                      {sized_port("x", 7, {-1})},
                      {sized_port("y", 7, {-1})}});
}

void put_diamond(const TempFolder& t) {
  put_model(t / "half/1/model.onnx", scale_model(0.5F, 2));
  put_model(t / "count/1/model.onnx", count_model());
  put_model(t / "last/1/model.onnx", pair_model());
  put_model(t / "a_graph/serve.yaml", kDiamond);
}

TEST(EnsembleModel, AGraphAnswersLikeItsModelsInTurn) {
  const TempFolder t;
  put_diamond(t);
  Running server({.models = t.path().string()});
  EXPECT_EQ(server.get("/v2/health/ready").status, 200);
  const std::string shown = server.get("/v2/models/a_graph").body;
  for (const char* part : {"\"platform\":\"tandem_ensemble\"",
                           "{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[-1,2]}",
                           "{\"name\":\"numbers\",\"datatype\":\"INT64\",\"shape\":[-1]}",
                           "\"name\":\"result\"", "\"name\":\"signs\""})
    EXPECT_TRUE(has(shown, part)) << part << "\n" << shown;
  EXPECT_FALSE(has(shown, "left"));
  const HttpResponse r = server.post("/v2/models/a_graph/infer", kImage);
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_TRUE(has(r.body, "\"data\":[-0.5,-1.0,-1.5,-2.0]")) << r.body;
  EXPECT_TRUE(has(r.body, "\"data\":[-5,-6]")) << r.body;
  EXPECT_TRUE(has(
      server.post("/v1/models/a_graph:predict", "{\"instances\":[{\"image\":[2,4],\"numbers\":3}]}")
          .body,
      "\"result\":[-1.0,-2.0]"));
  EXPECT_TRUE(has(server.get("/v2/models/a_graph/config").body,
                  "\"ensemble_scheduling\":{\"step\":[{\"model_name\":\"last\""));
  if (Http2Frames::available()) {
    io::ProtoWriter named;
    named.add_bytes(1, "a_graph");
    const GrpcAnswer config =
        grpc_call(server->port(), "/inference.GRPCInferenceService/ModelConfig", named);
    const auto steps = fields_of(field_of(field_of(config.message, 1), 15), 1);
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_EQ(field_of(steps[0], 1), "last");
    EXPECT_EQ(field_of(fields_of(steps[0], 3)[1], 2), "flags");
  }
  // What a step did is counted with its model, and with the ensemble. Two rows of a request are one
  // run (of any size that the warm-up found to be fast) or two.
  const std::string stats = server.get("/v2/models/half/stats").body;
  EXPECT_TRUE(has(stats, "\"execution_count\":2,") || has(stats, "\"execution_count\":3,"))
      << stats;
  const std::string metrics = server.get("/metrics").body;
  const auto two_or_three = [&](const std::string& name) {
    return has(metrics, name + " 2\n") || has(metrics, name + " 3\n");
  };
  EXPECT_TRUE(
      two_or_three("tandem_ensemble_step_seconds_count{ensemble=\"a_graph\",step=\"3\",model="
                   "\"last\",version=\"1\"}"))
      << metrics;
  EXPECT_TRUE(two_or_three("tandem_runs_total{model=\"count\",version=\"1\"}")) << metrics;
}

TEST(EnsembleModel, RowsHaveTheBitsThatTheyHaveAlone) {
  const TempFolder t;
  put_model(t / "first/1/model.onnx", mlp_model(16, 64, 24));
  put_model(t / "second/1/model.onnx", mlp_model(24, 32, 4));
  put_model(t / "both/serve.yaml",
            "ensemble:\n  - {model: first, input_map: [x=in], output_map: [y=mid]}\n"
            "  - {model: second, input_map: [x=mid], output_map: [y=out]}\n"
            "ensemble_outputs: [out, mid]\n");
  Running server({.models = t.path().string()});
  const auto model = [&](const char* name) { return server->repository().find(name)->model; };
  ASSERT_TRUE(model("both")->batched()) << model("both")->note();
  const Tensor x = randn({13, 16});
  const std::vector<Tensor> all = model("both")->run(0, {x}, 13);
  for (int64_t r = 0; r < 13; ++r) {
    const Tensor mid = model("first")->run(0, {x.narrow(0, r, 1).contiguous()}, 1)[0];
    const Tensor out = model("second")->run(0, {mid}, 1)[0];
    EXPECT_TRUE(same_bits(all[0].narrow(0, r, 1), out)) << r;
    EXPECT_TRUE(same_bits(all[1].narrow(0, r, 1), mid)) << r;
  }
}

TEST(EnsembleModel, WhatDoesNotFitIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"- {model: hlaf, input_map: [x=i], output_map: [y=o]}",
       "names the model 'hlaf', which is not served"},
      {"- {model: half, version: 7, input_map: [x=i], output_map: [y=o]}", "'half' of version 7"},
      {"- {model: graph, input_map: [x=i], output_map: [y=o]}", "names itself"},
      {"- {model: half, input_map: [z=i], output_map: [y=o]}", "'half' has no input 'z'"},
      {"- {model: half, input_map: [x=i], output_map: [yy=o]}",
       "has no output 'yy'; did you mean 'y'?"},
      {"- {model: half, input_map: [], output_map: [y=o]}", "input 'x' of the step 'half' has no"},
      {"- {model: half, input_map: [x=i], output_map: []}", "its output_map is empty"},
      {"- {model: half, input_map: [x], output_map: [y=o]}", "'input_map'"},
      {"- {model: half, input_map: [x=i, x=j], output_map: [y=o]}", "input 'x' twice"},
      {"- {model: half, input_map: [x=i], output_map: [y=o]}\n"
       "  - {model: half, input_map: [x=i], output_map: [y=o]}",
       "both 'half' and 'half' give the tensor 'o'"},
      {"- {model: half, input_map: [x=b], output_map: [y=a]}\n"
       "  - {model: half, input_map: [x=a], output_map: [y=b]}",
       "wait for one another"},
      {"- {model: half, input_map: [x=i], output_map: [y=o]}\n"
       "  - {model: count, input_map: [x=o], output_map: [y=p]}",
       "the tensor 'o' is float32 -1x2 for 'half' and int64 -1 for 'count'"},
      {"- {model: half, input_map: [x=i], output_map: [y=o]}\n"
       "  - {model: wide, input_map: [x=o], output_map: [y=p]}",
       "the tensor 'o' is float32 -1x2 for 'half' and float32 -1x4 for 'wide'"},
      {"- {model: half, input_map: [x=i], output_map: [y=o]}\nensemble_outputs: [oo]",
       "gives its output 'oo'; did you mean 'o'?"},
      {"- {model: half, input_map: [x=i], output_map: [y=o], inptu_map: []}",
       "did you mean 'input_map'"},
      {"- {model: keeps, input_map: [x=i], output_map: [y=o]}", "keeps a state"},
  };
  for (const auto& [steps, says] : cases) {
    const TempFolder t;
    put_diamond(t);
    put_model(t / "wide.onnx", scale_model(1));
    put_model(t / "keeps/1/model.onnx",
              onnx::model({{onnx::node("Add", {"x", "h"}, {"g"}), onnx::node("Neg", {"g"}, {"y"})},
                           {},
                           {sized_port("x", 1, {-1, 2}), sized_port("h", 1, {-1, 2})},
                           {sized_port("g", 1, {-1, 2}), sized_port("y", 1, {-1, 2})}}));
    put_model(t / "keeps/serve.yaml", "state: [h=g]\n");
    put_model(t / "graph/serve.yaml", std::string("ensemble:\n  ") + steps + "\n");
    Repository r({.folder = t.path().string()});
    r.load_all();
    std::string reason;
    for (const IndexEntry& e : r.index())
      if (e.name == "graph") reason = e.reason;
    EXPECT_TRUE(has(reason, says)) << steps << "\n" << reason;
    EXPECT_TRUE(r.find("a_graph"));
  }
}

TEST(EnsembleModel, EnsemblesOfEnsemblesAndCircles) {
  const TempFolder t;
  put_diamond(t);
  const auto one = [](const std::string& model, const std::string& in, const std::string& out) {
    return "ensemble:\n  - {model: " + model + ", input_map: [" + in + "], output_map: [" + out +
           "]}\n";
  };
  put_model(t / "b_half/serve.yaml", one("half", "x=in", "y=out"));
  put_model(t / "a_half/serve.yaml", one("b_half", "in=x", "out=y"));
  put_model(t / "c1/serve.yaml", one("c2", "x=x", "y=y"));
  put_model(t / "c2/serve.yaml", one("c1", "x=x", "y=y"));
  Running server({.models = t.path().string()});
  EXPECT_TRUE(
      has(server.post("/v1/models/a_half:predict", "{\"instances\":[[2,4]]}").body, "[1.0,2.0]"));
  EXPECT_TRUE(has(server.post("/v2/repository/index", "").body,
                  "the ensembles 'c1' and 'c2' run one another"));
  EXPECT_FALSE(server->repository().find("c1"));
  EXPECT_FALSE(server->repository().find("c2"));
}

TEST(EnsembleModel, ErrorsOfAStepNameIt) {
  const TempFolder t;
  put_model(t / "lookup.onnx", lookup_model());
  put_model(t / "e/serve.yaml",
            "ensemble:\n  - {model: lookup, input_map: [x=i], output_map: [y=o]}\n");
  Running server({.models = t.path().string()});
  const HttpResponse bad = server.post("/v1/models/e:predict", "{\"instances\":[99]}");
  EXPECT_EQ(bad.status, 400);
  EXPECT_TRUE(has(bad.body, "in ensemble 'e', model 'lookup'")) << bad.body;
  EXPECT_EQ(server.post("/v1/models/e:predict", "{\"instances\":[3]}").status, 200);
  EXPECT_TRUE(
      has(server.get("/metrics").body, "tandem_ensemble_step_failures_total{ensemble=\"e\""));
  EXPECT_EQ(server->repository().find("lookup")->scheduler->counts().failed, 1U);
}

TEST(EnsembleModel, FollowsItsModelsWithoutAFailedRequest) {
  const TempFolder t;
  // Two steps that multiply by the version: an answer of mixed versions would be no square.
  put_model(t / "f/1/model.onnx", scale_model(1));
  put_model(t / "e/serve.yaml",
            "ensemble:\n  - {model: f, input_map: [x=i], output_map: [y=m]}\n"
            "  - {model: f, input_map: [x=m], output_map: [y=o]}\n");
  Running server({.models = t.path().string(), .allow_load = true});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, answers{0};
  std::vector<std::thread> clients;
  for (int k = 0; k < 2; ++k)
    clients.emplace_back([&] {
      for (const auto c = server.client(); !stop; ++answers) {
        const HttpResponse r = c->post("/v1/models/e:predict", "{\"instances\":[[1,1,1,1]]}");
        const size_t at = r.body.find("[[");
        const double y =
            r.status == 200 && at != std::string::npos ? std::stod(r.body.substr(at + 2)) : 2;
        if (std::sqrt(y) != std::round(std::sqrt(y))) ++wrong;
      }
    });
  for (int v = 2; v <= 9; ++v) {
    put_model(t / ("f/" + std::to_string(v) + "/model.onnx"), scale_model(static_cast<float>(v)));
    EXPECT_EQ(server.post("/v2/repository/models/f/load", "").status, 200);
    EXPECT_TRUE(has(server.post("/v1/models/e:predict", "{\"instances\":[[1,1,1,1]]}").body,
                    std::to_string(v * v) + ".0"));
  }
  // A model that no longer fits leaves the ensemble with the one that did.
  put_model(t / "f/10/model.onnx", lookup_model());
  EXPECT_EQ(server.post("/v2/repository/models/f/load", "").status, 200);
  EXPECT_TRUE(has(server.post("/v1/models/e:predict", "{\"instances\":[[1,1,1,1]]}").body, "81.0"));
  EXPECT_TRUE(has(server.post("/v2/repository/index", "").body, "the tensor 'm'"));
  stop = true;
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answers, 10);
}

TEST(EnsembleModel, ComesWithItsModelsIntoAWatchedFolder) {
  const TempFolder t;
  put_model(t / "other.onnx", scale_model(1));
  Running server({.models = t.path().string(), .watch = 0.02});
  put_diamond(t);  // a_graph comes before those that it runs
  for (int i = 0; i < 4000 && !server->repository().find("a_graph"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server.post("/v2/models/a_graph/infer", kImage).status, 200);
}

TEST(EnsembleModel, IsDeployedWithItsModels) {
  const TempFolder t;
  put_diamond(t);
  put_model(t / "half/serve.yaml", "response_cache_mb: 3\n");
  const DeployedModels found = find_models(t.path().string(), {}, false);
  std::vector<std::string> files;
  for (const LayerFile& f : found.files) files.push_back(f.name);
  EXPECT_EQ(files,
            (std::vector<std::string>{"models/a_graph/serve.yaml", "models/count/1/model.onnx",
                                      "models/half/1/model.onnx", "models/half/serve.yaml",
                                      "models/last/1/model.onnx"}));
  EXPECT_EQ(found.cache, 3 * 1048576.0);
}

TEST(FromTriton, EnsemblesAreTakenOver) {
  const TempFolder t;
  put_model(t / "half/1/model.onnx", scale_model(0.5F, 2));
  put_model(t / "last/1/model.onnx", pair_model());
  std::filesystem::create_directories(t / "graph/1");
  write_file(t / "graph/config.pbtxt", R"(
name: "graph"
platform: "ensemble"
max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_FP32 dims: [ 2 ] },
        { name: "NUMBERS" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ]
output [ { name: "RESULT" data_type: TYPE_FP32 dims: [ 2 ] } ]
ensemble_scheduling {
  step [
    { model_name: "half" model_version: -1
      input_map { key: "x" value: "IMAGE" } output_map { key: "y" value: "mid" } },
    { model_name: "last" model_version: 1
      input_map [ { key: "a" value: "mid" }, { key: "b" value: "NUMBERS" } ]
      output_map [ { key: "na" value: "RESULT" }, { key: "nb" value: "SIGNS" } ] }
  ]
}
)");
  put_model(t / "empty/config.pbtxt", "platform: \"ensemble\"");
  Running server({.models = t.path().string(), .from = "triton"});
  const std::string body = server.get("/v2/models/graph").body;
  EXPECT_TRUE(has(body, "\"outputs\":[{\"name\":\"RESULT\"")) << body;
  EXPECT_FALSE(has(body, "SIGNS"));
  EXPECT_TRUE(has(
      server.post("/v1/models/graph:predict", "{\"instances\":[{\"IMAGE\":[2,4],\"NUMBERS\":3}]}")
          .body,
      "[-1.0,-2.0]"));
  EXPECT_TRUE(has(server.post("/v2/repository/index", "").body, "needs ensemble_scheduling"));
}

}  // namespace
}  // namespace tandem::serve
