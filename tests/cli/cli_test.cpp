// SPDX-License-Identifier: Apache-2.0
// The tool as a user calls it: exit codes, JSON, help, near misses. The path is $TANDEM_TOOL.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/tandem.h"
#include "tests/cli/tool_helper.h"

namespace {

using tandem::cli_test::has;
using tandem::cli_test::Result;
using tandem::cli_test::tool;

class Tool : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
  }
};

TEST_F(Tool, HelpOpensWithCommandsToPaste) {
  Result r = tool("--help");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.text, "tandem demo"));
  EXPECT_TRUE(has(tool("--version").text, "tandem 0."));
}

TEST_F(Tool, UnknownWordsNameTheNearest) {
  Result r = tool("dmo 2>&1");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.text, "there is no command 'dmo'")) << r.text;
  EXPECT_TRUE(has(r.text, "`demo`")) << r.text;
  r = tool("demo --epohs 3 2>&1");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.text, "--epochs")) << r.text;
  EXPECT_TRUE(has(r.text, "`tandem demo --help` lists its options")) << r.text;
  // Only what the command knows: `train` has no --n.
  r = tool("train recipe.yaml -o x 2>&1");
  EXPECT_EQ(r.code, 2);
  EXPECT_FALSE(has(r.text, "Did you mean")) << r.text;
  r = tool("recipe referense 2>&1");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.text, "`reference`")) << r.text;
}

TEST_F(Tool, DemoGivesJson) {
  std::string out = ::testing::TempDir() + "cli_test.safetensors";
  Result r = tool("demo --epochs 1 --json --out " + out + " 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  nlohmann::json j = nlohmann::json::parse(r.text);
  EXPECT_TRUE(j["reload_bit_equal"].get<bool>());
  EXPECT_GT(j["accuracy"].get<double>(), 0.5);
  EXPECT_EQ(j["test"].get<int>(), 360);
}

TEST_F(Tool, DemoIntoAMissingFolderIsAnIoError) {
  Result r = tool("demo --epochs 1 --out /no/such/folder/net.safetensors 2>&1 >/dev/null");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "/no/such/folder")) << r.text;
}

TEST_F(Tool, DoctorAndOps) {
  EXPECT_TRUE(has(tool("doctor").text, "threads"));
  EXPECT_TRUE(has(tool("ops relu").text, "relu"));
  Result r = tool("ops rleu 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "no op named 'rleu'"));
}

std::string golden(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/weights/golden/" + name;
}

TEST_F(Tool, InspectsFilesAndModels) {
  Result r = tool("inspect " + golden("dtypes.pth") + " --json");
  ASSERT_EQ(r.code, 0) << r.text;
  nlohmann::json j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["format"].get<std::string>(), "PyTorch");
  EXPECT_EQ(j["tensors"].get<int>(), 10);
  EXPECT_EQ(j["entries"][0]["shape"], nlohmann::json::parse("[2, 3]"));
  r = tool("inspect lenet --json");
  ASSERT_EQ(r.code, 0) << r.text;
  j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["parameters"].get<int>(), 61706);
  EXPECT_EQ(j["ops"]["conv"].get<int>(), 2);
  EXPECT_EQ(j["inputs"][0]["shape"], nlohmann::json::parse("[-1, 1, 28, 28]"));
  EXPECT_EQ(j["outputs"][0]["shape"], nlohmann::json::parse("[-1, 10]"));
  EXPECT_GT(j["flops"].get<double>(), 5e5);
  r = tool("inspect " + golden("module.pth") + " 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "Sequential")) << r.text;
  EXPECT_TRUE(has(tool("inspect lenett 2>&1").text, "'lenet'"));
  // A file of another kind, whatever its name says, is refused as all that it might have been.
  const std::string noise = ::testing::TempDir() + "cli_noise.tflite";
  std::ofstream(noise) << "\x01\x02noise that is nothing at all";
  r = tool("inspect " + noise + " 2>&1");
  for (const char* kind : {"cli_noise.tflite", "TFLite", "ONNX", "safetensors"})
    EXPECT_TRUE(has(r.text, kind)) << r.text;
}

