// SPDX-License-Identifier: Apache-2.0
// The protocols over a running server: every bad input gets its stated answer and leaves the server
// healthy, and one tensor has the same bits in whatever form it comes.
#include "tandem/serve/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tandem/base/ascii.h"
#include "tandem/io/gzip.h"
#include "tandem/io/json.h"
#include "tandem/io/npy.h"
#include "tandem/serve/server_settings.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

std::string raw_floats(const std::vector<float>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * 4};
}

class Serving : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    put_model(*folder_ / "scale/1/model.onnx", scale_model(2));
    put_model(*folder_ / "scale/3/model.onnx", scale_model(3));
    put_model(*folder_ / "scale/serve.yaml",
              "latest: 0\nlabels: [stable=1]\nmax_batch: 4\npriority_levels: 2\n");
    put_model(*folder_ / "pair.onnx", pair_model());
    put_model(*folder_ / "lookup.onnx", lookup_model());
    server_ = new Running({.models = folder_->path().string(),
                           .http = {.limits = {.body_bytes = size_t{4} << 20}},
                           .default_model = "scale"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static void expect_healthy() {
    EXPECT_EQ(server_->get("/v2/health/ready").status, 200);
    const HttpResponse r = server_->post("/v2/models/scale/infer", good());
    EXPECT_EQ(r.status, 200);
    EXPECT_TRUE(has(r.body, "\"data\":[3.0,6.0,9.0,12.0]")) << r.body;
  }
  static std::string input_of(const std::string& shape, const std::string& data,
                              const std::string& datatype = "FP32", const std::string& name = "x") {
    return "{\"name\":\"" + name + "\",\"datatype\":\"" + datatype + "\",\"shape\":" + shape +
           ",\"data\":" + data + "}";
  }
  static std::string good(const std::string& input = input_of("[1,4]", "[1,2,3,4]"),
                          const std::string& more = "") {
    return "{\"inputs\":[" + input + "]" + more + "}";
  }
  static TempFolder* folder_;
  static Running* server_;
};
TempFolder* Serving::folder_ = nullptr;
Running* Serving::server_ = nullptr;

// An object's beginning. Each key is looked for among those before it.
std::string many_keys(int n) {
  std::string out = "{\"k\":0";
  for (int i = 0; i < n; ++i) out += ",\"k" + std::to_string(i) + "\":0";
  return out;
}

struct BadBody {
  const char* name;
  std::string body;
  const char* says;
};

// Clients repeat what stands before the bytes of their tensors: the answer is that of the bytes.
TEST_F(Serving, OneHeadAsksForManyTensors) {
  const std::string head =
      "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],"
      "\"parameters\":{\"binary_data_size\":16}}]}";
  const HttpHeaders length{{"Inference-Header-Content-Length", std::to_string(head.size())}};
  const auto client = server_->client();
  const auto ask = [&](const std::string& bytes, const char* model = "scale") {
    return client->post("/v2/models/" + std::string(model) + "/infer", head + bytes, length);
  };
  for (const float n : {1.0F, 2.0F, 5.0F}) {
    EXPECT_TRUE(
        has(ask(raw_floats({n, 0, 0, n})).body, fmt::format("[{0:.1f},0.0,0.0,{0:.1f}]", 3 * n)));
    EXPECT_TRUE(has(ask(raw_floats({n})).body, "expects 16 bytes of the 4 that are left"));
    EXPECT_TRUE(has(ask("", "pair").body, "expects 16 bytes of the 0 that are left"));
    EXPECT_TRUE(has(ask(raw_floats({n, 0, 0, n}), "pair").body, "the model has no input 'x'"));
  }
}

// Rows 1 to 25 of the list of bad inputs.
TEST_F(Serving, BadV2BodiesGetTheirAnswer) {
  const std::string x = input_of("[1,4]", "[1,2,3,4]");
  const std::string brackets(250000, '[');
  const BadBody cases[] = {
      {"1 empty", "", "ends early"},
      {"2 truncated", "{\"inputs\":[{\"name\":\"x\"", "byte 22"},
      {"3 deep", "{\"more\":" + brackets, "levels"},
      {"3 deep data", good(input_of("[1,4]", brackets)), "levels"},
      {"4 not UTF-8", "{\"id\":\"\xff\",\"inputs\":[" + x + "]}", "UTF-8"},
      {"4 surrogate", "{\"id\":\"\\ud800\",\"inputs\":[" + x + "]}", "surrogate"},
      {"5 inputs no list", "{\"inputs\":{}}", "'inputs' is not a list"},
      {"5 inputs missing", "{}", "no 'inputs'"},
      {"6 unknown input", good(input_of("[1,4]", "[1,2,3,4]", "FP32", "z")), "it has 'x'"},
      {"7 missing input", "{\"inputs\":[]}", "'x' is missing"},
      {"8 twice", good(x + "," + x), "given twice"},
      {"8 key twice", "{\"inputs\":[],\"inputs\":[]}", "given twice"},
      {"8 key twice, escaped", "{\"inputs\":[],\"\\u0069nputs\":[]}", "'inputs' is given twice"},
      {"8 key twice among many", many_keys(20000) + ",\"k7\":0}", "'k7' is given twice"},
      {"8 many keys", many_keys(100000) + "}", "no 'inputs'"},
      {"9 output twice", good(x, ",\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}]"), "twice"},
      {"9 unknown output", good(x, ",\"outputs\":[{\"name\":\"q\"}]"), "it has 'y'"},
      {"10 datatype FLOAT", good(input_of("[1,4]", "[1,2,3,4]", "FLOAT")), "there are BOOL"},
      {"10 lower case", good(input_of("[1,4]", "[1,2,3,4]", "fp32")), "there are BOOL"},
      {"11 other datatype", good(input_of("[1,4]", "[1,2,3,4]", "INT64")), "takes FP32, got INT64"},
      {"11 text", good(input_of("[1]", "[\"a\"]", "BYTES")), "takes FP32, got BYTES"},
      {"12 shape -1", good(input_of("[-1,4]", "[1,2,3,4]")), "negative"},
      {"12 shape -5", good(input_of("[1,-5]", "[1,2,3,4]")), "negative"},
      {"13 shape 1.5", good(input_of("[1.5,4]", "[1,2,3,4]")), "whole number"},
      {"13 shape 2 quoted", good(input_of("[\"2\",4]", "[1]")), "whole number"},
      {"13 shape 1e30", good(input_of("[1e30,4]", "[1]")), "whole number"},
      {"13 shape null", good(input_of("[null,4]", "[1]")), "whole number"},
      {"13 shape no list", good(input_of("4", "[1]")), "expected a list"},
      {"14 overflow", good(input_of("[16,1152921504606846978]", "[1]")), "too large"},
      {"15 bytes", good(input_of("[65536,65536]", "[1]")), "2^31"},
      {"16 rank", good(input_of("[4]", "[1,2,3,4]")), "expects the shape -1x4, got 4"},
      {"16 rank 9", good(input_of("[1,1,1,1,1,1,1,1,4]", "[1]")), "dimensions"},
      {"16 width", good(input_of("[1,5]", "[1,2,3,4,5]")), "expects the shape"},
      {"17 fewer", good(input_of("[1,4]", "[1,2,3]")), "has 4 elements, got 3"},
      {"17 more", good(input_of("[1,4]", "[1,2,3,4,5]")), "has 4 elements, got 5"},
      {"18 ragged", good(input_of("[2,4]", "[[1,2,3,4],[1,2,3]]")), "data[1] has 3 items"},
      {"18 mixed", good(input_of("[2,4]", "[[1,2,3,4],5]")), "data[1] is a number"},
      {"20 string", good(input_of("[1,4]", "[1,\"2\",3,4]")), "data[1] is a string"},
      {"20 true", good(input_of("[1,4]", "[1,2,true,4]")), "data[2] is true"},
      {"20 null", good(input_of("[1,4]", "[1,2,3,null]")), "data[3] is null"},
      {"21 NaN", good(input_of("[1,4]", "[1,2,NaN,4]")), "data[2] is NaN"},
      {"21 -Infinity", good(input_of("[1,4]", "[1,2,-Infinity,4]")), "-Infinity"},
      {"22 1e400", good(input_of("[1,4]", "[1,2,1e400,4]")), "too large for float32"},
      {"22 1e39", good(input_of("[1,4]", "[1,2,1e39,4]")), "too large for float32"},
      {"24 no rows", good(input_of("[0,4]", "[]")), "no rows"},
      {"28 no data", good("{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4]}"), "no data"},
      {"28 no shape", good("{\"name\":\"x\",\"datatype\":\"FP32\",\"data\":[1]}"), "no shape"},
      {"49 sequence", good(x, ",\"parameters\":{\"sequence_id\":3}"), "keeps no state"},
      {"49 sequence word", good(x, ",\"parameters\":{\"sequence_id\":-3}"), "'sequence_id'"},
      {"49 sequence flag", good(x, ",\"parameters\":{\"sequence_start\":1}"), ""},
      {"50 priority", good(x, ",\"parameters\":{\"priority\":-1}"), "negative"},
      {"50 priority levels", good(x, ",\"parameters\":{\"priority\":3}"), "1 (the first) to 2"},
      {"50 timeout", good(x, ",\"parameters\":{\"timeout\":-1}"), "negative"},
      {"50 timeout text", good(x, ",\"parameters\":{\"timeout\":\"a\"}"), "whole number"},
      {"behind", good(x) + "x", "something follows the value"},
      {"comma", "{\"inputs\":[" + x + ",]}", "comma"},
      {"bracket", "{\"inputs\":[" + x + "}]", "brackets"},
      {"leading zero", good(input_of("[1,4]", "[01,2,3,4]")), "expected a value"},
  };
  for (const BadBody& b : cases) {
    const HttpResponse r = server_->post("/v2/models/scale/infer", b.body);
    EXPECT_EQ(r.status, 400) << b.name << r.body;
    EXPECT_TRUE(has(r.body, b.says)) << b.name << ": " << r.body;
    EXPECT_NO_THROW(io::parse_json(r.body)) << b.name << ": " << r.body;
    EXPECT_FALSE(has(r.body, "/")) << b.name << ": " << r.body;  // no path leaks
  }
  expect_healthy();
}

TEST_F(Serving, WholeNumbersKeepTheirRange) {
  const auto ask = [&](const std::string& data) {
    return server_->post("/v2/models/lookup/infer", good(input_of("[1]", data, "INT64")));
  };
  EXPECT_TRUE(has(ask("[3]").body, "[6.0,7.0]"));
  EXPECT_TRUE(has(ask("[2.0]").body, "[4.0,5.0]"));
  for (const char* bad : {"[1.5]", "[9223372036854775808]", "[1e30]", "[true]", "[\"1\"]"})
    EXPECT_EQ(ask(bad).status, 400) << bad;
  EXPECT_EQ(ask("[9]").status, 400);  // an index that the table does not have
  expect_healthy();
}

// Rows 26 to 30.
TEST_F(Serving, BadBinaryBodiesGetTheirAnswer) {
  struct Case {
    const char* name;
    HttpHeaders headers;
    std::string json, tail;
  };
  const auto json = [](const std::string& parameters, const std::string& shape = "[1,4]",
                       const std::string& more = "") {
    return "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":" + shape +
           ",\"parameters\":{" + parameters + "}" + more + "}]}";
  };
  const std::string right = json("\"binary_data_size\":16"), bytes = raw_floats({1, 2, 3, 4});
  const auto length = [](const std::string& v) {
    return HttpHeaders{{"Inference-Header-Content-Length", v}};
  };
  const std::string n = std::to_string(right.size());
  const Case cases[] = {
      {"26 beyond the body", length("99999"), right, bytes},
      {"26 -1", length("-1"), right, bytes},
      {"26 1e30", length("1e30"), right, bytes},
      {"26 abc", length("abc"), right, bytes},
      {"26 twice",
       {{"Inference-Header-Content-Length", n}, {"Inference-Header-Content-Length", n}},
       right,
       bytes},
      {"27 more", length(n), right, bytes + "more"},
      {"27 fewer", length(n), right, bytes.substr(4)},
      {"28 not the shape", length(std::to_string(json("\"binary_data_size\":12").size())),
       json("\"binary_data_size\":12"), bytes.substr(4)},
      {"28 half an element", length(std::to_string(json("\"binary_data_size\":15").size())),
       json("\"binary_data_size\":15"), bytes.substr(1)},
      {"28 negative", length(std::to_string(json("\"binary_data_size\":-1").size())),
       json("\"binary_data_size\":-1"), ""},
      {"30 both",
       length(
           std::to_string(json("\"binary_data_size\":16", "[1,4]", ",\"data\":[1,2,3,4]").size())),
       json("\"binary_data_size\":16", "[1,4]", ",\"data\":[1,2,3,4]"), bytes},
      {"no length", {}, right, ""},
      {"raw of 5 bytes", length("0"), "", "12345"},
      {"raw of none", length("0"), "", ""},
  };
  for (const Case& c : cases) {
    const HttpResponse r = server_->post("/v2/models/scale/infer", c.json + c.tail, c.headers);
    EXPECT_EQ(r.status, 400) << c.name << ": " << r.body;
  }
  const HttpResponse r = server_->post("/v2/models/pair/infer", bytes, length("0"));
  EXPECT_TRUE(has(r.body, "one input")) << r.body;
  expect_healthy();
}

TEST_F(Serving, OneTensorHasTheSameBitsInEveryForm) {
  const std::vector<float> values = {0.1F, -2.5e-7F, 3.4e38F / 4, 1e-44F};
  std::string list;
  for (const float v : values) list += fmt::format("{}{}", list.empty() ? "" : ",", v);
  const std::string bytes = raw_floats(values);
  std::vector<float> tripled;
  for (const float v : values) tripled.push_back(v * 3);
  const auto binary = [&](const std::string& input, const std::string& tail, bool gzip,
                          const std::string& length) {
    HttpHeaders h;
    if (!length.empty()) h.emplace_back("Inference-Header-Content-Length", length);
    if (gzip) h.emplace_back("Content-Encoding", "gzip");
    const std::string body = input + tail;
    return server_->post("/v2/models/scale/infer", gzip ? io::gzip(body) : body, h);
  };
  const std::string ask = ",\"parameters\":{\"binary_data_output\":true}";
  const std::string flat = good(input_of("[1,4]", "[" + list + "]"), ask);
  const std::string nested = good(input_of("[1,4]", "[[" + list + "]]"), ask);
  const std::string head = good(
      "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"parameters\":"
      "{\"binary_data_size\":16}}",
      ask);
  const std::string n = std::to_string(head.size());
  const HttpResponse all[] = {binary(flat, "", false, ""),  binary(nested, "", false, ""),
                              binary(flat, "", true, ""),   binary(head, bytes, false, n),
                              binary(head, bytes, true, n), binary("", bytes, false, "0")};
  for (const HttpResponse& r : all) {
    ASSERT_EQ(r.status, 200) << r.body;
    const std::string* at = header_of(r, "inference-header-content-length");
    ASSERT_TRUE(at);
    EXPECT_EQ(r.body.substr(std::stoul(*at)), raw_floats(tripled));
  }
  const HttpResponse npy = server_->post("/predictions/scale", [&] {
    io::save_npy(make_tensor({values.begin(), values.end()}, {1, 4}, DType::f32),
                 *folder_ / "in.npy");
    return read_file(*folder_ / "in.npy");
  }());
  ASSERT_EQ(npy.status, 200) << npy.body;
  write_file(*folder_ / "out.npy", npy.body);
  EXPECT_EQ(raw_floats(io::load_npy(*folder_ / "out.npy").to_vector<float>()), raw_floats(tripled));
  // The numbers of JSON read back to the same bits.
  for (const char* path : {"/v1/models/scale:predict", "/invocations"}) {
    const HttpResponse r = server_->post(path, "{\"instances\":[[" + list + "]]}");
    const io::Json json = io::parse_json(r.body);
    const io::Json::Array& row = *json.find("predictions")->as_array()->at(0).as_array();
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(static_cast<float>(io::number_of(&row[i])), tripled[i]) << path;
  }
}

TEST_F(Serving, EncodingsAreLimited) {
  const auto send = [&](const std::string& body, const std::string& coding) {
    return server_->post("/v2/models/scale/infer", body, {{"Content-Encoding", coding}}).status;
  };
  EXPECT_EQ(send(io::gzip(std::string(size_t{5} << 20, ' ')), "gzip"), 413);  // 1000 : 1
  EXPECT_EQ(send("not gzip", "gzip"), 400);
  EXPECT_EQ(send(io::gzip(good()).substr(0, 40), "gzip"), 400);
  EXPECT_EQ(send(io::gzip(good()) + "x", "gzip"), 400);
  EXPECT_EQ(send(good(), "br"), 415);
  EXPECT_EQ(send(good(), "gzip, gzip"), 415);
  EXPECT_EQ(send(good(), "identity"), 200);
  const HttpResponse r =
      server_->client()->request("GET", "/metrics", "", {{"Accept-Encoding", "deflate, gzip"}});
  EXPECT_TRUE(has(io::gunzip(r.body, 1 << 20), "tandem_requests_total"));
  expect_healthy();
}

struct Answered {
  const char* method;
  std::string path;
  int status;
  std::string says;
  std::string body = "";
};

TEST_F(Serving, PathsAndMethods) {
  const std::string twice = good(input_of("[1,4]", "[1,2,3,4]"));
  const Answered cases[] = {
      {"GET", "/", 200, "scale version 3"},
      {"GET", "/v2", 200, "binary_tensor_data"},
      {"GET", "/v2/health/live", 200, "true"},
      {"GET", "/v2/health/ready", 200, "true"},
      {"GET", "/v2/models/scale", 200, "\"versions\":[\"1\",\"3\"]"},
      {"GET", "/v2/models/pair", 200, "\"name\":\"b\",\"datatype\":\"INT64\",\"shape\":[-1]"},
      {"GET", "/v2/models/scale/ready", 200, "true"},
      {"GET", "/v2/models/scale/versions/2/ready", 404, "false"},
      {"GET", "/v2/models/scale/config", 200, "\"max_batch_size\":4"},
      {"GET", "/v2/models/scale/config", 200, "\"priority_levels\":2,\"default_priority_level\":2"},
      {"POST", "/v2/models/scale/infer", 200, "[3.0,6.0,9.0,12.0]",
       good(input_of("[1,4]", "[1,2,3,4]"), ",\"parameters\":{\"priority\":1}")},
      {"POST", "/v2/models/lookup/infer", 200, "[2.0,3.0]",  // it has no levels
       good(input_of("[1]", "[1]", "INT64"), ",\"parameters\":{\"priority\":7}")},
      {"GET", "/v2/models/scale/stats", 200, "inference_count"},
      {"GET", "/v2/models/stats", 200, "lookup"},
      {"POST", "/v2/repository/index", 200, "\"state\":\"READY\""},
      {"POST", "/v2/models/scale/versions/1/infer", 200, "[2.0,4.0,6.0,8.0]", twice},
      {"POST", "/v2/models/scale/versions/stable/infer", 200, "[2.0,4.0,6.0,8.0]", twice},
      {"POST", "/v2/repository/models/scale/load", 403, "--allow-load"},
      {"POST", "/v2/repository/models/scale/unload", 403, "--allow-load"},
      {"GET", "/v1/models/scale", 200,
       "{\"name\":\"scale\",\"ready\":true,\"model_version_status\":[{\"version\":\"1\",\"state\":"
       "\"AVAILABLE\""},
      {"GET", "/v1/models/scale/versions/1", 200, "{\"model_version_status\":["},
      {"GET", "/v1/models/scale/versions/1", 200, "\"version\":\"1\""},
      {"GET", "/v1/models/scale/metadata", 200, "DT_FLOAT"},
      {"GET", "/ping", 200, "Healthy"},
      {"GET", "/metrics", 200, "tandem_request_seconds_bucket{model=\"scale\""},
      {"HEAD", "/v2/health/live", 200, ""},
      // 37 and 38: names and versions that are none
      {"POST", "/v2/models/../etc/infer", 404, ""},
      {"POST", "/v2/models/%2e%2e%2fetc/infer", 404, "no model"},
      {"POST", "/v2/models/" + std::string(300, 'a') + "/infer", 404, "no model"},
      {"POST", "/v2/models//infer", 404, "no model"},
      {"POST", "/v2/models/%20/infer", 404, "no model"},
      {"GET", "/v2/models/scale/versions/abc", 404, "no version"},
      {"GET", "/v2/models/scale/versions/-1", 404, "no version"},
      {"GET", "/v2/models/scale/versions/9223372036854775808", 404, "no version"},
      {"GET", "/v2/models/scale/versions/003", 404, "no version"},
      {"GET", "/v2/models/none", 404, "no model 'none'"},
      {"GET", "/v1/models/none", 404, ""},
      {"GET", "/nothing", 404, ""},
      {"GET", "/v2/nothing", 404, ""},
      {"GET", "/v2/models/scale/nothing", 404, ""},
      {"GET", "/v2/health/nothing", 404, ""},
      {"GET", "/v1/models/scale:predict", 405, ""},
      // 44: methods
      {"PUT", "/v2/health/live", 405, "GET alone"},
      {"TRACE", "/", 405, ""},
      {"DELETE", "/v2/models/scale/infer", 405, "POST alone"},
      {"GET", "/v2/models/scale/infer", 405, ""},
      {"POST", "/v1/models/scale:classify", 400, "no 'examples'", "{}"},
  };
  for (const Answered& a : cases) {
    const HttpResponse r = server_->client()->request(a.method, a.path, a.body);
    EXPECT_EQ(r.status, a.status) << a.method << a.path << ": " << r.body;
    EXPECT_TRUE(has(r.body, a.says)) << a.method << a.path << ": " << r.body;
    const bool allows = std::any_of(r.headers.begin(), r.headers.end(),
                                    [](const auto& h) { return ascii_lower(h.first) == "allow"; });
    EXPECT_EQ(allows, a.status == 405) << a.method << a.path;
    EXPECT_FALSE(has(r.body, folder_->path().string())) << a.path;
  }
  expect_healthy();
}

TEST_F(Serving, TensorFlowForms) {
  const Answered cases[] = {
      {"/v1/models/scale:predict", "", 200,
       "{\"predictions\":[[3.0,3.0,3.0,3.0],[6.0,6.0,6.0,6.0]]}",
       "{\"instances\":[[1,1,1,1],[2,2,2,2]]}"},
      {"/v1/models/scale/versions/1:predict", "", 200, "{\"outputs\":[[2.0,2.0,2.0,2.0]]}",
       "{\"signature_name\":\"serving_default\",\"inputs\":[[1,1,1,1]]}"},
      {"/v1/models/scale/labels/stable:predict", "", 200, "2.0",
       "{\"inputs\":{\"x\":[[1,1,1,1]]}}"},
      {"/v1/models/scale:predict", "", 200, "[NaN,Infinity,-Infinity,0.0]",
       "{\"instances\":[[NaN,Infinity,-Infinity,0]]}"},
      {"/v1/models/pair:predict", "", 200,
       "{\"predictions\":[{\"na\":[-1.0,-2.0],\"nb\":-7},{\"na\":[-3.0,-4.0],\"nb\":-8}]}",
       "{\"instances\":[{\"a\":[1,2],\"b\":7},{\"b\":8,\"a\":[3,4]}]}"},
      {"/v1/models/pair:predict", "", 200, "{\"outputs\":{\"na\":[[-1.0,-2.0]],\"nb\":[-7]}}",
       "{\"inputs\":{\"a\":[[1,2]],\"b\":[7]}}"},
      // 35, 36
      {"/v1/models/scale:predict", "", 400, "one of", "{\"instances\":[],\"inputs\":[]}"},
      {"/v1/models/scale:predict", "", 400, "one of", "{}"},
      {"/v1/models/scale:predict", "", 400, "no instances", "{\"instances\":[]}"},
      {"/v1/models/scale:predict", "", 400, "not a list", "{\"instances\":3}"},
      {"/v1/models/scale:predict", "", 400, "object", "{\"instances\":[[{\"b64\":1},1,1,1]]}"},
      {"/v1/models/scale:predict", "", 400, "b64", "{\"inputs\":{\"x\":{\"b64\":\"!\"}}}"},
      {"/v1/models/scale:predict", "", 400, "signature",
       "{\"signature_name\":\"q\",\"inputs\":[]}"},
      {"/v1/models/scale:predict", "", 400, "no input 'q'", "{\"inputs\":{\"q\":[[1]]}}"},
      {"/v1/models/pair:predict", "", 400, "2 inputs", "{\"inputs\":[[1,2]]}"},
      {"/v1/models/pair:predict", "", 400, "1 of the 2", "{\"instances\":[{\"b\":8}]}"},
      {"/v1/models/pair:predict", "", 400, "differ in shape",
       "{\"instances\":[{\"b\":8,\"a\":[1,2]},{\"b\":8,\"a\":[1]}]}"},
      {"/v1/models/pair:predict", "", 400, "rows", "{\"inputs\":{\"a\":[[1,2]],\"b\":[7,8]}}"},
      // Bodies of any kind
      {"/predictions/scale", "", 200, "{\"y\":[[3.0,6.0,9.0,12.0]]}", "[1,2,3,4]"},
      {"/predictions/scale/1", "", 200, "{\"y\":[[2.0,4.0,6.0,8.0]]}", "[[1,2,3,4]]"},
      {"/invocations", "", 200, "\"model_name\":\"scale\"", good()},
      {"/predictions/pair", "", 400, "2 inputs", "[1,2,3,4]"},
      {"/predictions/scale", "", 415, "", ""},
      {"/predictions/scale", "", 400, "", "\x93NUMPY and no more"},
      {"/predictions/none", "", 404, "no model", "[]"},
  };
  for (const Answered& a : cases) {
    const HttpResponse r = server_->post(a.method, a.body);
    const int status = a.status == 415 ? (r.status == 400 ? 415 : r.status) : r.status;
    EXPECT_EQ(status, a.status) << a.method << " " << a.body << ": " << r.body;
    EXPECT_TRUE(has(r.body, a.says)) << a.method << " " << a.body << ": " << r.body;
  }
  expect_healthy();
}

TEST_F(Serving, PagesOfOtherSitesAreNotAnswered) {
  const auto from = [&](const std::string& origin) {
    return server_->post("/v2/models/scale/infer", good(), {{"Origin", origin}}).status;
  };
  EXPECT_EQ(from("http://localhost:3000"), 200);
  EXPECT_EQ(from("http://[::1]:3000"), 200);
  for (const char* bad :
       {"https://evil.example", "null", "http://localhost.evil.example", "http://127.evil.example"})
    EXPECT_EQ(from(bad), 403) << bad;
}

TEST(ServeSettings, NearestKeysAndSafeAddresses) {
  const ServerSettings s = read_server_settings("", {"port=0", "defaults.max_batch=8"});
  EXPECT_EQ(s.port, 0);
  EXPECT_EQ(server_options(s).defaults.max_batch, 8);
  EXPECT_TRUE(has(thrown([] { read_server_settings("", {"prot=1"}); }), "did you mean 'port'?"));
  EXPECT_TRUE(has(thrown([] { read_server_settings("", {"defaults.max_bach=1"}); }),
                  "did you mean 'max_batch'?"));
  EXPECT_TRUE(has(thrown([] { read_server_settings("", {"port=70000"}); }), "65535"));
  EXPECT_TRUE(has(thrown([] { read_server_settings("", {"port"}); }), "KEY=VALUE"));
  const TempFolder t;
  for (const char* host : {"0.0.0.0", "::", "192.0.2.1"})
    EXPECT_TRUE(has(thrown([&] { Server({.models = t.path().string(), .http = {.host = host}}); }),
                    "--insecure"))
        << host;
}

}  // namespace
}  // namespace tandem::serve
