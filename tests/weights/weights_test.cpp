// SPDX-License-Identifier: Apache-2.0
// The interface for weights files: every format by its content, shards with an index, and
// load_into's report on a model.
#include "tandem/weights/weights.h"

#include <filesystem>

#include "tandem/tandem.h"
#include "tandem/weights/formats.h"
#include "tests/io/io_helper.h"

namespace tandem::weights {
namespace {

struct Net : nn::Module {
  nn::Linear fc1{3, 4}, fc2{4, 2};
  nn::BatchNorm1d bn{4};
  Net() { TD_REGISTER(fc1, bn, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(bn(fc1(std::move(x))))); }
};

class Weights : public ::testing::Test {
 protected:
  void SetUp() override { init(); }
  TempFolder dir;
};

TEST_F(Weights, EveryFormatByItsContent) {
  Net a;
  const StateDict state = a.state_dict();
  std::vector<std::string> names;
  for (const WeightsFormat* f : weights_formats().rows())
    for (const std::string& ending : words_of(f->endings)) names.push_back("w" + ending);
  EXPECT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    save_weights(state, dir / name);
    // The extension does not matter for reading.
    std::filesystem::copy_file(dir / name, dir / "copy",
                               std::filesystem::copy_options::overwrite_existing);
    const StateDict back = load_weights(dir / "copy");
    ASSERT_EQ(back.size(), state.size()) << name;
    for (const auto& [key, t] : state) EXPECT_TRUE(equal(back.at(key), t)) << name << key;
    Net b;
    EXPECT_TRUE(load_into(b, back).ok());
    EXPECT_TRUE(equal(b.fc2.weight.value(), a.fc2.weight.value()));
  }
  EXPECT_NE(error_of([&] { save_weights(state, dir / "w.txt"); }).find(".safetensors"),
            std::string::npos);
}

// Files that TensorFlow and Keras wrote (tests/onnx/tensorflow/make_golden.py); they are only read.
TEST_F(Weights, TensorFlowAndKeras) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string folder = std::string(root ? root : ".") + "/tests/onnx/tensorflow/";
  for (const char* name : {"running", "running_checkpoint", "running_checkpoint.index"}) {
    const StateDict d = load_weights(folder + name);
    const bool saved_model = std::string(name) == "running";  // before the steps, the others after
    const std::string prefix = saved_model ? "" : "module/";
    EXPECT_TRUE(equal(d.at(prefix + "mean"),
                      saved_model ? tensor({0.5f, -0.5f}) : tensor({0.78125f, 0.109375f})))
        << name;
    EXPECT_EQ(d.at(prefix + "steps").dtype(), DType::i32);
  }
  const StateDict keras = load_weights(folder + "net.keras");
  EXPECT_EQ(keras.at("layers/conv2d/vars/0").shape(), Shape(3, 3, 2, 3));
  EXPECT_EQ(keras.at("layers/bidirectional/backward_layer/cell/vars/1").shape(), Shape(2, 8));
  const StateDict h5 = load_weights(folder + "line.h5");
  EXPECT_EQ(h5.at("conv1d/kernel").shape(), Shape(3, 8, 3));
  EXPECT_EQ(h5.at("inner/gru/gru_cell/bias").shape(), Shape(2, 6));
  EXPECT_STREQ(to_string(weights_format(folder + "line.h5")), "Keras (HDF5)");
  // A damaged block, and damaged numbers.
  for (const char* file : {"running_checkpoint.index", "running_checkpoint.data-00000-of-00001"}) {
    for (const char* part :
         {"running_checkpoint.index", "running_checkpoint.data-00000-of-00001"}) {
      std::string bytes = read_file(folder + part);
      if (std::string(part) == file) bytes[10] = static_cast<char>(bytes[10] ^ 1);
      write_file(dir / part, bytes);
    }
    const std::string error = error_of([&] { load_weights(dir / "running_checkpoint.index"); });
    EXPECT_NE(error.find("checksum is wrong"), std::string::npos) << file << ": " << error;
  }
}

TEST_F(Weights, ReportsWhatDoesNotFit) {
  Net net;
  StateDict state = net.state_dict();
  const Tensor before = net.fc1.weight.value();
  state["fc2.wieght"] = state.at("fc2.weight");
  state.erase("fc2.weight");
  state["fc1.weight"] = zeros({4, 5});
  state.erase("bn.num_batches_tracked");
  state["fc1.bias"] = ones({4});
  const std::string text = error_of([&] { load_into(net, state); });
  EXPECT_TRUE(text.starts_with("Value: ")) << text;
  EXPECT_NE(text.find("fc2.weight  (the file has fc2.wieght)"), std::string::npos) << text;
  EXPECT_NE(text.find("fc1.weight: [4, 3] in the model, [4, 5] in the file"), std::string::npos)
      << text;
  EXPECT_FALSE(equal(net.fc1.bias.value(), ones({4})));
  const WeightsReport r = load_into(net, state, {.strict = false});
  EXPECT_EQ(r.missing, std::vector<std::string>{"fc2.weight"});
  EXPECT_EQ(r.unexpected, std::vector<std::string>{"fc2.wieght"});
  ASSERT_EQ(r.misshaped.size(), 1u);
  EXPECT_EQ(r.loaded, 6u);
  EXPECT_TRUE(equal(net.fc1.bias.value(), ones({4})));
  EXPECT_TRUE(equal(net.fc1.weight.value(), before));
}

