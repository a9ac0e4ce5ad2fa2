// SPDX-License-Identifier: Apache-2.0
// Whole calls as readers: a message for a method of gRPC, or a path with a body, answered by small
// models of a repository; and what their owners write: grammars and settings.
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "tandem/io/protobuf.h"
#include "tandem/recipe/fields.h"
#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/http2/stream.h"
#include "tandem/serve/model/ensemble.h"
#include "tandem/serve/model/setting_pair_internal.h"
#include "tandem/serve/shared_memory_internal.h"
#include "tandem/text/grammar.h"
#include "tests/readers/readers.h"
#include "tests/serve/serve_helper.h"

namespace tandem::readers {
namespace {

/// Models of a folder, as a server has them.
struct SmallServer {
  SmallServer() {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-calls-XXXXXX").string();
    if (!mkdtemp(name.data())) std::abort();
    folder = name;
    serve::put_model((folder / "m.onnx").string(), serve::scored_model());
    serve::put_model((folder / "scale.onnx").string(), serve::scale_model(2));
    repository = std::make_unique<serve::Repository>(
        serve::RepositoryOptions{.folder = name, .defaults = {.max_batch = 1}});
    repository->load_all();
    repository->wait_for_warm_up();
    context = std::make_unique<serve::ServerContext>(
        serve::ServerContext{options, *repository, [] { return false; },
                             [] { return serve::HttpCounts{}; }, [] { return uint64_t{0}; },
                             nullptr, nullptr, shared_memory, [](const std::function<void()>&) {}});
  }
  ~SmallServer() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  SmallServer(const SmallServer&) = delete;
  SmallServer& operator=(const SmallServer&) = delete;
  static SmallServer& get() {
    static SmallServer server;
    return server;
  }
  std::filesystem::path folder;
  serve::ServerOptions options;
  serve::SharedMemory shared_memory{true};
  std::unique_ptr<serve::Repository> repository;
  std::unique_ptr<serve::ServerContext> context;
};

/// Waits for its answer.
class WaitingExchange : public serve::HttpStream {
 public:
  void answer(serve::HttpResponse r) override {
    const std::lock_guard hold(lock_);
    TD_CHECK(!answer_, Internal, "a call was answered twice");
    answer_ = std::move(r);
    ready_.notify_one();
  }
  void write(serve::HttpResponse) override {}
  bool on_loop() const override { return true; }
  void take(size_t, size_t) override {}
  size_t unsent() const override { return 0; }
  void nudge() override {}
  serve::HttpResponse wait() {
    std::unique_lock hold(lock_);
    const bool came =
        ready_.wait_for(hold, std::chrono::seconds(20), [this] { return answer_.has_value(); });
    TD_CHECK(came, Internal, "a call was not answered");
    return *answer_;
  }

