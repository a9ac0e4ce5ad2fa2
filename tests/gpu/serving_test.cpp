// SPDX-License-Identifier: Apache-2.0
// Models served from devices: ModelSettings::devices.
#include <atomic>
#include <thread>

#include "tests/gpu/tensors_helper.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"

namespace tandem::gpu {
namespace {

class ServedOnDevices : public OverDevices {};
TD_OVER_DEVICES(ServedOnDevices);

constexpr const char* kInfer =
    R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2,8],"data":[1,2,3,4,5,6,7,8,-1,0,1,0,-1,0,1,0]}]})";

std::vector<double> numbers_of(const std::string& body) {
  const size_t data = body.find("\"data\":[");
  std::vector<double> out;
  if (data == std::string::npos) return out;
  for (const char* at = body.c_str() + data + 7; *at == '[' || *at == ',';) {
    char* end = nullptr;
    out.push_back(std::strtod(at + 1, &end));
    at = end;
  }
  return out;
}

TEST_P(ServedOnDevices, AnswerLikeTheHostFromSeveralThreads) {
  const TempFolder t;
  serve::put_model(t / "there/1/model.onnx", serve::mlp_model(8, 16, 3));
  serve::put_model(t / "here/1/model.onnx", serve::mlp_model(8, 16, 3));
  write_file(t / "there/serve.yaml",
             "devices: [" + to_string(device_) + "]\ninstances: 2\nsame_bits: false\n");
  serve::Running server({.models = t.path(), .http = {.port = 0}});
  const std::vector<double> want = numbers_of(server.post("/v2/models/here/infer", kInfer).body);
  ASSERT_EQ(want.size(), 6U);
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c)
    clients.emplace_back([&] {
      const auto client = server.client();
      for (int i = 0; i < 8; ++i) {
        const std::vector<double> got =
            numbers_of(client->post("/v2/models/there/infer", kInfer, {}).body);
        bool near = got.size() == want.size();
        for (size_t k = 0; near && k < want.size(); ++k) near = std::abs(got[k] - want[k]) < 1e-4;
        if (!near) ++wrong;
      }
    });
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(wrong, 0);
  const std::string config = server.get("/v2/models/there/config").body;
  EXPECT_NE(config.find("\"count\":2,\"kind\":\"KIND_GPU\",\"gpus\":[0]"), std::string::npos)
      << config;
}

TEST_P(ServedOnDevices, InstancesTakeDevicesInTurn) {
  const TempFolder t;
  serve::put_model(t / "m.onnx", serve::scale_model(3));
  const auto model = serve::Servable::load(
      t / "m.onnx", {.max_batch = 1, .instances = 1, .devices = {cpu, device_}});
  ASSERT_EQ(model->instances(), 2);
  const Tensor x = ones({1, 4});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(model->device_of(i), i == 0 ? cpu : device_);
    const std::vector<Tensor> y = model->run(i, {x}, 1);
    EXPECT_TRUE(is_host(y.at(0).device()));
    EXPECT_EQ(y[0].sum().item<double>(), 12);
  }
}

// The reasons that a folder's models were not loaded.
std::string refusals(const TempFolder& t) {
  serve::Repository repository({.folder = t.path()});
  repository.load_all();
  std::string out;
  for (const serve::IndexEntry& e : repository.index()) out += e.reason;
  return out;
}

TEST_P(ServedOnDevices, TextsOfGpusAreRefusedWithTheWayOut) {
  const TempFolder t;
  std::filesystem::create_directories(t / "gpt2");
  std::filesystem::copy(serve::golden_path("hf/gpt2"), t / "gpt2/1");
  const int64_t words = models::from_pretrained(t / "gpt2/1")->config.integer("vocab_size", 0);
  write_file(t / "gpt2/1/tokenizer.json", serve::word_tokenizer(words));
  write_file(t / "gpt2/serve.yaml", "devices: [" + to_string(device_) + "]\n");
  EXPECT_NE(refusals(t).find("set 'text: false'"), std::string::npos);
  write_file(t / "gpt2/serve.yaml", "text: false\ndevices: [" + to_string(device_) + "]\n");
  EXPECT_EQ(refusals(t), "");
}

TEST(ServingOnDevices, UnknownOnesAreRefused) {
  init();
  const TempFolder t;
  serve::put_model(t / "m/1/model.onnx", serve::scale_model(3));
  write_file(t / "m/serve.yaml", "devices: [gpu]\n");
  EXPECT_NE(refusals(t).find("'gpu'"), std::string::npos) << refusals(t);
}

}  // namespace
}  // namespace tandem::gpu
