// SPDX-License-Identifier: Apache-2.0
// For the tests of the room serve: small models, and a server on a thread of the test.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tandem/serve/http/client.h"
#include "tandem/serve/server.h"
#include "tests/onnx/helper.h"

namespace tandem::serve {

/// A port of an ONNX graph with sizes; -1: open.
inline std::string sized_port(const std::string& name, int type, const std::vector<int64_t>& dims) {
  io::ProtoWriter p, shape, tensor, holder;
  p.add_bytes(1, name);
  tensor.add_int(1, type);
  for (const int64_t size : dims) {
    io::ProtoWriter one;
    size < 0 ? one.add_bytes(2, "n") : one.add_int(1, size);
    shape.add_message(1, one);
  }
  tensor.add_message(2, shape);
  holder.add_message(1, tensor);
  p.add_message(2, holder);
  return p.str();
}

/// y = x * factor, [n, width].
inline std::string scale_model(float factor, int64_t width = 4) {
  return onnx::model({{onnx::node("Mul", {"x", "f"}, {"y"})},
                      {onnx::floats("f", {1}, {factor})},
                      {sized_port("x", 1, {-1, width})},
                      {sized_port("y", 1, {-1, width})}});
}
/// Two matmuls and a relu, [n, in] to [n, out].
inline std::string mlp_model(int64_t in, int64_t hidden, int64_t out) {
  const auto weights = [](int64_t rows, int64_t columns) {
    std::vector<float> v(static_cast<size_t>(rows * columns));
    uint32_t state = 12345;
    for (float& f : v) {
      state = state * 1664525U + 1013904223U;
      f = (static_cast<float>(state >> 8) / 16777216.0F - 0.5F) * 0.2F;
    }
    return v;
  };
  return onnx::model({{onnx::node("MatMul", {"x", "a"}, {"h"}), onnx::node("Relu", {"h"}, {"r"}),
                       onnx::node("MatMul", {"r", "b"}, {"y"})},
                      {onnx::floats("a", {in, hidden}, weights(in, hidden)),
                       onnx::floats("b", {hidden, out}, weights(hidden, out))},
                      {sized_port("x", 1, {-1, in})},
                      {sized_port("y", 1, {-1, out})}});
}
/// y = table[x], [n] of indices below 4: another index is an error of that request alone.
inline std::string lookup_model() {
  return onnx::model({{onnx::node("Gather", {"table", "x"}, {"y"})},
                      {onnx::floats("table", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7})},
                      {sized_port("x", 7, {-1})},
                      {sized_port("y", 1, {-1, 2})}});
}
/// y = the rows of x above -1000.
inline std::string dropping_model() {
  return onnx::model(
      {{onnx::node("Greater", {"x", "limit"}, {"kept"}),
        onnx::node("Compress", {"x", "kept"}, {"y"}, {onnx::int_attribute("axis", 0)})},
       {onnx::floats("limit", {1}, {-1000})},
       {sized_port("x", 1, {-1})},
       {sized_port("y", 1, {-1})}});
}
/// y = x minus the mean over the rows: rows see each other.
inline std::string mixing_model() {
  return onnx::model({{onnx::node("ReduceMean", {"x"}, {"m"}, {onnx::ints_attribute("axes", {0})}),
                       onnx::node("Sub", {"x", "m"}, {"y"})},
                      {},
                      {sized_port("x", 1, {-1, 3})},
                      {sized_port("y", 1, {-1, 3})}},
                     13);
}
/// Two inputs, two outputs, of f32 [n, 2] and i64 [n].
inline std::string pair_model() {
  return onnx::model({{onnx::node("Neg", {"a"}, {"na"}), onnx::node("Neg", {"b"}, {"nb"})},
                      {},
                      {sized_port("a", 1, {-1, 2}), sized_port("b", 7, {-1})},
                      {sized_port("na", 1, {-1, 2}), sized_port("nb", 7, {-1})}});
}

/// scores = x * [0.25, 0.5, 1], value = the sum of x, flags = -k: x [n, 3] and k [n].
inline std::string scored_model() {
  return onnx::model(
      {{onnx::node("Mul", {"x", "f"}, {"scores"}),
        onnx::node("ReduceSum", {"x", "axes"}, {"outputs"}, {onnx::int_attribute("keepdims", 1)}),
        onnx::node("Neg", {"k"}, {"flags"})},
       {onnx::floats("f", {3}, {0.25F, 0.5F, 1}),
        onnx::raw_tensor("axes", {1}, 7, std::string("\1\0\0\0\0\0\0\0", 8))},
       {sized_port("x", 1, {-1, 3}), sized_port("k", 7, {-1})},
       {sized_port("flags", 7, {-1}), sized_port("scores", 1, {-1, 3}),
        sized_port("outputs", 1, {-1, 1})}},
      13);
}

inline void put_model(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file(path, bytes);
}

/// A server that runs until the test ends.
class Running {
 public:
  explicit Running(ServerOptions options) : server_(std::move(options)) {
    server_.repository().wait_for_warm_up();
    thread_ = std::thread([this] { server_.run(); });
  }
  ~Running() {
    server_.drain(0, 5);
    if (thread_.joinable()) thread_.join();
  }
  Server& operator*() { return server_; }
  Server* operator->() { return &server_; }
  std::unique_ptr<HttpClient> client(double seconds = 20) {
    return std::make_unique<HttpClient>("127.0.0.1", server_.port(), seconds);
  }
  HttpResponse post(const std::string& path, std::string_view body, const HttpHeaders& h = {}) {
    return client()->post(path, body, h);
  }
  HttpResponse get(const std::string& path) { return client()->get(path); }
  void join() { thread_.join(); }

 private:
  Server server_;
  std::thread thread_;
};

inline const std::string* header_of(const HttpResponse& r, const std::string& name) {
  for (const auto& [key, value] : r.headers)
    if (key == name) return &value;
  return nullptr;
}

/// Clients that ask model `m` about ones all the time. Each answer has to be that of the version it
/// names: versions multiply by their number.
class Askers {
 public:
  Askers(Running& server, int clients) {
    for (int k = 0; k < clients; ++k)
      threads_.emplace_back([this, &server] {
        for (const auto c = server.client(); !stop_; ++answers_)
          if (!is_right(c->post("/v2/models/m/infer", kBody))) ++wrong_;
      });
  }
  ~Askers() { stop(); }
  void stop() {
    stop_ = true;
    for (std::thread& t : threads_)
      if (t.joinable()) t.join();
  }
  int answers() const { return answers_; }
  int wrong() const { return wrong_; }
  static constexpr const char* kBody =
      "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,1,1,1]}]}";

 private:
  static bool is_right(const HttpResponse& r) {
    const size_t at = r.body.find("\"model_version\":\"");
    if (r.status != 200 || at == std::string::npos) return false;
    const std::string one = r.body.substr(at + 17, r.body.find('"', at + 17) - at - 17) + ".0";
    return r.body.find("[" + one + "," + one + "," + one + "," + one + "]") != std::string::npos;
  }
  std::atomic<bool> stop_{false};
  std::atomic<int> answers_{0}, wrong_{0};
  std::vector<std::thread> threads_;
};

}  // namespace tandem::serve
