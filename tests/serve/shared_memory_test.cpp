// SPDX-License-Identifier: Apache-2.0
// Tensors in shared memory that clients register: what goes in and comes out, what is refused, and
// objects that are cut off or unregistered while requests use them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tandem/io/json.h"
#include "tandem/serve/shared_memory_internal.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

/// An object of shared memory for as long as it lives.
class SharedObject {
 public:
  SharedObject(const std::string& name, size_t bytes)
      : key_("/tandem_" + std::to_string(getpid()) + "_" + name) {
    fd_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(fd_, 0) << std::strerror(errno);
    resize(bytes);
  }
  ~SharedObject() {
    ::close(fd_);
    shm_unlink(key_.c_str());
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  const std::string& key() const { return key_; }
  void resize(size_t bytes) const { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0); }
  void write(const std::string& bytes, size_t at = 0) const {
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string read(size_t bytes, size_t at = 0) const {
    std::string out(bytes, '\0');
    const ssize_t n = pread(fd_, out.data(), bytes, static_cast<off_t>(at));
    out.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return out;
  }
  size_t size() const {
    struct stat s {};
    fstat(fd_, &s);
    return static_cast<size_t>(s.st_size);
  }

 private:
  std::string key_;
  int fd_ = -1;
};

class SharedTensors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    put_model(*folder_ / "scale.onnx", scale_model(3));
    server_ = new Running({.models = folder_->path().string(), .shared_memory = true});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  void SetUp() override { server_->post("/v2/systemsharedmemory/unregister", ""); }
  static HttpResponse add(const std::string& name, const std::string& key, const std::string& bytes,
                          const std::string& offset = "0") {
    return server_->post("/v2/systemsharedmemory/region/" + name + "/register",
                         R"({"key":)" + io::quote_json(key) + R"(,"offset":)" + offset +
                             R"(,"byte_size":)" + bytes + "}");
  }
  // The parameters of a tensor, with an offset where there is one.
  static std::string place(const std::string& region, const std::string& bytes,
                           const std::string& offset = "") {
    return R"("shared_memory_region":")" + region + R"(","shared_memory_byte_size":)" + bytes +
           (offset.empty() ? "" : R"(,"shared_memory_offset":)" + offset);
  }
  static HttpResponse infer(const std::string& in, const std::string& out = "") {
    return server_->post("/v2/models/scale/infer",
                         R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],)" + in +
                             R"(}],"outputs":[{"name":"y","parameters":{)" + out + "}}]}");
  }
  static std::string parameters(const std::string& inside) {
    return R"("parameters":{)" + inside + "}";
  }
  static TempFolder* folder_;
  static Running* server_;
};
TempFolder* SharedTensors::folder_ = nullptr;
Running* SharedTensors::server_ = nullptr;

