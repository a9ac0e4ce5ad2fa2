// SPDX-License-Identifier: Apache-2.0
// A call of gRPC on its way, and the tables of methods that the services fill.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tandem/base/clock.h"
#include "tandem/serve/grpc/message.h"
#include "tandem/serve/grpc/status.h"
#include "tandem/serve/keys.h"
#include "tandem/serve/server_internal.h"

namespace tandem::serve {

struct GrpcCall {
  HttpExchangePtr exchange;
  ServerContext& server;
  double timeout = 0;                         ///< seconds, of grpc-timeout; 0: none
  GrpcCoding coding = GrpcCoding::identity;   ///< of the client's messages
  GrpcCoding answers = GrpcCoding::identity;  ///< of ours
  /// The only message of a call without streams. `more` trailers may come with it.
  void answer(io::ProtoWriter message, HttpHeaders more = {}) const;
  void fail(int status, std::string_view text) const;
  void fail(const std::exception_ptr& thrown) const;
  /// The head of an answer, and its beginning.
  HttpResponse head(std::string body) const;
};

/// Where the answers of a streaming call go: each of its messages gets one, in the order in which
/// they came. Shared by the call's stream and by the work on its messages.
class MessageStream : public std::enable_shared_from_this<MessageStream> {
 public:
  using Handler = void (*)(const std::shared_ptr<MessageStream>& stream, uint64_t number,
                           std::string_view message);
  MessageStream(const GrpcCall& call, Handler handler);
  /// Begins to read: `exchange` is a stream of HTTP/2.
  void start();
  /// The answer of message `number`, from any thread.
  void answer(uint64_t number, io::ProtoWriter message);
  /// Ends the call, from the loop's thread.
  void fail(int status, std::string_view text);
  GrpcCall call() const;

  /// Called every now and then where it is set; messages may be answered in it.
  std::function<void()> on_tick;
  /// The call is left open when the client sends no more: answers follow unasked.
  bool watches = false;
  /// A number for an answer that nobody asked for.
  uint64_t take_number();

 private:
  void body(std::string_view bytes, bool ended);
  void read_on();
  std::optional<std::string_view> next_message(std::string_view& rest, std::string& room);
  void inflate_beside(std::string_view rest);
  void handle(std::string_view message);
  void tick(bool ending);
  size_t busy() const;
  std::weak_ptr<HttpExchange> exchange_;
  ServerContext& server_;
  double timeout_;
  Clock::time_point began_ = Clock::now();
  GrpcCoding coding_, answers_;
  Handler handler_;
  std::string in_;
  bool ended_ = false, over_ = false, ending_ = false;
  bool begun_ = false;  ///< the head was sent
  mutable std::mutex lock_;
  uint64_t numbers_ = 0, next_ = 0;
  std::map<uint64_t, std::string> done_;  ///< answers that wait for those before them
  std::map<uint64_t, HeldBytes> held_;    ///< what messages hold that are worked on
  /// A message that is inflated by another thread, and what became of it.
  struct Inflated {
    std::string bytes;
    std::exception_ptr failed;
  };
  std::optional<Inflated> inflated_;
  bool inflating_ = false;
};

struct GrpcMethod {
  std::string_view path;
  /// Of a call with one message; what it throws is its answer.
  void (*call)(const GrpcCall& call, std::string_view message) = nullptr;
  MessageStream::Handler streamed = nullptr;
  KeyScope scope = KeyScope::infer;  ///< what a key has to allow
};

// ---- the services
std::span<const GrpcMethod> v2_methods();
std::span<const GrpcMethod> tensorflow_methods();
std::span<const GrpcMethod> health_methods();
std::span<const GrpcMethod> reflection_methods();
/// "/package.Service/Method" of all of them.
const GrpcMethod* find_grpc_method(std::string_view path);

// ---- what the services share
/// Calls `f` on each field of a message. Throws Format for what is not a message.
template <class F>
void for_fields(std::string_view message, const char* what, F f) {
  io::ProtoDocument document(message, what);
  for (io::ProtoReader r = document.reader(); r.next();) f(r);
}
/// The same for a message inside another.
template <class F>
void for_fields_of(io::ProtoReader& outer, F f) {
  for (io::ProtoReader r = outer.message(); r.next();) f(r);
}
/// Numbers of a repeated field as the bytes of a tensor. Throws Refusal for one that the dtype does
/// not hold.
std::string bytes_of(const std::vector<int64_t>& values, DType dtype, const std::string& name);
std::string bytes_of(const std::vector<float>& values);
std::string bytes_of(const std::vector<double>& values);

/// A FileDescriptorProto of each file of the services; see schema.cpp.
struct SchemaFile {
  std::string name;
  std::vector<std::string> symbols;  ///< messages, enums and services, with their package
  std::string descriptor;
};
const std::vector<SchemaFile>& schema_files();
/// "inference.GRPCInferenceService" ...
const std::vector<std::string>& schema_services();

}  // namespace tandem::serve
