// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/io/json.h"
#include "tandem/serve/http/client.h"
#include "tandem/serve/load/wire_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kDigits = 8;

/// Answers are read as they come, and their bodies are not kept.
class Http1Wire : public LoadWire {
 public:
  explicit Http1Wire(LoadScript& script) : script_(script) {}

  void ask(size_t slot) override {
    slot_ = slot;
    busy_ = true;
    if (script_.numbered()) {
      own_ = script_.text;
      script_.put_number(own_);
    }
    unsent_ = script_.numbered() ? own_ : script_.text;
  }
  std::string_view unsent() override { return unsent_; }
  void sent(size_t n) override { unsent_.remove_prefix(n); }

  bool take(std::string_view bytes, LoadSink& sink) override {
    in_.append(bytes);
    size_t at = 0;
    while (!over_ && step(std::string_view(in_).substr(at), at, sink)) {}
    in_.erase(0, at);
    return !over_;
  }

 private:
  enum class Part : uint8_t { head, body, chunk_size, chunk, chunk_end, trailers };

  /// Read the next part of an answer, whose bytes are added to `at`; false: some are missing.
  bool step(std::string_view rest, size_t& at, LoadSink& sink) {
    switch (part_) {
      case Part::head:
        return head(rest, at, sink);
      case Part::body:
      case Part::chunk:
        return bytes(rest, at, sink);
      default:
        return line(rest, at, sink);
    }
  }

  bool head(std::string_view rest, size_t& at, LoadSink& sink) {
    if (rest.empty()) return false;
    if (!busy_) return !(over_ = true);  // nobody asked
    HttpResponse r;
    const size_t used = parse_response(rest, false, r);
    at += used;
    if (used == 0) return false;
    if (r.status / 100 == 1) return true;
    answer_ = {.status = r.status, .good = r.status / 100 == 2};
    close_ = r.close;
    left_ = 0;
    bool chunked = false;
    for (const auto& [name, value] : r.headers) {
      if (name == "content-length") left_ = parse_digits(value, uint64_t{1} << 40).value_or(0);
      if (name == "transfer-encoding") chunked = list_holds(value, "chunked");
    }
    events_.reset();
    if (answer_.good && r.content_type.starts_with("text/event-stream")) events_.emplace();
    part_ = chunked ? Part::chunk_size : Part::body;
    if (!chunked && (left_ == 0 || r.status == 204)) end(sink);
    return true;
  }

  bool bytes(std::string_view rest, size_t& at, LoadSink& sink) {
    const size_t n = std::min<size_t>(rest.size(), left_);
    if (n == 0) return false;
    if (events_) events_->take(rest.substr(0, n), slot_, sink);
    if (!answer_.good && answer_.text.size() < kLoadText)
      answer_.text += rest.substr(0, std::min(n, kLoadText));
    at += n;
    left_ -= n;
    if (left_ > 0) return false;
    if (part_ == Part::chunk)
      part_ = Part::chunk_end;
    else
      end(sink);
    return true;
  }

  bool line(std::string_view rest, size_t& at, LoadSink& sink) {
    const size_t end_of_line = rest.find("\r\n");
    if (end_of_line == std::string_view::npos) return false;
    const std::string_view text = rest.substr(0, end_of_line);
    at += end_of_line + 2;
    if (part_ == Part::chunk_end) {
      part_ = Part::chunk_size;
    } else if (part_ == Part::trailers) {
      if (text.empty()) end(sink);
    } else {
      const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), left_, 16);
      TD_CHECK(code == std::errc() && stop != text.data() && left_ < (size_t{1} << 40), Format,
               "a chunk of the answer has no size");
      part_ = left_ > 0 ? Part::chunk : Part::trailers;
    }
    return true;
  }

  void end(LoadSink& sink) {
    part_ = Part::head;
    busy_ = false;
    if (events_) {
      answer_.good = events_->complete();
      answer_.tokens = events_->tokens();
    }
    // An answer before the request was sent: the server will not read the rest.
    over_ = close_ || !unsent_.empty();
    unsent_ = {};
    sink.answered(slot_, answer_);
  }

  LoadScript& script_;
  std::string own_, in_;
  std::string_view unsent_;
  size_t slot_ = 0;
  uint64_t left_ = 0;
  Part part_ = Part::head;
  bool busy_ = false, close_ = false, over_ = false;
  LoadAnswer answer_;
  std::optional<LoadEvents> events_;
};

}  // namespace

LoadScript::LoadScript(LoadRequest r, std::string authority) : request(std::move(r)) {
  text = request_text(request.method, request.path, authority, request.body, request.headers);
  head = {{":method", request.method},
          {":scheme", "http"},
          {":authority", std::move(authority)},
          {":path", request.path}};
  for (const auto& [name, value] : request.headers) {
    std::string lower = name;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    head.emplace_back(std::move(lower), value);
  }
}

void LoadScript::put_number(std::string& bytes) {
  size_t at = bytes.size() - request.body.size() + request.number_at + kDigits;
  uint64_t n = asked++;
  for (size_t i = 0; i < kDigits; ++i, n /= 10) bytes[--at] = static_cast<char>('0' + n % 10);
}

std::unique_ptr<LoadWire> http1_wire(LoadScript& script) {
  return std::make_unique<Http1Wire>(script);
}

void LoadEvents::take(std::string_view bytes, size_t slot, LoadSink& sink) {
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    line_ += bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    if (line_.starts_with("data:")) event(std::string_view(line_).substr(5), slot, sink);
    line_.clear();
  }
  line_ += bytes;
}

void LoadEvents::event(std::string_view text, size_t slot, LoadSink& sink) {
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (text == "[DONE]") {
    ended_ = true;
    return;
  }
  const io::Json json = io::parse_json(text, "an event of the answer");
  failed_ = failed_ || json.find("error");
  if (const io::Json* usage = json.find("usage"); usage && usage->find("completion_tokens"))
    tokens_ = io::whole_of(usage->find("completion_tokens"));
  const io::Json* choices = json.find("choices");
  if (!choices || !choices->as_array() || choices->as_array()->empty()) return;
  const io::Json& choice = choices->as_array()->front();
  const io::Json* delta = choice.find("delta");
  const io::Json* said = delta ? delta->find("content") : choice.find("text");
  if (!io::text_of(said).empty()) sink.piece(slot);
}

}  // namespace tandem::serve