TEST_F(Weights, PrefixesAndOldNames) {
  Net net;
  StateDict wrapped;
  for (const auto& [name, t] : net.state_dict()) wrapped["module._orig_mod." + name] = t + 1;
  const WeightsReport r = load_into(net, wrapped);
  EXPECT_EQ(r.renamed.size(), wrapped.size());
  struct Old : nn::Module {
    struct Inner : nn::Module {
      nn::Sequential mlp{nn::Linear(2, 2), nn::GELU(), nn::Dropout(0), nn::Linear(2, 2)};
      Inner() { TD_REGISTER(mlp); }
    } layer;
    Old() { TD_REGISTER(layer); }
  } old;
  StateDict names;
  for (const char* part : {"weight", "bias"}) {
    names[std::string("layer.mlp.linear_1.") + part] =
        zeros(part[0] == 'w' ? Shape{2, 2} : Shape{2});
    names[std::string("layer.mlp.linear_2.") + part] =
        zeros(part[0] == 'w' ? Shape{2, 2} : Shape{2});
  }
  EXPECT_TRUE(load_into(old, names).ok());
}

TEST_F(Weights, Shards) {
  const Tensor a = arange(4), b = ones({2, 2}), c = zeros({3});
  save(StateDict::of({{"a", a}, {"b", b}}), dir / "model-1.safetensors");
  save(StateDict::of({{"c", c}}), dir / "model-2.safetensors");
  const std::string index = dir / "model.safetensors.index.json";
  auto outcome = [&](const std::string& json) {
    write_file(index, json);
    return error_of([&] { load_weights(index); });
  };
  const std::string good =
      R"({"metadata":{"total_size":60},"weight_map":{"c":"model-2.safetensors","a":"model-1.safetensors","b":"model-1.safetensors"}})";
  ASSERT_EQ(outcome(good), "no error");
  const StateDict d = load_weights(dir.path());
  EXPECT_EQ(d.begin()->first, "c");
  EXPECT_TRUE(equal(d.at("a"), a));
  std::filesystem::create_symlink(dir / "model-2.safetensors", dir / "link.safetensors");
  EXPECT_EQ(
      outcome(
          R"({"weight_map":{"c":"link.safetensors","a":"model-1.safetensors","b":"model-1.safetensors"}})"),
      "no error");
  std::filesystem::create_directory(dir / "folder.safetensors");
  std::filesystem::create_symlink("/dev/zero", dir / "zero.safetensors");
  struct Bad {
    const char *json, *says;
  };
  const Bad cases[] = {
      {R"({})", "weight_map"},
      {R"({"weight_map":[]})", "weight_map"},
      {R"({"weight_map":3})", "weight_map"},
      {R"({"weight_map":{"a":3}})", "integer"},
      {R"({"weight_map":{"a":null}})", "null"},
      {R"({"weight_map":{"a":""}})", "plain file name"},
      {R"({"weight_map":{"a":".."}})", "plain file name"},
      {R"({"weight_map":{"a":"../x.safetensors"}})", "plain file name"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "plain file name"},
      {R"({"weight_map":{"a":"x/y.safetensors"}})", "plain file name"},
      {R"({"weight_map":{"a":"x\\y.safetensors"}})", "plain file name"},
      {R"({"weight_map":{"a":"model-1.safetensors\u0000"}})", "plain file name"},
      {R"({"weight_map":{"a":"none.safetensors"}})", "does not exist"},
      {R"({"weight_map":{"a":"folder.safetensors"}})", "does not exist"},
      {R"({"weight_map":{"a":"zero.safetensors"}})", "does not exist"},
      {R"({"weight_map":{"a":"model.safetensors.index.json"}})", "itself an index"},
      {R"({"weight_map":{"a":"model-1.safetensors"}})", "does not name"},
      {R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-2.safetensors"}})",
       "another shard"},
      {R"({"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors","d":"model-2.safetensors"}})",
       "does not name"},
      {R"({"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors","z":"model-1.safetensors"}})",
       "does not hold"},
      {R"({"weight_map":{"a":"model-1.safetensors","a":"model-1.safetensors"}})", "twice"},
      {R"({"metadata":{"total_size":-1},"weight_map":{}})", "total_size"},
      {R"({"metadata":{"total_size":"60"},"weight_map":{}})", "total_size"},
      {R"({"weight_map":{"a":)", ""},
      {R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}})", ""},
  };
  for (const Bad& c : cases) {
    const std::string got = outcome(c.json);
    EXPECT_TRUE(got.starts_with("Format: ") && got.find(c.says) != std::string::npos)
        << c.json << ": " << got;
  }
}

TEST_F(Weights, RefusesWhatIsNoWeightsFile) {
  const std::string path = dir / "x";
  auto outcome = [&](const std::string& bytes) {
    write_file(path, bytes);
    return error_of([&] { load_weights(path); });
  };
  io::save_npy(ones({2}), dir / "x.npy");
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string("hello, this is not a weights file"),
        std::string("PK\x03\x04"),
        std::string("PK\x03\x04 and so on, but nothing behind it at all"), std::string("\x80\x02"),
        std::string("\x80\x02K\x01."), std::string(100, '\0'), std::string("{"), std::string("{}"),
        std::string("[1]"), read_file(dir / "x.npy"),
        std::string("\x7f"
                    "ELF and so on and on and on"),
        std::string("\x89PNG\r\n\x1a\n0123456789"),
        std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}"), std::string(8, '\0') + "{}"}) {
    const std::string got = outcome(bytes);
    EXPECT_TRUE(got.starts_with("Format: ")) << got;
  }
  EXPECT_TRUE(error_of([&] { load_weights(dir / "missing"); }).starts_with("Io: "));
  std::filesystem::create_directory(dir / "empty");
  EXPECT_TRUE(error_of([&] { load_weights(dir / "empty"); }).starts_with("Io: "));
}

}  // namespace
}  // namespace tandem::weights