 private:
  std::mutex lock_;
  std::condition_variable ready_;
  std::optional<serve::HttpResponse> answer_;
};

std::vector<const serve::GrpcMethod*> fuzzed_methods() {
  std::vector<const serve::GrpcMethod*> out;
  for (const auto methods : {serve::tensorflow_methods(), serve::v2_methods()})
    for (const serve::GrpcMethod& m : methods)
      if (m.call) out.push_back(&m);
  return out;
}
std::string method_byte(std::string_view name) {
  const auto all = fuzzed_methods();
  for (size_t i = 0; i < all.size(); ++i)
    if (std::string_view(all[i]->path).ends_with(name)) return std::string(1, static_cast<char>(i));
  std::abort();
}

// A message inside another, as field 1.
io::ProtoWriter inside(const io::ProtoWriter& m, uint32_t field = 1) {
  io::ProtoWriter out;
  out.add_message(field, m);
  return out;
}
io::ProtoWriter feature_entry(const char* name, uint32_t kind, const io::ProtoWriter& list) {
  io::ProtoWriter out;
  out.add_bytes(1, name);
  out.add_message(2, inside(list, kind));
  return out;
}
// An Input of one example for the model "m".
io::ProtoWriter example_input() {
  constexpr uint32_t kFloats = 2, kInts = 3;
  io::ProtoWriter x, k, features;
  x.add_packed(1, std::vector<float>{1, 2.5F, -3});
  k.add_packed(1, std::vector<int64_t>{7});
  features.add_message(1, feature_entry("x", kFloats, x));
  features.add_message(1, feature_entry("k", kInts, k));
  return inside(inside(inside(features)));
}
io::ProtoWriter spec_named(const char* model) {
  io::ProtoWriter out;
  out.add_bytes(1, model);
  return out;
}

void refuse_errors(const serve::HttpResponse& r) {
  std::string code;
  for (const auto* of : {&r.headers, &r.trailers})
    for (const auto& [key, value] : *of)
      if (key == "grpc-status") code = value;
  TD_CHECK(r.status < 400 && (code.empty() || code == "0"), Format, "refused with {} {}", r.status,
           code);
}
template <class F>
void as_reader(F f) {
  try {
    f();
  } catch (const serve::Refusal& r) {
    TD_FAIL(Format, "refused with {}: {}", r.status, r.text);
  }
}

}  // namespace

std::vector<std::string> grpc_call_seeds() {
  io::ProtoWriter examples, tasks, predict, tensor, shape, row, size, entry;
  examples.add_message(1, spec_named("m"));
  examples.add_message(2, example_input());
  for (const char* method : {"tensorflow/serving/classify", "tensorflow/serving/regress"}) {
    io::ProtoWriter task;
    task.add_message(1, spec_named("m"));
    task.add_bytes(2, method);
    tasks.add_message(1, task);
  }
  tasks.add_message(2, example_input());
  row.add_int(1, 1);
  size.add_int(1, 4);
  for (const io::ProtoWriter* n : {&row, &size}) shape.add_message(2, *n);
  tensor.add_int(1, 1);
  tensor.add_message(2, shape);
  tensor.add_packed(5, std::vector<float>{1, 2, 3, 4});
  entry.add_bytes(1, "x");
  entry.add_message(2, tensor);
  predict.add_message(1, spec_named("scale"));
  predict.add_message(2, entry);
  return {method_byte("/Classify") + examples.str(),
          method_byte("/Regress") + examples.str(),
          method_byte("/MultiInference") + tasks.str(),
          method_byte("/Predict") + predict.str(),
          method_byte("/GetModelMetadata") + inside(spec_named("m")).str(),
          method_byte("/ModelMetadata") + spec_named("m").str()};
}
// The message changes, and seldom the method.
void mutate_grpc_call(std::string& s, Random& random) {
  if (s.empty()) return;
  const char method = random() % 16 == 0 ? static_cast<char>(random() % 32) : s[0];
  s.erase(0, 1);
  mutate_protobuf(s, random);
  s.insert(s.begin(), method);
}
void read_grpc_call(std::string_view bytes) {
  static const auto methods = fuzzed_methods();
  if (bytes.empty()) TD_FAIL(Format, "no method");
  const serve::GrpcMethod& m = *methods[static_cast<uint8_t>(bytes[0]) % methods.size()];
  const auto exchange = std::make_shared<WaitingExchange>();
  as_reader([&] {
    m.call(serve::GrpcCall{exchange, *SmallServer::get().context}, bytes.substr(1));
    refuse_errors(exchange->wait());
  });
}

std::vector<std::string> rest_call_seeds() {
  const std::string examples = "{\"examples\":[{\"x\":[1,2.5,-3],\"k\":7}],\"context\":{\"k\":1}}";
  return {
      "/v1/models/m:classify\n" + examples,
      "/v1/models/m:regress\n" + examples,
      "/v1/models/scale:predict\n{\"instances\":[[1,2,3,4]]}",
      "/v1/models/m:predict\n{\"inputs\":{\"x\":[[1,2,3]],\"k\":[4]}}",
      std::string("/v2/models/scale/infer\n") + serve::Askers::kBody,
      "/v2/models/scale/infer\n{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,4],"
      "\"data\":[4,3,2,1]}],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":2}}]}"};
}
void read_rest_call(std::string_view bytes) {
  const auto exchange = std::make_shared<WaitingExchange>();
  const size_t line = std::min(bytes.find('\n'), bytes.size());
  exchange->request.method = "POST";
  exchange->request.path = bytes.substr(0, line);
  exchange->request.body = bytes.substr(std::min(line + 1, bytes.size()));
  as_reader([&] {
    const auto path = serve::path_segments(exchange->request.path);
    if (!path || path->empty()) serve::refuse(404, "no path");
    serve::Call call{exchange, *SmallServer::get().context, *path, {}};
    if (!serve::handle_v2(call) && !serve::handle_tensorflow(call)) serve::refuse(404, "no path");
    refuse_errors(exchange->wait());
  });
}

std::vector<std::string> ebnf_seeds() {
  return {"root ::= (\"a\" | [b-d]{1,3} x?)* # words\nx ::= [^a\\n] . \"\\u00fc\" root?",
          "root ::= \"{\" pair (\", \" pair)* \"}\"\npair ::= [a-z]+ \"=\" (root | \"1\")"};
}
void read_ebnf(std::string_view bytes) { text::Grammar::ebnf(bytes); }

std::vector<std::string> serve_settings_seeds() {
  return {"max_batch: 8\nlabels: [stable=3]\nstate: [h_in=h_out]\ncontrols: [start=START]\n",
          "ensemble:\n  - {model: scale, input_map: [x=in], output_map: [y=mid]}\n"
          "  - {model: scale, input_map: [x=mid], output_map: [y=out]}\nensemble_outputs: [out]\n",
          "canary: {version: 4, share: 0.1, rollback: {error_rate: 0.01}}\nshadow: 0\n"};
}
void read_serve_settings(std::string_view bytes) {
  const io::Yaml root = io::parse_yaml(std::string(bytes), "serve.yaml");
  recipe::Options o(&root, "", "serve.yaml");
  serve::ModelSettings s;
  recipe::read_fields(o, s);
  o.finish();
  for (const auto* list : {&s.state, &s.controls, &s.labels})
    for (const std::string& entry : *list) serve::setting_pair(entry, "an entry", "[a=b]");
  if (s.ensemble.empty()) return;
  serve::Ensemble graph("graph", s.ensemble, s.ensemble_outputs,
                        [](const std::string& model, int64_t version) {
                          return SmallServer::get().repository->find(
                              model, version > 0 ? std::to_string(version) : "");
                        });
  TD_CHECK(!graph.inputs().empty() && !graph.steps().empty(), Internal, "an empty graph");
}

}  // namespace tandem::readers