TEST_F(Tool, ConvertsAndVerifies) {
  const std::string dir = ::testing::TempDir();
  const std::string a = golden("views.pth"), b = dir + "cli_views.safetensors",
                    c = dir + "cli_views.npz", d = dir + "cli_half.pth";
  EXPECT_EQ(tool("convert " + a + " " + b).code, 0);
  EXPECT_EQ(tool("convert " + b + " " + c).code, 0);
  EXPECT_EQ(tool("verify " + a + " " + c).code, 0);
  EXPECT_EQ(tool("convert " + c + " " + d + " --dtype bfloat16").code, 0);
  Result r = tool("verify " + a + " " + d);
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(has(r.text, "bfloat16")) << r.text;
  EXPECT_EQ(tool("verify " + a + " " + golden("dtypes.pth") + " >/dev/null").code, 3);
  EXPECT_EQ(tool("convert " + a + " " + dir + "cli.txt 2>/dev/null").code, 1);
}

TEST_F(Tool, WritesModelsAsC) {
  const std::string dir = ::testing::TempDir() + "cli_c/";
  std::filesystem::create_directories(dir);
  const Result r = tool("compile lenet -o " + dir + "lenet.c 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "arena   23520 bytes (lower bound 23520)")) << r.text;
  EXPECT_TRUE(has(tandem::read_file(dir + "lenet.h"), "lenet_run("));
  EXPECT_EQ(
      std::system(
          ("cc -std=c99 -Wall -Wextra -Werror -pedantic -fsyntax-only " + dir + "lenet.c").c_str()),
      0);
  for (const char* wrong : {"lenet.h", "1net.c", "none/net.c"}) {
    const Result e = tool(std::string("compile lenet -o ") + dir + wrong + " 2>&1");
    EXPECT_EQ(e.code, 1) << e.text;
    EXPECT_TRUE(has(e.text, "net")) << e.text;
  }
}

TEST_F(Tool, WritesModelsAsModules) {
  const std::string dir = ::testing::TempDir() + "cli_cpp/";
  std::filesystem::create_directories(dir);
  const Result r = tool("compile lenet --target cpp -o " + dir + "nn.h 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "nn.safetensors\n  layers 5, classes 1, calls of functions 7")) << r.text;
  const std::string text = tandem::read_file(dir + "nn.h");
  EXPECT_TRUE(has(text, "namespace nn_net {")) << text;  // nn is Tandem's
  EXPECT_TRUE(has(text, "    x = relu(conv1(x));\n")) << text;
  EXPECT_EQ(tandem::load(dir + "nn.safetensors").size(), 10u);
  const Result e = tool("compile lenet --target cpp -o " + dir + "net.c 2>&1");
  EXPECT_EQ(e.code, 1) << e.text;
  EXPECT_TRUE(has(e.text, "is not the name of a C++ header")) << e.text;
}

TEST_F(Tool, WritesModelsForBrowsersAndMeasuresThem) {
  const std::string dir = ::testing::TempDir() + "cli_web";
  const Result e = tool("inspect lenet --edge 2>/dev/null");
  EXPECT_EQ(e.code, 0) << e.text;
  EXPECT_TRUE(has(e.text, "arena        23520 bytes (lower bound 23520)")) << e.text;
  const Result r = tool("compile lenet --target wasm -o " + dir + " 2>&1");
  if (has(r.text, "apt install")) GTEST_SKIP() << r.text;
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "beyond the weights")) << r.text;
  for (const char* file : {"/net.wasm", "/net.mjs", "/net.d.mts", "/draw.html"})
    EXPECT_TRUE(tandem::file_exists(dir + file)) << file;
  tandem::write_file(dir + "/mine.html", "mine");
  const Result other = tool("compile lenet --shapes x:2x1x28x28 --target wasm -o " + dir + " 2>&1");
  ASSERT_EQ(other.code, 0) << other.text;
  EXPECT_TRUE(has(other.text, "draw.html: of the net before, removed")) << other.text;
  EXPECT_FALSE(tandem::file_exists(dir + "/draw.html"));
  EXPECT_TRUE(tandem::file_exists(dir + "/mine.html"));
}

