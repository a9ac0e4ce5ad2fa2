// SPDX-License-Identifier: Apache-2.0
// Models of TensorFlow.js against what TensorFlow gave for them: tests/onnx/tensorflow/
// make_golden_tfjs.py wrote both. And files that are damaged, or ask for others.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/base/base64.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"

namespace tandem::onnx {
namespace {

std::string golden_tfjs(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/onnx/tensorflow/" + name;
}

/// The largest difference from TensorFlow's values for a net.
double tfjs_error(const std::string& net, const Tensor& y) {
  static const io::Json all = io::parse_json(read_file(golden_tfjs("tfjs_expected.json")));
  const io::Json::Array& want = *all.find(net)->as_array();
  const std::vector<double> got = y.to(DType::f64).to_vector<double>();
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    worst = std::max(worst, std::abs(got[i] - io::number_of(&want[i])));
  return worst;
}

Tensor tfjs_image() {
  std::vector<float> v;
  for (int i = 0; i < 128; ++i) v.push_back(static_cast<float>(i * 37 % 101) / 100.0F);
  return tensor(v, Shape(2, 8, 8, 1));
}

TEST(TfJs, LayersAndGraphsGiveTensorFlowsValues) {
  init();
  for (const char* name : {"tfjs_layers", "tfjs_layers/model.json", "tfjs_graph"})
    EXPECT_LT(tfjs_error("conv", OnnxModel::load(golden_tfjs(name))({tfjs_image()})[0]), 1e-6)
        << name;
  EXPECT_EQ(OnnxModel::load(golden_tfjs("tfjs_graph")).inputs()[0].type.dims,
            (std::vector<int64_t>{-1, 8, 8, 1}));
  std::vector<int32_t> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(i % 11);
  const Tensor y = OnnxModel::load(golden_tfjs("tfjs_recurrent"))({tensor(ids, Shape(2, 6))})[0];
  EXPECT_LT(tfjs_error("recurrent", y), 1e-6);
}

// Codes of eight bits, and halves, are less exact; they are not the exact weights either.
TEST(TfJs, QuantisedWeightsGetTheirValuesBack) {
  init();
  const struct {
    const char* name;
    double least, most;
  } kCases[] = {{"tfjs_graph_u8", 1e-5, 5e-3}, {"tfjs_graph_f16", 1e-6, 5e-4}};
  for (const auto& c : kCases) {
    const double e = tfjs_error("conv", OnnxModel::load(golden_tfjs(c.name))({tfjs_image()})[0]);
    EXPECT_GT(e, c.least) << c.name;
    EXPECT_LT(e, c.most) << c.name;
  }
}

/// A model of one node, y = x + w, with this manifest; `shard` is its file of weights.
class TfjsSum {
 public:
  explicit TfjsSum(const std::string& manifest, const std::string& node = kNode) {
    write_file(folder_ / "shard.bin", std::string("\0\0\0\0\0\0\200\77\1\2", 10));  // 0, 1, codes
    write_file(folder_ / "other.bin", std::string(10, '\0'));
    std::filesystem::create_symlink(folder_ / "other.bin", folder_ / "link.bin");
    write_file(
        folder_ / "model.json",
        R"({"format":"graph-model","modelTopology":{"node":[)"
        R"({"name":"x","op":"Placeholder","attr":{"dtype":{"type":"DT_FLOAT"},)"
        R"("shape":{"shape":{"dim":[{"size":"2"}]}}}},)"
        R"({"name":"w","op":"Const","attr":{"dtype":{"type":"DT_FLOAT"},)"
        R"("value":{"tensor":{"dtype":"DT_FLOAT","tensorShape":{"dim":[{"size":"2"}]}}}}},)" +
            node + "]},\"weightsManifest\":" + manifest + "}");
  }
  std::vector<float> run() const {
    return OnnxModel::load(folder_.path().string())({zeros({2})})[0].to_vector<float>();
  }
  std::string error() const {
    try {
      run();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  static constexpr const char* kNode =
      R"({"name":"y","op":"AddV2","input":["x","w"],"attr":{"T":{"type":1}}})";

 private:
  TempFolder folder_;
};
std::string tfjs_manifest(const std::string& weight, const std::string& path = "shard.bin") {
  return R"([{"paths":[")" + path + R"("],"weights":[{"name":"w",)" + weight + "}]}]";
}
const char* const kFloats = R"("shape":[2],"dtype":"float32")";

TEST(TfJs, WeightsOfEveryKind) {
  init();
  const auto after_floats = [](const std::string& codes) {
    return R"([{"paths":["shard.bin"],"weights":[{"name":"v","shape":[2],"dtype":"float32"},)"
           R"({"name":"w","shape":[2],"dtype":"float32","quantization":)" +
           codes + "}]}]";
  };
  EXPECT_EQ(TfjsSum(tfjs_manifest(kFloats)).run(), (std::vector<float>{0, 1}));
  EXPECT_EQ(TfjsSum(after_floats(R"({"dtype":"uint8","scale":0.5,"min":-1})")).run(),
            (std::vector<float>{-0.5F, 0}));
  EXPECT_EQ(TfjsSum("[]").run(), (std::vector<float>{0, 0})) << "a constant without values";
  const char* const inputs = R"("input":["x","w"],"attr":{"T":{"type":1}}})";
  EXPECT_EQ(
      TfjsSum(tfjs_manifest(kFloats), std::string(R"({"name":"y","op":"Prelu",)") + inputs).run(),
      (std::vector<float>{0, 0}));
}

TEST(TfJs, DamagedModelsAndForeignFilesAreRefused) {
  init();
  const struct {
    std::string manifest, says, node = TfjsSum::kNode;
  } kCases[] = {
      {tfjs_manifest(kFloats, "../shard.bin"), "it leaves the folder"},
      {tfjs_manifest(kFloats, "/etc/hostname"), "it is absolute"},
      {tfjs_manifest(kFloats, "https://example.org/a.bin"), "there is no such file"},
      {tfjs_manifest(kFloats, "link.bin"), "without following links"},
      {tfjs_manifest(kFloats, "none.bin"), "there is no such file"},
      {tfjs_manifest(R"("shape":[3],"dtype":"float32")"), "needs 12 bytes, its files have 10 left"},
      {tfjs_manifest(R"("shape":[-1],"dtype":"float32")"), "impossible shape"},
      {tfjs_manifest(R"("shape":[4294967296,4294967296],"dtype":"float32")"), "impossible shape"},
      {tfjs_manifest(R"("shape":[1],"dtype":"complex64")"), "has the type 'complex64'"},
      {tfjs_manifest(R"("shape":[1],"dtype":"float33")"), "has the type 'float33'"},
      {tfjs_manifest(R"("shape":[2],"dtype":"string")"), "needs 1065353216 bytes"},
      {tfjs_manifest(R"("shape":[1],"dtype":"float32","quantization":{"dtype":"uint8"})"),
       "'scale'"},
      {tfjs_manifest(R"("shape":[1],"dtype":"float32","quantization":{"dtype":"int4"})"), "'int4'"},
      {tfjs_manifest(kFloats), "too few inputs",
       R"({"name":"y","op":"_FusedConv2D","input":["x"],"attr":{}})"},
      {tfjs_manifest(kFloats), "not base64",
       R"({"name":"y","op":"_FusedMatMul","input":["x","w"],"attr":{"fused_ops":{"list":{"s":["*"]}}}})"},
      {tfjs_manifest(kFloats), "", R"({"name":"y","op":"NoSuchOp","input":["x","w"],"attr":{}})"},
  };
  for (const auto& c : kCases) {
    const std::string error = TfjsSum(c.manifest, c.node).error();
    EXPECT_FALSE(error.empty()) << c.manifest;
    EXPECT_TRUE(has(error, c.says)) << error << "\nlacks: " << c.says;
  }
}

TEST(Base64, BackAndForth) {
  std::string bytes;
  for (int i = 0; i < 70; ++i) {
    EXPECT_EQ(from_base64(base64(bytes)), bytes) << i;
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(from_base64("TQ"), "M");
  EXPECT_EQ(from_base64("-_8="), from_base64("+/8="));
  for (const char* bad : {"A", "A===", "TQ=a", "T Q=", "T*=="})
    EXPECT_FALSE(from_base64(bad)) << bad;
}

}  // namespace
}  // namespace tandem::onnx
