// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tandem/serve/http2/frames.h"
#include "tandem/serve/load/wire_internal.h"

namespace tandem::serve {
namespace {

class Http2Wire : public LoadWire, private Http2Events {
 public:
  explicit Http2Wire(LoadScript& script)
      : script_(script), frames_(Http2Frames::Role::client, {}, *this) {}

  void ask(size_t slot) override {
    const int32_t id = frames_.request(script_.head, !script_.request.body.empty());
    if (id <= 0) {
      ended_.emplace_back(slot, LoadAnswer{.lost = true});
      return;
    }
    Stream& s = streams_[id];
    s.slot = slot;
    s.body = script_.request.body;
    if (script_.numbered()) {
      s.own = script_.request.body;
      script_.put_number(s.own);
      s.body = s.own;
    }
  }
  std::string_view unsent() override {
    constexpr size_t kAtATime = size_t{1} << 20;
    if (out_at_ == out_.size()) {
      out_.clear();
      out_at_ = 0;
      frames_.produce(out_, kAtATime);
    }
    return std::string_view(out_).substr(out_at_);
  }
  void sent(size_t n) override { out_at_ += n; }

  bool take(std::string_view bytes, LoadSink& sink) override {
    sink_ = &sink;
    const bool ok = frames_.receive(bytes);
    sink_ = nullptr;
    for (const auto& [slot, answer] : std::exchange(ended_, {})) sink.answered(slot, answer);
    return ok && !frames_.over() && !(goaway_ && streams_.empty());
  }

 private:
  struct Stream {
    size_t slot = 0;
    std::string own;
    std::string_view body;
    int status = 0, code = -1;  ///< of HTTP and of gRPC
    std::string text;           ///< of an answer that is not good
    std::optional<LoadEvents> events;
  };

  void begin_head(int32_t) override {}
  bool header(int32_t id, std::string_view name, std::string_view value) override {
    const auto at = streams_.find(id);
    if (at == streams_.end()) return true;
    Stream& s = at->second;
    if (name == ":status") s.status = static_cast<int>(parse_digits(value, 999).value_or(0));
    if (name == "grpc-status") s.code = static_cast<int>(parse_digits(value, 999).value_or(2));
    if (name == "grpc-message") s.text = value;
    if (name == "content-type" && value.starts_with("text/event-stream")) s.events.emplace();
    return true;
  }
  void end_head(int32_t) override {}
  void data(int32_t id, std::string_view bytes) override {
    frames_.consume(id, bytes.size());
    const auto at = streams_.find(id);
    if (at == streams_.end()) return;
    Stream& s = at->second;
    if (s.events && sink_) s.events->take(bytes, s.slot, *sink_);
    if (s.status / 100 != 2 && s.text.size() < kLoadText) s.text += bytes.substr(0, kLoadText);
  }
  void end(int32_t) override {}
  void closed(int32_t id, Http2Code code) override {
    const auto at = streams_.find(id);
    if (at == streams_.end()) return;
    const Stream& s = at->second;
    LoadAnswer a{.status = s.status, .good = s.status / 100 == 2};
    a.lost = s.status == 0 || (code != Http2Code::none && s.code < 0);
    if (script_.request.grpc && a.good) {
      a.good = s.code == 0;
      if (!a.good) a.status = std::max(s.code, 0);
    }
    if (s.events) {
      a.good = a.good && s.events->complete();
      a.tokens = s.events->tokens();
    }
    if (!a.good) a.text = s.text;
    ended_.emplace_back(s.slot, std::move(a));
    streams_.erase(at);
  }
  bool control(bool) override { return true; }
  void goaway() override { goaway_ = true; }
  std::string_view to_send(int32_t id, size_t most, bool& ended) override {
    const auto at = streams_.find(id);
    ended = at == streams_.end() || at->second.body.size() <= most;
    return at == streams_.end() ? std::string_view() : at->second.body.substr(0, most);
  }
  HttpHeaders trailers(int32_t) override { return {}; }
  void sent(int32_t id, size_t n) override {
    if (const auto at = streams_.find(id); at != streams_.end()) at->second.body.remove_prefix(n);
  }

  LoadScript& script_;
  std::map<int32_t, Stream> streams_;
  std::vector<std::pair<size_t, LoadAnswer>> ended_;  ///< that were not reported
  LoadSink* sink_ = nullptr;
  std::string out_;
  size_t out_at_ = 0;
  bool goaway_ = false;
  Http2Frames frames_;
};

}  // namespace

std::unique_ptr<LoadWire> http2_wire(LoadScript& script) {
  return std::make_unique<Http2Wire>(script);
}

}  // namespace tandem::serve