TEST_F(Tool, WritesModelsForPhones) {
  const std::string dir = ::testing::TempDir() + "cli_phone";
  std::filesystem::remove_all(dir);
  const Result r =
      tool("compile lenet --target android --package com.example.net -o " + dir + " 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "arena   23520 bytes")) << r.text;
  for (const char* file :
       {"/make_aar.sh", "/src/main/java/com/example/net/Net.java", "/src/main/cpp/net_jni.c"})
    EXPECT_TRUE(tandem::file_exists(dir + file)) << file;
  EXPECT_EQ(access((dir + "/make_aar.sh").c_str(), X_OK), 0);
  EXPECT_EQ(tool("compile lenet --target apple -o " + dir + " 2>/dev/null").code, 0);
  EXPECT_TRUE(tandem::file_exists(dir + "/Sources/CNet/include/module.modulemap"));
  const Result e = tool("compile lenet --target android --package 1x -o " + dir + " 2>&1");
  EXPECT_TRUE(has(e.text, "'1x' is not the name of a Java package")) << e.text;
}

TEST_F(Tool, QuantisesWithoutDataAndWritesThePage) {
  const std::string dir = ::testing::TempDir() + "cli_quantize/";
  std::filesystem::create_directories(dir);
  const Result r = tool("quantize lenet " + dir + "q.onnx --method dynamic --report " + dir +
                        "q.html 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "each call its own range")) << r.text;
  EXPECT_TRUE(has(tandem::read_file(dir + "q.html"), "3 of 5"));
  const Result e = tool("quantize lenet " + dir + "q.onnx --method dynami 2>&1");
  EXPECT_EQ(e.code, 1) << e.text;
  const Result other = tool("quantize lenet " + dir + "q.onnx --accuracy-level 4 2>&1");
  EXPECT_EQ(other.code, 1) << other.text;
  EXPECT_TRUE(has(other.text, "Give --weights int2, int4 or int8")) << other.text;
}

TEST_F(Tool, ConvertsModelsToOnnx) {
  namespace fs = std::filesystem;
  const std::string dir = ::testing::TempDir() + "cli_onnx/";
  fs::remove_all(dir);
  fs::create_directories(dir);
  Result r = tool("convert lenet " + dir + "lenet.onnx --opset 20 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "read back: largest error")) << r.text;
  // The weights alone, and the model together with these weights.
  EXPECT_EQ(tool("verify lenet " + dir + "lenet.onnx --weights " + dir +
                 "lenet.safetensors --rtol 1e-5 --atol 1e-6 >/dev/null")
                .code,
            0);
  EXPECT_EQ(tool("verify lenet " + dir + "lenet.onnx >/dev/null 2>&1").code, 3) << "other weights";
  // What the file says, without a run: open dimensions are open. Its weights alone.
  r = tool("inspect " + dir + "lenet.onnx --json");
  ASSERT_EQ(r.code, 0) << r.text;
  nlohmann::json j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["inputs"][0]["shape"], nlohmann::json::parse(R"(["batch", 1, 28, 28])"));
  EXPECT_EQ(j["parameters"].get<int>(), 61706);
  EXPECT_FALSE(j.contains("flops"));
  r = tool("inspect " + dir + "lenet.onnx --shapes x:2x1x28x28 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["output_shapes"], nlohmann::json::parse("[[2, 10]]"));
  EXPECT_GT(j["flops"].get<double>(), 1e6);
  EXPECT_EQ(tool("convert " + dir + "lenet.onnx " + dir + "of_onnx.npz >/dev/null").code, 0);
  EXPECT_EQ(tool("verify " + dir + "of_onnx.npz " + dir + "lenet.safetensors >/dev/null").code, 0);
  // A model read and written again; a folder whose own weights suffice.
  EXPECT_EQ(tool("convert " + dir + "lenet.onnx " + dir + "again.onnx >/dev/null").code, 0);
  EXPECT_EQ(tool("verify " + dir + "lenet.onnx " + dir + "again.onnx >/dev/null").code, 0);
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  fs::copy(std::string(root ? root : ".") + "/tests/golden/hf/llama", dir + "llama",
           fs::copy_options::recursive);
  r = tool("convert " + dir + "llama " + dir + "llama/model.onnx 2>&1");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(tool("verify " + dir + "llama " + dir + "llama/model.onnx --shapes " +
                 "input_ids:2x5,attention_mask:2x5 --rtol 1e-5 --atol 1e-6 >/dev/null")
                .code,
            0);
  EXPECT_FALSE(fs::exists(dir + "llama/model.1.safetensors"));
  r = tool("convert " + dir + "lenet.safetensors " + dir + "x.onnx 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "--weights")) << r.text;
}

TEST_F(Tool, ConvertsModelsToTensorFlowJs) {
  const std::string dir = ::testing::TempDir() + "cli_tfjs/", net = dir + "net.onnx ";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  ASSERT_EQ(tool("convert lenet " + net + ">/dev/null 2>&1").code, 0);
  Result r = tool("convert " + net + dir + "web/model.json 2>&1");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "1 file of weights; read back: largest error")) << r.text;
  const std::string fixed = "--shapes x:1x1x28x28 >/dev/null";
  EXPECT_EQ(tool("verify " + net + dir + "web/model.json --atol 1e-5 " + fixed).code, 0);
  ASSERT_EQ(tool("convert " + net + dir + "net.tflite >/dev/null").code, 0);
  EXPECT_EQ(tool("convert " + dir + "net.tflite " + dir + "of/net.json >/dev/null").code, 0);
  EXPECT_EQ(tool("verify " + net + dir + "of/net.json --atol 1e-5 " + fixed).code, 0);
  EXPECT_EQ(tool("convert " + net + dir + "web/model.json --quantize uint8 >/dev/null").code, 0);
  EXPECT_LT(std::filesystem::file_size(dir + "web/group1-shard1of1.bin"), 70000u);
  const std::pair<const char*, const char*> wrong[] = {
      {"x.onnx --quantize uint8", "--quantize is for models of TensorFlow.js"},
      {"x.json --quantize u8", "There are float16, uint8 and uint16"},
      {"x.json --dtype float16", "--quantize says what the weights of a TensorFlow.js model are"},
      {"x.onnx --dtype float16", "--dtype is for files of weights"},
      {"x.tflite --dtype float16", "--dtype is for files of weights"}};
  for (const auto& [out, says] : wrong) {
    r = tool("convert " + net + dir + out + " 2>&1");
    EXPECT_EQ(r.code, 1) << r.text;
    EXPECT_TRUE(has(r.text, says)) << r.text;
  }
}

// Heads and inputs of a folder keep their names.
TEST_F(Tool, FoldersNameTheirInputsAndOutputs) {
  const std::string dir = ::testing::TempDir(), out = dir + "cli_qa.npz",
                    onnx = dir + "cli_qa.onnx";
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string folder =
      std::string(root ? root : ".") + "/tests/golden/hf/bert_questionanswering";
  tandem::StateDict inputs =
      tandem::load(folder + "/case.safetensors");  // and the outputs of transformers
  inputs.erase("start_logits"), inputs.erase("end_logits");
  tandem::save(inputs, dir + "cli_qa_in.safetensors");
  Result r = tool("predict " + folder + " --input " + dir + "cli_qa_in.safetensors --output " +
                  out + " 2>&1");
  ASSERT_EQ(r.code, 0) << r.text;
  r = tool("inspect " + out + " --all");
  EXPECT_TRUE(has(r.text, "start_logits") && has(r.text, "end_logits")) << r.text;
  r = tool("convert " + folder + " " + onnx + " 2>&1");
  ASSERT_EQ(r.code, 0) << r.text;
  r = tool("inspect " + onnx + " 2>&1");
  for (const char* name : {"token_type_ids", "attention_mask", "start_logits"})
    EXPECT_TRUE(has(r.text, name)) << r.text;
}

TEST_F(Tool, WeightsOfFewBits) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string model = std::string(root ? root : ".") + "/tests/golden/hf/gpt2 ",
                    out = ::testing::TempDir() + "cli_codes";
  std::filesystem::remove_all(out);  // of an earlier run
  const std::pair<const char*, const char*> mistakes[] = {
      {"int5", "--weights int5: expected int2, int4, int8 or a file of weights"},
      {"int4 --group 0", "groups of 0"},
      {"int4 --accuracy-level 9", "the accuracy level is 9, expected 0"},
      {"int4 --method percentile", "'percentile' is not a method of rounding weights"},
      {"int4 --method gptq", "there is no data"}};
  for (const auto& [weights, says] : mistakes) {
    const Result r = tool("quantize " + model + out + " --weights " + weights + " 2>&1");
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(has(r.text, says)) << r.text;
  }
  const Result r = tool("quantize " + model + out + " --weights int4 --group 8 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "2 layers in int4, groups of 8")) << r.text;
}

TEST_F(Tool, PredictsAndTimes) {
  const std::string dir = ::testing::TempDir(), w = dir + "cli_lenet.pth", x = dir + "cli_x.npy";
  FILE* f = fopen(x.c_str(), "wb");
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 28, 28), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string head = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header;
  fwrite(head.data(), 1, head.size(), f);
  const std::vector<float> ones(2 * 28 * 28, 1.0F);
  fwrite(ones.data(), sizeof(float), ones.size(), f);
  fclose(f);
  Result r = tool("predict lenet --input " + x + " --top 3 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "no --weights"));
  EXPECT_EQ(tool("predict lenet --input " + x + " --output " + dir + "cli_y.npz 2>/dev/null").code,
            0);
  EXPECT_TRUE(has(tool("inspect " + dir + "cli_y.npz").text, "[2,10]"));
  const std::string one =
      tool("predict lenet --input " + x + " --output " + dir + "cli_y.npy").text;
  EXPECT_TRUE(has(one, "float32 2x10")) << one;
  EXPECT_EQ(tandem::io::load_npy(dir + "cli_y.npy").shape(), tandem::Shape(2, 10));
  EXPECT_FALSE(
      has(tool("predict lenet --input " + x + " --output " + dir + "cli_y.txt 2>/dev/null").text,
          "float32"))
      << "nothing is said of a file that cannot be written";
  r = tool("predict lenet --weights " + golden("dtypes.pth") + " --input " + x + " 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "missing")) << r.text;
  EXPECT_FALSE(has(r.text, "strict")) << r.text;
  // A head of another size.
  const std::string other = "--weights " + dir + "cli_lenet.safetensors --num-classes 7 ";
  ASSERT_EQ(tool("convert lenet " + dir + "cli_lenet.onnx >/dev/null 2>&1").code, 0);
  r = tool("predict lenet " + other + "--input " + x + " 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "of another shape")) << r.text;
  EXPECT_TRUE(has(r.text, "load those that fit with --partial")) << r.text;
  EXPECT_FALSE(has(r.text, "strict")) << r.text;
  r = tool("predict lenet " + other + "--partial --output " + dir + "cli_y.npz --input " + x +
           " 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "stays as it was drawn")) << r.text;
  EXPECT_TRUE(has(tool("inspect " + dir + "cli_y.npz").text, "[2,7]"));
  r = tool("bench lenet --shapes x:4x1x28x28 --threads 1 --runs 5 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  const nlohmann::json j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["runs"].get<int>(), 5);
  EXPECT_GE(j["p99_ms"].get<double>(), j["median_ms"].get<double>());
  EXPECT_EQ(tool("bench lenet --shapes 4y1 2>/dev/null").code, 1);
}

// ---- recipes; tests run in the source folder

TEST_F(Tool, TrainsARecipeAndResumes) {
  char folder[] = "/tmp/tandem-run-XXXXXX";
  ASSERT_TRUE(mkdtemp(folder));
  const std::string run = std::string("train recipes/digits-mlp.yaml --json --run ") + folder;
  Result first = tool(run + " trainer.epochs=4 sched.steps=200");
  ASSERT_EQ(first.code, 0) << first.text;
  nlohmann::json j = nlohmann::json::parse(first.text);
  EXPECT_EQ(j["epochs"], 4);
  EXPECT_GT(j["test/accuracy"], 0.85);
  Result more = tool(run + " trainer.epochs=6 sched.steps=200");
  Result whole = tool(run + "-whole trainer.epochs=6 sched.steps=200");
  nlohmann::json a = nlohmann::json::parse(more.text), b = nlohmann::json::parse(whole.text);
  EXPECT_EQ(a["steps"], b["steps"]);
  EXPECT_EQ(a["test/loss"], b["test/loss"]);  // to the last bit
  EXPECT_EQ(std::system((std::string("rm -rf ") + folder + " " + folder + "-whole").c_str()), 0);
}

TEST_F(Tool, RecipeMistakesAndChecks) {
  Result r = tool("train recipes/digits-mlp.yaml optim.lt=1 --json 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "optim.lt: there is no such key, did you mean 'lr'?")) << r.text;
  r = tool("train recipes/digits-mlp.yaml data.type=digit 2>&1");
  EXPECT_TRUE(has(r.text, "there is no data set 'digit', did you mean 'digits'?")) << r.text;
  r = tool("recipe check recipes/digits-mlp.yaml --quiet expect.seeds=[0] expect.budget_seconds=0");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, ": met")) << r.text;
  r = tool(
      "recipe check recipes/digits-mlp.yaml --quiet expect.seeds=[0] trainer.epochs=1 "
      "expect.at_least=0.999");
  EXPECT_EQ(r.code, 3) << r.text;
  EXPECT_TRUE(has(r.text, "NOT MET")) << r.text;
}

TEST_F(Tool, PlanSaysWhatAModelNeeds) {
  const std::string run = "plan resnet18 --gpu 4090 --batch 64 --data imagenet --epochs 3";
  Result r = tool(run + " --json 2>/dev/null");
  ASSERT_EQ(r.code, 0);
  const auto j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["gpu"], "RTX 4090");
  EXPECT_TRUE(j["fits"]);
  EXPECT_EQ(j["server"].size(), 9u);
  EXPECT_TRUE(has(tool(run + " --why memory.weights").text, "46.8 MB"));
  EXPECT_TRUE(has(tool(run + " --why cost").text, "data/prices.json"));
  EXPECT_TRUE(has(tool(run + " 2>&1").text, "rule of thumb"));
  EXPECT_TRUE(has(tool("plan resnet18 --rank --batch 64").text, "both cheaper and faster"));
  EXPECT_TRUE(has(tool("plan bert:base --serve rps=100,p99=80ms --gpu l4 2>&1").text, "slowest"));
  // One that does not fit, a limit that breaks, a claim beyond the hardware: 3.
  EXPECT_EQ(tool("plan llama:7b --gpu t4 --batch 1 2>&1").code, 3);
  EXPECT_EQ(tool(run + " --budget 0.01 2>&1").code, 3);
  r = tool(run + " --check-claim 1s");
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(has(r.text, "impossible"));
  // Recipes, and the nearest word for an unknown one.
  EXPECT_EQ(tool("plan recipes/digits-mlp.yaml --gpu t4 2>&1").code, 0);
  EXPECT_TRUE(has(tool("plan resnet18 --gpu 4900 2>&1").text, "'RTX 4090'"));
  EXPECT_TRUE(has(tool("plan resnet81 2>&1").text, "Did you mean 'resnet"));
  EXPECT_TRUE(has(tool(run + " --why memroy 2>&1").text, "'memory'"));
  EXPECT_TRUE(has(tool("plan resnet18 --deadline soon 2>&1").text, "is not a time"));
  EXPECT_TRUE(has(tool("plan 2>&1").text, "no model to plan"));
  for (const auto& [options, wanted] : std::vector<std::pair<const char*, const char*>>{
           {"--n two", "--n 'two': it is not a number. Did you mean '2'?"},
           {"--n -3", "Did you mean '1'?"},
           {"--n 2.5", "it is not a whole number"},
           {"--batch 64x", "Did you mean '64'?"},
           {"--budget -5 --tokens 1e6", "--budget '-5': it is negative. Did you mean '5'?"},
           {"--budget 500EUR --tokens 1e6", "prices are in US dollars"},
           {"--deadline 36hurs --tokens 1e6", "Did you mean '36hours'?"},
           {"--budget 5", "needs an end"},
           {"--data imagnet --epochs 3", "Did you mean 'imagenet'?"},
           {"--serve rsp=200,p99=50ms", "Did you mean 'rps=200'?"},
           {"--mode compield", "Did you mean 'compiled'?"},
           {"--rank --by tiem", "Did you mean 'time'?"},
           {"--gpu 8xh100", "--gpu 'H100 SXM' --n 8"},
           {"--prices data/hardware.json", "it holds hardware: give it to --hardware"},
           {"--rank --serve rps=200,p99=50ms", "without --gpu, --serve finds the cheapest fleet"},
           {"--rank --gpu l4", "--rank compares all GPUs, --gpu names one"},
           {"--rank --check-claim 1h", "Leave out one of them"},
           {"--rank --why cost", "Give --gpu and --n of a row in place of --rank"},
           {"--rank --keys", "Give --gpu and --n of a row in place of --rank"},
           {"--by time", "Give --rank too"},
           {"--serve rps=200,p99=50ms --gpu this", "GPUs that can be rented"},
           {"--serve rps=200,p99=50ms --check-claim 1h", "--check-claim is about training"},
           {"--serve rps=200,p99=50ms --tokens 1e9", "--tokens is for training"},
           {"--serve rps=200,p99=50ms --n 4", "Leave out --n"},
           {"--claims", "--claims writes one page"}}) {
    r = tool(std::string("plan resnet18 ") + options + " 2>&1");
    EXPECT_EQ(r.code, 1) << options;
    EXPECT_TRUE(has(r.text, wanted)) << r.text;
  }
  r = tool(run + " --why memory --why server.ram 2>/dev/null");
  EXPECT_TRUE(has(r.text, "[memory]")) << r.text;
  EXPECT_TRUE(has(r.text, "[server.ram.need]")) << r.text;
}

}  // namespace
