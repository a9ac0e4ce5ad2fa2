// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/http2/stream.h"

namespace tandem::serve {
namespace {

constexpr double kLeastTimeout = 1e-9;  ///< of a stream whose time is over: 0 would be none
// Messages of one stream that are worked on at a time, and bytes of answers that may wait for the
// client: beyond them nothing more is read, and the client must wait.
constexpr size_t kMostBusy = 64, kMostWaiting = size_t{1} << 20;

}  // namespace

MessageStream::MessageStream(const GrpcCall& call, Handler handler)
    : exchange_(call.exchange),
      server_(call.server),
      timeout_(call.timeout),
      coding_(call.coding),
      answers_(call.answers),
      handler_(handler) {}

void MessageStream::start() {
  const HttpExchangePtr exchange = exchange_.lock();
  auto& stream = dynamic_cast<HttpStream&>(*exchange);
  stream.on_body = [self = shared_from_this()](std::string_view bytes, bool ended) {
    self->body(bytes, ended);
  };
  stream.on_tick = [self = shared_from_this()](bool ending) { self->tick(ending); };
}

GrpcCall MessageStream::call() const {
  const double left = timeout_ > 0 ? std::max(timeout_ - seconds_since(began_), kLeastTimeout) : 0;
  return {exchange_.lock(), server_, left, coding_, answers_};
}

size_t MessageStream::busy() const {
  const std::lock_guard hold(lock_);
  return numbers_ - next_;
}

void MessageStream::body(std::string_view bytes, bool ended) {
  in_.append(bytes);
  ended_ = ended_ || ended;
  read_on();
}

void MessageStream::tick(bool ending) {
  ending_ = ending_ || ending;
  if (on_tick && !over_) on_tick();
  read_on();
}

// Handle what has come, as far as there is room; end the call when all is answered.
void MessageStream::read_on() {
  const HttpExchangePtr exchange = exchange_.lock();
  if (over_ || !exchange) return;
  auto& stream = dynamic_cast<HttpStream&>(*exchange);
  std::string_view rest = in_;
  std::string room;
  try {
    while (!over_ && busy() < kMostBusy && stream.unsent() < kMostWaiting) {
      const auto message = next_message(rest, room);
      if (!message) break;
      handle(*message);
    }
  } catch (...) {
    const Refusal refusal = refusal_of(std::current_exception());
    return fail(refusal.status, refusal.text);
  }
  const bool waits = inflating_ || busy() >= kMostBusy || stream.unsent() >= kMostWaiting;
  // A message that is not complete may be larger than the window: what came of it counts as taken.
  const size_t taken = waits ? in_.size() - rest.size() : SIZE_MAX;
  in_.erase(0, in_.size() - rest.size());
  stream.take(taken, in_.capacity());
  if (over_ || inflating_ || busy() > 0) return;
  if (ending_) return fail(503, "the server is shutting down");
  if (!ended_ || watches) return;
  if (!in_.empty()) return fail(400, "the last message is not complete");
  over_ = true;
  HttpResponse last = begun_ ? HttpResponse{} : call().head("");
  last.trailers = grpc_trailers(GrpcCode::ok);
  exchange->answer(std::move(last));
}

// The next message, inflated; nothing where it is not complete or being inflated.
std::optional<std::string_view> MessageStream::next_message(std::string_view& rest,
                                                            std::string& room) {
  const size_t most = server_.options.http.limits.body_bytes;
  constexpr size_t kSmall = 1024;  // a megabyte at most: inflated here
  if (!inflating_) {
    const bool beside = rest.size() > kSmall && rest[0] == 1 && grpc_length(rest) > kSmall &&
                        coding_ != GrpcCoding::identity && grpc_length(rest) <= most;
    if (!beside) return take_message(rest, coding_, most, room);
    if (rest.size() - kGrpcPrefix < grpc_length(rest)) return std::nullopt;
    inflate_beside(rest.substr(0, kGrpcPrefix + grpc_length(rest)));
  }
  std::optional<Inflated> done;
  {
    const std::lock_guard hold(lock_);
    done.swap(inflated_);
  }
  if (!done) return std::nullopt;
  inflating_ = false;
  rest.remove_prefix(kGrpcPrefix + grpc_length(rest));
  if (done->failed) std::rethrow_exception(done->failed);
  room = std::move(done->bytes);
  return room;
}

void MessageStream::inflate_beside(std::string_view rest) {
  inflating_ = true;
  exchange_.lock()->beside([self = shared_from_this(), frame = std::string(rest)] {
    Inflated done;
    try {
      std::string_view bytes = frame;
      take_message(bytes, self->coding_, self->server_.options.http.limits.body_bytes, done.bytes);
    } catch (...) {
      done.failed = std::current_exception();
    }
    {
      const std::lock_guard hold(self->lock_);
      self->inflated_ = std::move(done);
    }
    if (const HttpExchangePtr exchange = self->exchange_.lock())
      dynamic_cast<HttpStream&>(*exchange).nudge();
  });
}

void MessageStream::handle(std::string_view message) {
  HeldBytes held;
  if (!held.add(exchange_.lock()->account, message.size())) refuse_held();
  const uint64_t number = take_number();
  {
    const std::lock_guard hold(lock_);
    held_.emplace(number, std::move(held));
  }
  handler_(shared_from_this(), number, message);
}

void MessageStream::fail(int status, std::string_view text) {
  over_ = true;
  if (exchange_.lock()) call().fail(status, text);
}

uint64_t MessageStream::take_number() {
  const std::lock_guard hold(lock_);
  return numbers_++;
}

void MessageStream::answer(uint64_t number, io::ProtoWriter message) {
  const HttpExchangePtr exchange = exchange_.lock();
  if (!exchange) return;
  const std::lock_guard hold(lock_);
  held_.erase(number);
  done_.emplace(number, framed(message.take(), answers_));
  while (!done_.empty() && done_.begin()->first == next_) {
    std::string body = std::move(done_.begin()->second);
    done_.erase(done_.begin());
    ++next_;
    auto& stream = dynamic_cast<HttpStream&>(*exchange);
    stream.write(begun_ ? HttpResponse{.body = std::move(body)} : call().head(std::move(body)));
    begun_ = true;
  }
}

}  // namespace tandem::serve