TEST_F(SharedTensors, InputsAndOutputsByRest) {
  const SharedObject in("in", 4096), out("out", 64);
  in.write(bytes_of_floats({1, 2, 3, 4}), 1024 + 8);
  ASSERT_EQ(add("in", in.key(), "64", "1024").status, 200);
  ASSERT_EQ(add("out", out.key().substr(1), "64").status, 200);
  EXPECT_EQ(server_->get("/v2/systemsharedmemory/status").body,
            fmt::format(R"([{{"name":"in","key":"{}","offset":1024,"byte_size":64}},)"
                        R"({{"name":"out","key":"{}","offset":0,"byte_size":64}}])",
                        in.key(), out.key().substr(1)));
  EXPECT_NE(server_->get("/v2").body.find("system_shared_memory"), std::string::npos);
  const HttpResponse r = infer(parameters(place("in", "16", "8")), place("out", "48", "16"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_NE(r.body.find(R"("shape":[1,4],"parameters":{"shared_memory_region":"out",)"
                        R"("shared_memory_offset":16,"shared_memory_byte_size":16}})"),
            std::string::npos)
      << r.body;
  EXPECT_EQ(out.read(16, 16), bytes_of_floats({3, 6, 9, 12}));
  EXPECT_EQ(out.read(16), std::string(16, '\0'));
  // Classes go there, too.
  ASSERT_EQ(infer(parameters(place("in", "16", "8")), place("out", "64") + R"(,"classification":1)")
                .status,
            200);
  EXPECT_EQ(out.read(15), std::string("\x0b\0\0\0", 4) + "12.000000:3");
  // An input alone: the answer has the numbers.
  EXPECT_NE(infer(parameters(place("in", "16", "8"))).body.find("[3.0,6.0,9.0,12.0]"),
            std::string::npos);
  EXPECT_EQ(server_->post("/v2/systemsharedmemory/region/in/unregister", "").status, 200);
  EXPECT_EQ(server_->get("/v2/systemsharedmemory/region/in/status").status, 404);
  EXPECT_EQ(infer(parameters(place("in", "16", "8"))).status, 404);
}

TEST_F(SharedTensors, InputsAndOutputsByGrpc) {
  if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  const std::string v2 = "/inference.GRPCInferenceService/";
  const SharedObject memory("grpc", 4096);
  memory.write(bytes_of_floats({1, 2, 3, 4}), 4);
  io::ProtoWriter region;
  region.add_bytes(1, "r");
  region.add_bytes(2, memory.key());
  region.add_varint(4, 4096);
  const auto call = [&](const std::string& method, const io::ProtoWriter& message) {
    return grpc_call((*server_)->port(), v2 + method, message);
  };
  ASSERT_EQ(call("SystemSharedMemoryRegister", region).code, 0);
  EXPECT_EQ(call("SystemSharedMemoryRegister", region).code, 9);  // registered already
  const GrpcAnswer status = call("SystemSharedMemoryStatus", {});
  EXPECT_EQ(field_of(field_of(field_of(status.message, 1), 2), 2), memory.key());
  io::ProtoWriter request = v2_infer_request("scale", {}), input;
  input.add_bytes(1, "x");
  input.add_bytes(2, "FP32");
  input.add_packed(3, std::vector<int64_t>{1, 4});
  for (const io::ProtoWriter& p :
       {v2_parameter("shared_memory_region", "r"), v2_parameter("shared_memory_byte_size", 2, 16),
        v2_parameter("shared_memory_offset", 2, 4)})
    input.add_message(4, p);
  request.add_message(5, input);
  add_v2_output(
      request, "y",
      {v2_parameter("shared_memory_region", "r"), v2_parameter("shared_memory_byte_size", 2, 16),
       v2_parameter("shared_memory_offset", 2, 100)});
  const GrpcAnswer r = call("ModelInfer", request);
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(memory.read(16, 100), bytes_of_floats({3, 6, 9, 12}));
  EXPECT_EQ(fields_of(r.message, 6), std::vector<std::string>{""});
  EXPECT_EQ(fields_of(field_of(r.message, 5), 4).size(), 3u);
  EXPECT_EQ(call("SystemSharedMemoryUnregister", {}).code, 0);
  EXPECT_EQ(call("ModelInfer", request).code, 5);
  EXPECT_EQ(call("CudaSharedMemoryStatus", {}).code, 0);
  EXPECT_EQ(call("CudaSharedMemoryStatus", region).code, 5);
  EXPECT_EQ(call("CudaSharedMemoryRegister", region).code, 12);
  EXPECT_EQ(call("CudaSharedMemoryUnregister", {}).code, 0);
}

TEST_F(SharedTensors, BadRegionsGetTheirAnswer) {
  const SharedObject object("regions", 4096);
  const std::string key = object.key(), link = "/dev/shm" + key + "_link";
  ASSERT_EQ(symlink("/etc/passwd", link.c_str()), 0);
  const std::string pipe = "/dev/shm" + key + "_pipe", max = "9223372036854775807";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const struct {
    const char *name, *region;
    std::string key, bytes, offset;
    const char* says;
  } cases[] = {
      {"above", "r", "/../etc/passwd", "16", "0", "not a plain name"},
      {"slash inside", "r", "a/b", "16", "0", "not a plain name"},
      {"two slashes", "r", "//a", "16", "0", "not a plain name"},
      {"dots", "r", "..", "16", "0", "not a plain name"},
      {"empty", "r", "", "16", "0", "not a plain name"},
      {"a zero byte", "r", std::string("a\0b", 3), "16", "0", "not a plain name"},
      {"long", "r", std::string(300, 'a'), "16", "0", "not a plain name"},
      {"semaphore", "r", "/sem.other", "16", "0", "a semaphore's"},
      {"not there", "r", key + "_none", "16", "0", "cannot be opened"},
      {"a link", "r", key + "_link", "16", "0", "cannot be opened"},
      {"a pipe", "r", key + "_pipe", "16", "0", "has 0"},
      {"no bytes", "r", key, "0", "0", "has no bytes"},
      {"negative", "r", key, "-1", "0", "is negative"},
      {"negative offset", "r", key, "16", "-16", "is negative"},
      {"too large", "r", key, "4097", "0", "has 4096"},
      {"beyond the end", "r", key, "16", "4081", "has 4096"},
      {"overflow", "r", key, max, max, "more than any object has"},
      {"overflow by one", "r", key, "1", max, "more than any object has"},
      {"a fraction", "r", key, "1.5", "0", "whole number"},
      {"a text", "r", key, "\"16\"", "0", "whole number"},
  };
  for (const auto& c : cases) {
    const HttpResponse r = add(c.region, c.key, c.bytes, c.offset);
    EXPECT_EQ(r.status, 400) << c.name << ": " << r.body;
    EXPECT_NE(r.body.find(c.says), std::string::npos) << c.name << ": " << r.body;
  }
  ASSERT_EQ(unlink(link.c_str()), 0);
  ASSERT_EQ(unlink(pipe.c_str()), 0);
  EXPECT_EQ(add("r", key, "16").status, 200);
  EXPECT_EQ(add("r", key, "16").status, 409);
  EXPECT_EQ(server_->post("/v2/systemsharedmemory/region/none/unregister", "").status, 200);
  EXPECT_EQ(server_->post("/v2/systemsharedmemory/register", "{}").status, 404);
  EXPECT_EQ(server_->get("/v2/systemsharedmemory/region/none/status").status, 404);
  EXPECT_EQ(server_->get("/v2/systemsharedmemory").status, 404);
  EXPECT_EQ(server_->get("/v2/cudasharedmemory/status").body, "[]");
  EXPECT_EQ(server_->post("/v2/cudasharedmemory/region/r/register", "{}").status, 501);
  EXPECT_EQ(server_->post("/v2/cudasharedmemory/unregister", "").status, 200);
  for (size_t i = 1; i < SharedMemory::kMostRegions; ++i)
    ASSERT_EQ(add("r" + std::to_string(i), key, "16").status, 200);
  EXPECT_EQ(add("one_more", key, "16").status, 429);
}

TEST_F(SharedTensors, BadPlacesGetTheirAnswer) {
  const SharedObject object("places", 4096);
  ASSERT_EQ(add("r", object.key(), "32", "64").status, 200);
  const std::string max = "9223372036854775807";
  const struct {
    const char* name;
    std::string in, out;
    int status;
    const char* says;
  } cases[] = {
      {"no such region", parameters(place("q", "16")), "", 404, "no region 'q'"},
      {"no size", parameters(R"("shared_memory_region":"r")"), "", 400, "expects both"},
      {"no region", parameters(R"("shared_memory_byte_size":16)"), "", 400, "expects both"},
      {"an offset alone", parameters(R"("shared_memory_offset":16)"), "", 400, "expects both"},
      {"negative size", parameters(place("r", "-16")), "", 400, "may be negative"},
      {"negative offset", parameters(place("r", "16", "-8")), "", 400, "may be negative"},
      {"beyond the region", parameters(place("r", "16", "17")), "", 400, "which has 32"},
      {"overflow", parameters(place("r", max, max)), "", 400, "which has 32"},
      {"not the shape's size", parameters(place("r", "12")), "", 400, "has 16 bytes, got 12"},
      {"data, too", R"("data":[1,2,3,4],)" + parameters(place("r", "16")), "", 400,
       "give one of them"},
      {"binary, too", parameters(R"("binary_data_size":16,)" + place("r", "16")), "", 400, ""},
      {"region is a number", parameters(R"("shared_memory_region":1)"), "", 400, ""},
      {"size is a text", parameters(place("r", "\"16\"")), "", 400, "whole number"},
      {"output elsewhere", R"("data":[1,2,3,4])", place("q", "16"), 404, "no region 'q'"},
      {"output beyond", R"("data":[1,2,3,4])", place("r", "16", "24"), 400, "which has 32"},
      {"output too small", R"("data":[1,2,3,4])", place("r", "8"), 400,
       "has 16 bytes, and was to fit in 8"},
  };
  for (const auto& c : cases) {
    const HttpResponse r = infer(c.in, c.out);
    EXPECT_EQ(r.status, c.status) << c.name << ": " << r.body;
    EXPECT_NE(r.body.find(c.says), std::string::npos) << c.name << ": " << r.body;
  }
  EXPECT_EQ(object.read(4096), std::string(4096, '\0'));
}

// A client may cut its object off at any time: requests say so, and the server goes its way.
TEST_F(SharedTensors, AnObjectThatIsCutOff) {
  const SharedObject object("cut", 4096);
  ASSERT_EQ(add("r", object.key(), "4096").status, 200);
  object.resize(8);
  EXPECT_NE(infer(parameters(place("r", "16"))).body.find("was cut off"), std::string::npos);
  const HttpResponse out = infer(R"("data":[1,2,3,4])", place("r", "16"));
  EXPECT_EQ(out.status, 400) << out.body;
  EXPECT_NE(out.body.find("was cut off"), std::string::npos) << out.body;
  EXPECT_EQ(object.size(), 8u) << "a write made it larger";
  object.resize(0);
  EXPECT_EQ(infer(parameters(place("r", "16"))).status, 400);
  object.resize(4096);
  EXPECT_EQ(infer(parameters(place("r", "16"))).status, 200);
}

// Regions come and go while requests use them: an answer is right, or says that there is none.
TEST_F(SharedTensors, RegionsComeAndGoUnderRequests) {
  const SharedObject in("busy_in", 4096), out("busy_out", 4096);
  in.write(bytes_of_floats({1, 2, 3, 4}));
  std::atomic<bool> stop{false};
  std::thread registers([&] {
    while (!stop) {
      for (const SharedObject* o : {&in, &out}) add(o == &in ? "in" : "out", o->key(), "4096");
      server_->post("/v2/systemsharedmemory/unregister", "");
    }
  });
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> clients;
  for (int k = 0; k < 3; ++k)
    clients.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const HttpResponse r = infer(parameters(place("in", "16")), place("out", "16"));
        const bool none = r.status == 404 && r.body.find("no region") != std::string::npos;
        ++(r.status == 200 || none ? right : wrong);
      }
    });
  for (std::thread& c : clients) c.join();
  stop = true;
  registers.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(right, 600);
}

TEST(SharedMemoryOff, NothingIsTaken) {
  const TempFolder t;
  put_model(t / "scale.onnx", scale_model(3));
  Running server({.models = t.path().string()});
  const SharedObject object("off", 64);
  const std::string at = "/v2/systemsharedmemory";
  const HttpResponse r = server.post(
      at + "/region/r/register", R"({"key":")" + object.key() + R"(","offset":0,"byte_size":16})");
  EXPECT_EQ(r.status, 403) << r.body;
  EXPECT_NE(r.body.find("--shared-memory"), std::string::npos) << r.body;
  EXPECT_EQ(server.get(at + "/status").status, 403);
  EXPECT_EQ(server.post(at + "/unregister", "").status, 403);
  const HttpResponse asked =
      server.post("/v2/models/scale/infer",
                  R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"parameters":)"
                  R"({"shared_memory_region":"r","shared_memory_byte_size":16}}]})");
  EXPECT_EQ(asked.status, 403) << asked.body;
  EXPECT_EQ(server.get("/v2").body.find("shared_memory"), std::string::npos);
}

}  // namespace
}  // namespace tandem::serve
