// SPDX-License-Identifier: Apache-2.0
// Streams of gRPC over a running server: answers keep the order of their messages, compressed or
// not, and damaged ones end with their status.
#include <gtest/gtest.h>

#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

const std::string kStream = "/inference.GRPCInferenceService/ModelStreamInfer";

class GrpcStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
    put_model(folder_ / "scale.onnx", scale_model(3));
    server_ = std::make_unique<Running>(ServerOptions{
        .models = folder_.path().string(), .http = {.limits = {.body_bytes = size_t{4} << 20}}});
  }
  void expect_healthy() {
    const io::ProtoWriter asked = v2_infer_request("scale", {raw_input()});
    const GrpcAnswer good =
        grpc_call((*server_)->port(), "/inference.GRPCInferenceService/ModelInfer", asked);
    EXPECT_EQ(good.code, 0) << good.text;
    EXPECT_EQ(field_of(good.message, 6), bytes_of_floats({3, 6, 9, 12}));
  }
  TempFolder folder_;
  std::unique_ptr<Running> server_;
};

TEST_F(GrpcStreams, AnswerInOrderAndOutliveErrors) {
  Http2Client client("127.0.0.1", (*server_)->port(), 20);
  const HttpHeaders grpc{{"content-type", "application/grpc"}, {"te", "trailers"}};
  const int32_t id = client.start("POST", kStream, "", grpc, true);
  constexpr int kMessages = 500;
  std::string all;
  for (int i = 0; i < kMessages; ++i)
    all += as_body(v2_infer_request(i % 7 == 3 ? "none" : "scale", {raw_input({float(i), 0, 0, 0})},
                                    {}, std::to_string(i)));
  for (size_t at = 0; at < all.size(); at += 1000) client.more(id, all.substr(at, 1000), false);
  client.more(id, "", true);
  const HttpResponse r = client.wait(id);
  const std::vector<std::string> answers = streamed_messages(r);
  ASSERT_EQ(answers.size(), size_t{kMessages}) << trailer_of(r, "grpc-message");
  for (int n = 0; n < kMessages; ++n) {
    const std::string& m = answers[static_cast<size_t>(n)];
    const std::string response = field_of(m, 2);
    EXPECT_EQ(field_of(response, 3), std::to_string(n));
    if (n % 7 == 3)
      EXPECT_TRUE(has(field_of(m, 1), "no model")) << n;
    else
      EXPECT_EQ(field_of(response, 6), bytes_of_floats({3.0F * float(n), 0, 0, 0}));
  }
}

// Larger compressed messages are inflated by another thread; answers keep their order.
TEST_F(GrpcStreams, CompressedMessagesKeepTheirOrder) {
  Http2Client client("127.0.0.1", (*server_)->port(), 20);
  const HttpHeaders grpc{
      {"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-encoding", "gzip"}};
  constexpr int kMessages = 60;
  std::string all, noise(6000, ' ');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>('a' + i * i * 31 % 23);
  for (int i = 0; i < kMessages; ++i) {
    const std::string model = i % 3 == 1 ? "none " + noise + std::to_string(i) : "scale";
    const io::ProtoWriter m =
        v2_infer_request(model, {raw_input({float(i), 0, 0, 0})}, {}, std::to_string(i));
    const std::string plain = std::string(5, '\0') + m.str();
    all += framed(plain, i % 2 ? GrpcCoding::gzip : GrpcCoding::identity);
  }
  const int32_t id = client.start("POST", kStream, "", grpc, true);
  for (size_t at = 0; at < all.size(); at += 1000) client.more(id, all.substr(at, 1000), false);
  client.more(id, "", true);
  const HttpResponse r = client.wait(id);
  const std::vector<std::string> answers = streamed_messages(r);
  ASSERT_EQ(answers.size(), size_t{kMessages}) << trailer_of(r, "grpc-message");
  for (int n = 0; n < kMessages; ++n)
    EXPECT_EQ(field_of(field_of(answers[static_cast<size_t>(n)], 2), 3), std::to_string(n));
  // What is not gzip ends the stream.
  const std::string bad = framed(std::string(5, '\0') + noise).replace(0, 1, 1, '\1');
  const HttpResponse broken = client.wait(client.start("POST", kStream, bad, grpc));
  EXPECT_EQ(trailer_of(broken, "grpc-status"), "3") << trailer_of(broken, "grpc-message");
  expect_healthy();
}

TEST_F(GrpcStreams, DamagedOnesEndWithTheirStatus) {
  Http2Client client("127.0.0.1", (*server_)->port(), 20);
  const HttpHeaders grpc{{"content-type", "application/grpc"}, {"te", "trailers"}};
  for (const std::string& body : {std::string("\7\0\0\0\0", 5), std::string("\0\0\0\0\7abc", 8)}) {
    const HttpResponse r = client.wait(client.start("POST", kStream, body, grpc));
    EXPECT_EQ(trailer_of(r, "grpc-status"), "3") << trailer_of(r, "grpc-message");
  }
  const std::string ok = as_body(v2_infer_request("scale", {raw_input()}));
  const HttpResponse r =
      client.wait(client.start("POST", kStream, ok + std::string("\7\0\0\0\0", 5), grpc));
  EXPECT_EQ(trailer_of(r, "grpc-status"), "3");
  expect_healthy();
}

}  // namespace
}  // namespace tandem::serve
