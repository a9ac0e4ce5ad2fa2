// SPDX-License-Identifier: Apache-2.0
// Texts and images as BYTES tensors: what comes back is what the run or folder gives for each
// alone, whatever form they come in, and every bad tensor gets its answer.
#include <gtest/gtest.h>

#include "tandem/base/base64.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/io/image.h"
#include "tandem/io/json.h"
#include "tandem/models/pretrained.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/predictor.h"
#include "tests/serve/grpc_helper.h"
#include "tests/serve/run_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using Texts = std::vector<std::string>;

std::string binary_texts(const Texts& texts) {
  std::string out;
  for (const std::string& t : texts) {
    const auto n = static_cast<uint32_t>(t.size());
    out.append(reinterpret_cast<const char*>(&n), 4);
    out += t;
  }
  return out;
}

class BytesTensors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    digits_ = trained_run(*folder_, "digits", "{type: digits}", "{type: mlp, hidden: [8]}");
    texts_ = trained_texts(*folder_);
    const std::string bert = *folder_ / "models/bert";
    std::filesystem::copy(golden_path("hf/bert_sequenceclassification"), bert);
    write_file(bert + "/tokenizer.json", word_tokenizer(32));
    put_model(*folder_ / "models/scale.onnx", scale_model(3));
    put_model(*folder_ / "models/negated.onnx", onnx::model({{onnx::node("Neg", {"x"}, {"y"})},
                                                             {},
                                                             {sized_port("x", 1, {-1, -1})},
                                                             {sized_port("y", 1, {-1, -1})}}));
    put_model(*folder_ / "models/scaled_texts/serve.yaml", ensemble_of("texts", ""));
    put_model(
        *folder_ / "models/two_takers/serve.yaml",
        ensemble_of("texts", "  - {model: texts, input_map: [$in=a], output_map: [$out=z]}\n"));
    server_ = new Running({.models = *folder_ / "models"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  // The run's model, and one that negates what it gives.
  static std::string ensemble_of(const std::string& model, std::string more) {
    recipe::Predictor predictor(texts_);
    const std::string in = predictor.model().inputs.at(0).name,
                      out = predictor.model().outputs.at(0).name;
    const auto put = [](std::string& text, const std::string& from, const std::string& to) {
      if (const size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
    };
    put(more, "$in", in);
    put(more, "$out", out);
    return fmt::format(
        "ensemble:\n  - {{model: {}, input_map: [{}=a], output_map: [{}=b]}}\n"
        "  - {{model: negated, input_map: [x=b], output_map: [y=c]}}\n{}",
        model, in, out, more);
  }
  // A request by REST: its JSON up to the inputs' end, and bytes after it.
  static HttpResponse rest(const std::string& model, const std::string& input,
                           const std::string& bytes = "", const std::string& more = "") {
    const std::string head = "{\"inputs\":[" + input + "]" + more + "}";
    HttpHeaders headers;
    if (!bytes.empty())
      headers.emplace_back("Inference-Header-Content-Length", std::to_string(head.size()));
    return server_->post("/v2/models/" + model + "/infer", head + bytes, headers);
  }
  static std::string input_of(const std::string& name, const std::string& shape,
                              const std::string& rest) {
    return R"({"name":")" + name + R"(","datatype":"BYTES","shape":)" + shape + "," + rest + "}";
  }
  static std::string sized(size_t bytes) {
    return fmt::format(R"("parameters":{{"binary_data_size":{}}})", bytes);
  }
  static std::vector<float> floats_of(const HttpResponse& r) {
    EXPECT_EQ(r.status, 200) << r.body;
    std::vector<float> out;
    if (r.status != 200) return out;
    const io::Json json = io::parse_json(r.body);
    const io::Json& y = json.find("outputs")->as_array()->at(0);
    for (const io::Json& v : *y.find("data")->as_array())
      out.push_back(static_cast<float>(io::number_of(&v)));
    return out;
  }
  static Texts texts_of(const HttpResponse& r) {
    EXPECT_EQ(r.status, 200) << r.body;
    Texts out;
    if (r.status != 200) return out;
    const io::Json json = io::parse_json(r.body);
    const io::Json& y = json.find("outputs")->as_array()->at(0);
    EXPECT_EQ(*y.find("datatype")->as_string(), "BYTES");
    for (const io::Json& v : *y.find("data")->as_array()) out.push_back(*v.as_string());
    return out;
  }
  static GrpcAnswer grpc(const V2Input& in, const std::string& model = "texts") {
    return grpc_call((*server_)->port(), "/inference.GRPCInferenceService/ModelInfer",
                     v2_infer_request(model, {in}));
  }
  static TempFolder* folder_;
  static Running* server_;
  static std::string digits_, texts_;
};
TempFolder* BytesTensors::folder_ = nullptr;
Running* BytesTensors::server_ = nullptr;
std::string BytesTensors::digits_, BytesTensors::texts_;

const Texts kAsked = {"Where is this book ?", "Who wrote the river ?"};
const char* const kAskedJson = R"(["Where is this book ?","Who wrote the river ?"])";

TEST_F(BytesTensors, EnsemblesTakeWhatTheirFirstModelTakes) {
  const std::string asked = input_of("text", "[2]", std::string("\"data\":") + kAskedJson);
  std::vector<float> want = floats_of(rest("texts", asked));
  for (float& y : want) y = -y;
  EXPECT_EQ(floats_of(rest("scaled_texts", asked)), want);
  EXPECT_TRUE(has(server_->get("/v2/models/scaled_texts").body,
                  "{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[-1,1]}"));
  const HttpResponse r = server_->post("/v1/models/scaled_texts:predict",
                                       std::string("{\"instances\":") + kAskedJson + "}");
  EXPECT_EQ(r.status, 200) << r.body;
  // An input that two steps take is a tensor.
  EXPECT_EQ(rest("two_takers", asked).status, 400);
  EXPECT_FALSE(has(server_->get("/v2/models/two_takers").body, "BYTES"));
}

TEST_F(BytesTensors, TextsOfARunInEveryForm) {
  recipe::Predictor predictor(texts_);
  std::vector<float> want;
  for (const std::string& t : kAsked) {
    const auto row = predictor.text(t).outputs[0].second.contiguous().to_vector<float>();
    want.insert(want.end(), row.begin(), row.end());
  }
  const std::string binary = binary_texts(kAsked);
  for (const char* shape : {"[2]", "[2,1]"}) {
    EXPECT_EQ(
        floats_of(rest("texts", input_of("text", shape, std::string("\"data\":") + kAskedJson))),
        want);
    EXPECT_EQ(floats_of(rest("texts", input_of("text", shape, sized(binary.size())), binary)),
              want);
  }
  EXPECT_EQ(floats_of(rest("texts", input_of("text", "[2,1]",
                                             R"("data":[["Where is this book ?"],)"
                                             R"(["Who wrote the river ?"]])"))),
            want);
  // The datatype may follow the data.
  EXPECT_EQ(floats_of(rest("texts", std::string(R"({"data":)") + kAskedJson +
                                        R"(,"shape":[2],"name":"text","datatype":"BYTES"})")),
            want);
  for (const bool typed : {true, false}) {
    if (!Http2Frames::available()) break;
    V2Input in{.name = "text", .datatype = "BYTES", .shape = {2, 1}};
    if (typed) {
      in.field = 8;
      in.texts = kAsked;
    } else {
      in.raw = binary;
    }
    const GrpcAnswer r = grpc(in);
    ASSERT_EQ(r.code, 0) << r.text;
    EXPECT_EQ(field_of(r.message, 6), bytes_of_floats(want));
  }
  // TensorFlow Serving's forms.
  for (const std::string& body : {std::string(R"({"instances":)") + kAskedJson + "}",
                                  std::string(R"({"inputs":{"text":)") + kAskedJson + "}}",
                                  fmt::format(R"({{"instances":[{{"b64":"{}"}},{{"text":"{}"}}]}})",
                                              base64(kAsked[0]), kAsked[1])}) {
    const HttpResponse r = server_->post("/v1/models/texts:predict", body);
    ASSERT_EQ(r.status, 200) << r.body;
    const io::Json json = io::parse_json(r.body);
    const io::Json* rows =
        json.find("predictions") ? json.find("predictions") : json.find("outputs");
    std::vector<float> got;
    for (const io::Json& row : *rows->as_array())
      for (const io::Json& v : *row.as_array())
        got.push_back(static_cast<float>(io::number_of(&v)));
    EXPECT_EQ(got, want) << body;
  }
}

TEST_F(BytesTensors, TextsOfTensorFlowsPredict) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  io::ProtoWriter spec, dim, shape, tensor, entry, request;
  spec.add_bytes(1, "texts");
  dim.add_int(1, 2);
  shape.add_message(2, dim);
  tensor.add_int(1, 7);
  tensor.add_message(2, shape);
  for (const std::string& t : kAsked) tensor.add_bytes(8, t);
  entry.add_bytes(1, "text");
  entry.add_message(2, tensor);
  request.add_message(1, spec);
  request.add_message(2, entry);
  const GrpcAnswer r =
      grpc_call((*server_)->port(), "/tensorflow.serving.PredictionService/Predict", request);
  ASSERT_EQ(r.code, 0) << r.text;
  const auto want =
      floats_of(rest("texts", input_of("text", "[2]", std::string("\"data\":") + kAskedJson)));
  EXPECT_EQ(field_of(field_of(field_of(r.message, 1), 2), 4), bytes_of_floats(want));
}

TEST_F(BytesTensors, ImagesAndTheirClasses) {
  recipe::Predictor predictor(digits_);
  Texts images, want;
  for (int64_t i = 0; i < 5; ++i) {
    images.push_back(
        io::encode_png(round(data::Digits({.train = false}).get(i).x * 255.0).to(DType::u8)));
    const recipe::Prediction p = predictor.bytes(images.back());
    const auto row = p.outputs[0].second.contiguous().to_vector<float>();
    for (size_t k = 0; k < 2; ++k) {
      const recipe::ScoredClass& c = p.classes[0][k];
      want.push_back(fmt::format("{:f}:{}", row[static_cast<size_t>(c.index)], c.index));
      if (c.label != std::to_string(c.index)) want.back() += ":" + c.label;
    }
  }
  const std::string binary = binary_texts(images);
  const HttpResponse r =
      rest("digits", input_of("image", "[5]", sized(binary.size())), binary,
           R"(,"outputs":[{"name":"output","parameters":{"classification":2}}])");
  EXPECT_EQ(texts_of(r), want);
  EXPECT_NE(r.body.find("\"shape\":[5,2]"), std::string::npos) << r.body;
}

// Elements of different lengths run apart, and come back in their order.
TEST_F(BytesTensors, TextsOfAHuggingFaceFolder) {
  const auto model = golden_model("bert_sequenceclassification");
  const std::vector<std::vector<int64_t>> ids = {{3, 4, 5}, {7}, {9, 8, 7}, {1, 2, 3, 4, 5, 6}};
  Texts texts, labels;
  std::vector<float> want;
  for (const auto& row : ids) {
    std::string text;
    for (const int64_t id : row) text += fmt::format("{}w{}", text.empty() ? "" : " ", id);
    texts.push_back(text);
    const auto n = static_cast<int64_t>(row.size());
    models::ModelInputs in;
    in.at("input_ids") = tensor(row, Shape(1, n));
    in.at("attention_mask") = ones({1, n}, DType::i64);
    in.at("token_type_ids") = zeros({1, n}, DType::i64);
    const auto logits = model->run(in)[0].contiguous().to_vector<float>();
    want.insert(want.end(), logits.begin(), logits.end());
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    labels.push_back(
        fmt::format("{:f}:{}:LABEL_{}", logits[static_cast<size_t>(best)], best, best));
  }
  const std::string binary = binary_texts(texts);
  const std::string input = input_of("text", "[4,1]", sized(binary.size()));
  const std::vector<float> got = floats_of(rest("bert", input, binary));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
  const Texts top =
      texts_of(rest("bert", input, binary,
                    R"(,"outputs":[{"name":"logits","parameters":{"classification":1}}])"));
  ASSERT_EQ(top.size(), labels.size());
  for (size_t i = 0; i < top.size(); ++i)
    EXPECT_EQ(top[i].substr(top[i].find(':')), labels[i].substr(labels[i].find(':'))) << i;
}

TEST_F(BytesTensors, MetadataTellsWhatIsTaken) {
  const struct {
    const char *path, *says;
    bool has = true;
  } cases[] = {
      {"texts", R"({"name":"text","datatype":"BYTES","shape":[-1,1]})"},
      {"digits", R"({"name":"image","datatype":"BYTES","shape":[-1,1]})"},
      {"bert", R"({"name":"text","datatype":"BYTES","shape":[-1,1]})"},
      {"scale", "BYTES", false},
      {"texts/config", R"("name":"text","data_type":"TYPE_STRING")"},
      {"texts/config", R"("optional":true)"},
      {"scale/config", "optional", false},
  };
  for (const auto& c : cases) {
    const HttpResponse r = server_->get(std::string("/v2/models/") + c.path);
    EXPECT_EQ(r.body.find(c.says) != std::string::npos, c.has) << c.path << ": " << r.body;
  }
  if (!Http2Frames::available()) return;
  io::ProtoWriter name;
  name.add_bytes(1, "texts");
  const std::string v2 = "/inference.GRPCInferenceService/";
  const std::string metadata = grpc_call((*server_)->port(), v2 + "ModelMetadata", name).message;
  EXPECT_EQ(field_of(fields_of(metadata, 4).back(), 2), "BYTES");
  const std::string config =
      field_of(grpc_call((*server_)->port(), v2 + "ModelConfig", name).message, 1);
  EXPECT_EQ(field_of(fields_of(config, 5).back(), 2), "13");  // TYPE_STRING
  EXPECT_EQ(field_of(fields_of(config, 5).back(), 8), "1");
}

struct BadBytes {
  const char* name;
  std::string model, input;
  const char* says;
  std::string bytes = "";
};

TEST_F(BytesTensors, BadTensorsGetTheirAnswer) {
  const auto data = [](const std::string& json, const std::string& shape = "[1]",
                       const std::string& name = "text") {
    return input_of(name, shape, "\"data\":" + json);
  };
  const auto of_bytes = [](const char* name, const std::string& bytes, const char* says,
                           const std::string& shape = "[1]", const std::string& model = "texts") {
    const std::string input = model == "digits" ? "image" : "text";
    return BadBytes{name, model, input_of(input, shape, sized(bytes.size())), says, bytes};
  };
  const std::string four(4, '\xff');
  const BadBytes cases[] = {
      {"other name", "texts", data(R"(["a"])", "[1]", "words"), "or BYTES as 'text'"},
      {"a model of numbers", "scale", data(R"(["a"])", "[1]", "x"), "takes FP32, got BYTES"},
      {"not numbers", "texts", R"({"name":"text","datatype":"FP32","shape":[1],"data":[1]})",
       "no input 'text'"},
      {"with a tensor", "texts",
       data(R"(["Where"])") + R"(,{"name":"x","datatype":"INT64","shape":[1,1],"data":[1]})",
       "send one or the other"},
      {"numbers in data", "texts", data("[1]"), "is no text"},
      {"null in data", "texts", data("[null]"), "is no text"},
      {"no UTF-8 in data", "texts", data("[\"\xff\"]"), "UTF-8"},
      {"half a surrogate", "texts", data(R"(["\ud800"])"), "surrogate"},
      {"deep", "texts", data(std::string(80, '[')), "levels"},
      {"fewer than the shape", "texts", data(R"(["Where"])", "[2]"),
       "2 elements by its shape, got 1"},
      {"more than the shape", "texts", data(R"(["Where","Who"])"), "bytes follow them"},
      {"no shape", "texts", R"({"name":"text","datatype":"BYTES","data":["a"]})", "no shape"},
      {"rank 3", "texts", data(R"(["a"])", "[1,1,1]"), "expects the shape -1 or -1x1"},
      {"two columns", "texts", data(R"(["a","b"])", "[1,2]"), "expects the shape -1 or -1x1"},
      {"a scalar", "texts", data(R"(["a"])", "[]"), "expects the shape"},
      {"none", "texts", data("[]", "[0]"), "expected 1 to 1024"},
      {"too many", "texts", data("[]", "[100000]"), "expected 1 to 1024"},
      {"2^40", "texts", data("[]", "[1099511627776]"), "too large"},
      {"empty", "texts", data(R"([""])"), "no words"},
      {"two lines", "texts", data(R"(["Where\nWho"])"), "holds 2 samples"},
      {"no tokens", "bert", data(R"([" "])"), "no tokens"},
      of_bytes("half a length", "\1\0", "begins with its length"),
      of_bytes("2^32 - 1", four, "is to have 4294967295 bytes, and 0 are left"),
      of_bytes("beyond the body", std::string("\5\0\0\0abcd", 8), "5 bytes, and 4 are left"),
      of_bytes("bytes after", binary_texts({"Where", "Who"}), "bytes follow them"),
      of_bytes("no image", binary_texts({"not an image"}), "element 0 of input 'image'", "[1]",
               "digits"),
      of_bytes("no UTF-8", binary_texts({"\xff\xfe"}), "is not a text in UTF-8", "[1]", "bert"),
      of_bytes("too long", binary_texts({[] {
                 std::string s;
                 for (int i = 0; i < 4000; ++i) s += "w1 ";
                 return s;
               }()}),
               "tokens, the model reads", "[1]", "bert"),
  };
  for (const BadBytes& c : cases) {
    const HttpResponse r = rest(c.model, c.input, c.bytes);
    EXPECT_EQ(r.status, 400) << c.name << ": " << r.body;
    EXPECT_NE(r.body.find(c.says), std::string::npos) << c.name << ": " << r.body;
    EXPECT_NO_THROW(io::parse_json(r.body)) << c.name << ": " << r.body;
  }
  EXPECT_EQ(server_->get("/v2/health/ready").status, 200);
}

TEST_F(BytesTensors, BadTensorsOfGrpcGetTheirStatus) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const struct {
    const char* name;
    V2Input in;
    const char* says;
  } calls[] = {
      {"other contents",
       {.name = "text", .datatype = "BYTES", .shape = {1}, .field = 3, .ints = {1}},
       "values are bytes_contents, and has int64_contents"},
      {"texts for numbers", {.field = 8, .texts = {"abcd"}}, "and has bytes_contents"},
      {"fewer",
       {.name = "text", .datatype = "BYTES", .shape = {2}, .field = 8, .texts = {"Who"}},
       "2 elements by its shape, got 1"},
      {"a length",
       {.name = "text", .datatype = "BYTES", .shape = {1}, .raw = std::string(4, '\xff')},
       "4294967295 bytes"},
      {"nothing", {.name = "text", .datatype = "BYTES", .shape = {1}}, "got 0"},
  };
  for (const auto& c : calls) {
    const GrpcAnswer r = grpc(c.in);
    EXPECT_EQ(r.code, 3) << c.name << ": " << r.text;
    EXPECT_NE(r.text.find(c.says), std::string::npos) << c.name << ": " << r.text;
  }
}

