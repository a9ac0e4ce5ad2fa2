// SPDX-License-Identifier: Apache-2.0
// Outputs as classes, by REST and gRPC: the highest of each row with their places.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/io/json.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

class ClassOutputs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    put_model(*folder_ / "scale.onnx", scale_model(1));
    put_model(*folder_ / "pair.onnx", pair_model());
    server_ = new Running({.models = folder_->path().string()});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static HttpResponse ask(const std::vector<float>& x, int64_t rows,
                          const std::string& parameters) {
    const std::string head = fmt::format(
        R"({{"inputs":[{{"name":"x","datatype":"FP32","shape":[{},4],"parameters":)"
        R"({{"binary_data_size":{}}}}}],"outputs":[{{"name":"y","parameters":{{{}}}}}]}})",
        rows, x.size() * 4, parameters);
    return server_->post("/v2/models/scale/infer", head + bytes_of_floats(x),
                         {{"Inference-Header-Content-Length", std::to_string(head.size())}});
  }
  static TempFolder* folder_;
  static Running* server_;
};
TempFolder* ClassOutputs::folder_ = nullptr;
Running* ClassOutputs::server_ = nullptr;

TEST_F(ClassOutputs, TheHighestOfEachRow) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const struct {
    const char* name;
    std::vector<float> x;
    const char *k, *shape, *data;
  } cases[] = {
      {"one", {1, 5, 10, 4}, "1", "[1,1]", R"(["10.000000:2"])"},
      {"two", {1, 5, 10, 4}, "2", "[1,2]", R"(["10.000000:2","5.000000:1"])"},
      {"rows",
       {1, 5, 10, 4, -1.5F, 0.25F, -2, 0},
       "2",
       "[2,2]",
       R"(["10.000000:2","5.000000:1","0.250000:1","0.000000:3"])"},
      {"equal ones", {7, 7, 7, 7}, "3", "[1,3]", R"(["7.000000:0","7.000000:1","7.000000:2"])"},
      {"NaN comes last",
       {nan, 1, nan, -inf},
       "4",
       "[1,4]",
       R"(["1.000000:1","-inf:3","nan:0","nan:2"])"},
      {"more than there are",
       {4, 3, 2, 1},
       "9223372036854775807",
       "[1,4]",
       R"(["4.000000:0","3.000000:1","2.000000:2","1.000000:3"])"},
  };
  for (const auto& c : cases) {
    const auto rows = static_cast<int64_t>(c.x.size()) / 4;
    const HttpResponse r = ask(c.x, rows, std::string("\"classification\":") + c.k);
    ASSERT_EQ(r.status, 200) << c.name << ": " << r.body;
    const std::string want =
        fmt::format(R"("datatype":"BYTES","shape":{},"data":{}}})", c.shape, c.data);
    EXPECT_NE(r.body.find(want), std::string::npos) << c.name << ": " << r.body;
  }
  // None are the numbers.
  EXPECT_NE(ask({1, 2, 3, 4}, 1, "\"classification\":0").body.find("[1.0,2.0,3.0,4.0]"),
            std::string::npos);
}

TEST_F(ClassOutputs, WholeNumbersAndBinaryForm) {
  const HttpResponse whole =
      server_->post("/v2/models/pair/infer",
                    R"({"inputs":[{"name":"a","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]},)"
                    R"({"name":"b","datatype":"INT64","shape":[2],"data":[9007199254740993,-3]}],)"
                    R"("outputs":[{"name":"nb","parameters":{"classification":5}}]})");
  EXPECT_NE(whole.body.find(R"("shape":[2,1],"data":["-9007199254740993:0","3:0"])"),
            std::string::npos)
      << whole.body;
  const HttpResponse r = ask({1, 5, 10, 4}, 1, R"("classification":2,"binary_data":true)");
  const std::string* length = header_of(r, "inference-header-content-length");
  ASSERT_TRUE(length) << r.body;
  EXPECT_EQ(r.body.substr(std::stoul(*length)), std::string("\x0b\0\0\0", 4) + "10.000000:2" +
                                                    std::string("\x0a\0\0\0", 4) + "5.000000:1");
  EXPECT_NE(r.body.find(R"("binary_data_size":29)"), std::string::npos) << r.body;
}

TEST_F(ClassOutputs, AnswersByGrpc) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const auto call = [](uint32_t field, int64_t value) {
    io::ProtoWriter request = v2_infer_request("scale", {});
    io::ProtoWriter input;
    input.add_bytes(1, "x");
    input.add_bytes(2, "FP32");
    input.add_packed(3, std::vector<int64_t>{1, 4});
    request.add_message(5, input);
    add_v2_output(request, "y", {v2_parameter("classification", field, value)});
    request.add_bytes(7, bytes_of_floats({1, 5, 10, 4}));
    return grpc_call((*server_)->port(), "/inference.GRPCInferenceService/ModelInfer", request);
  };
  const GrpcAnswer r = call(2, 1);
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(field_of(field_of(r.message, 5), 2), "BYTES");
  EXPECT_EQ(field_of(r.message, 6), std::string("\x0b\0\0\0", 4) + "10.000000:2");
  EXPECT_EQ(field_of(call(2, 0).message, 6), bytes_of_floats({1, 5, 10, 4}));
  EXPECT_EQ(call(2, -1).code, 3);
  EXPECT_EQ(call(5, -1).code, 3);  // 2^64 - 1
}

TEST_F(ClassOutputs, BadCountsGetTheirAnswer) {
  for (const char* k : {"-1", "1.5", "\"2\"", "true", "null", "1e30", "[]"}) {
    const HttpResponse r = ask({1, 2, 3, 4}, 1, std::string("\"classification\":") + k);
    EXPECT_EQ(r.status, 400) << k << ": " << r.body;
  }
  // More texts than one answer has.
  std::vector<float> many(size_t{4} * 300000, 1.0F);
  EXPECT_EQ(ask(many, 300000, "\"classification\":2").status, 200);
  const HttpResponse r = ask(many, 300000, "\"classification\":4");
  EXPECT_EQ(r.status, 400);
  EXPECT_NE(r.body.find("are more than 1048576 texts"), std::string::npos) << r.body;
}

}  // namespace
}  // namespace tandem::serve