// Each message of a stream is prepared beside the loop, and answered in its turn.
TEST_F(BytesTensors, StreamsTakeTexts) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const auto want =
      floats_of(rest("texts", input_of("text", "[1]", R"("data":["Where is this book ?"])")));
  Http2Client client("127.0.0.1", (*server_)->port(), 20);
  const int32_t id = client.start("POST", "/inference.GRPCInferenceService/ModelStreamInfer", "",
                                  {{"content-type", "application/grpc"}, {"te", "trailers"}}, true);
  constexpr int kMessages = 40;
  for (int i = 0; i < kMessages; ++i) {
    V2Input in{.name = "text", .datatype = "BYTES", .shape = {1}};
    in.raw = i % 5 == 2 ? std::string(3, '\xff') : binary_texts({kAsked[0]});
    client.more(id, as_body(v2_infer_request("texts", {in}, {}, std::to_string(i))), false);
  }
  client.more(id, "", true);
  const HttpResponse r = client.wait(id);
  const std::vector<std::string> all = streamed_messages(r);
  EXPECT_EQ(all.size(), size_t{kMessages}) << trailer_of(r, "grpc-message");
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string response = field_of(all[i], 2), error = field_of(all[i], 1);
    EXPECT_EQ(field_of(response, 3), std::to_string(i));
    EXPECT_EQ(error.find("begins with its length") != std::string::npos, i % 5 == 2) << error;
    EXPECT_EQ(field_of(response, 6), i % 5 == 2 ? "" : bytes_of_floats(want)) << i;
  }
}

}  // namespace
}  // namespace tandem::serve
