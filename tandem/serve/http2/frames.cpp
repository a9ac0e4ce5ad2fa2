// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/http2/frames.h"
#include "tandem/base/append_bytes.h"

#include "tandem/base/error.h"
#include "tandem/base/log.h"

#if TANDEM_HAVE_NGHTTP2

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <vector>

namespace tandem::serve {

struct Http2Frames::State {
  State(const Http2Limits& l, Http2Events& e) : limits(l), events(e) {}
  ~State() { nghttp2_session_del(session); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Http2Limits limits;
  Http2Events& events;
  nghttp2_session* session = nullptr;
  std::string* out = nullptr;  ///< while bytes are produced
  size_t most = 0;
  bool flooded = false, broken = false;
  int32_t newest = 0;                               ///< stream that the other side opened
  std::vector<std::pair<int32_t, int32_t>> passed;  ///< numbers that it left out

  static constexpr size_t kMostFrame = size_t{256} << 10;
  static State& of(void* user) { return *static_cast<State*>(user); }
  static std::string_view view(const uint8_t* at, size_t n) {
    return {reinterpret_cast<const char*>(at), n};
  }
  /// Exceptions do not pass through C.
  template <class F>
  static int guarded(F f) {
    try {
      f();
      return 0;
    } catch (const std::exception& e) {
      log_warning("a connection is closed: {}", e.what());
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }

  // A stream whose number was passed over is closed without ever having been open (RFC
  // 9113, 5.1.1); the library drops its head as one that came late.
  static int begin_frame(nghttp2_session* session, const nghttp2_frame_hd* hd, void* user) {
    constexpr size_t kMostPassed = 64;
    State& s = of(user);
    const int32_t id = hd->stream_id;
    if (hd->type != NGHTTP2_HEADERS || id % 2 == 0 ||
        !nghttp2_session_check_server_session(session))
      return 0;
    if (id > s.newest) {
      if (id > s.newest + 2 && s.passed.size() < kMostPassed) s.passed.emplace_back(s.newest, id);
      s.newest = id;
      return 0;
    }
    s.broken = std::any_of(s.passed.begin(), s.passed.end(),
                           [id](const auto& p) { return id > p.first && id < p.second; });
    return s.broken ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
  }
  static int begin_headers(nghttp2_session*, const nghttp2_frame* f, void* user) {
    return guarded([&] { of(user).events.begin_head(f->hd.stream_id); });
  }
  /// `goes_on`: what an event gave that may end the connection.
  static int unless_flooded(State& s, bool goes_on) {
    s.flooded = s.flooded || !goes_on;
    return goes_on ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  static int header(nghttp2_session*, const nghttp2_frame* f, const uint8_t* name, size_t name_size,
                    const uint8_t* value, size_t value_size, uint8_t, void* user) {
    bool goes_on = true;
    const int failed = guarded([&] {
      goes_on =
          of(user).events.header(f->hd.stream_id, view(name, name_size), view(value, value_size));
    });
    return failed ? failed : unless_flooded(of(user), goes_on);
  }
  static int frame(nghttp2_session*, const nghttp2_frame* f, void* user) {
    bool goes_on = true;
    const int failed = guarded([&] {
      Http2Events& events = of(user).events;
      const bool last = (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
      switch (f->hd.type) {
        case NGHTTP2_HEADERS:
          events.end_head(f->hd.stream_id);
          if (last) events.end(f->hd.stream_id);
          break;
        case NGHTTP2_DATA:
          if (f->hd.length == 0 && !last) goes_on = events.control(false);
          if (last) events.end(f->hd.stream_id);
          break;
        case NGHTTP2_GOAWAY:
          events.goaway();
          break;
        default:
          goes_on = events.control(f->hd.type == NGHTTP2_RST_STREAM);
      }
    });
    return failed ? failed : unless_flooded(of(user), goes_on);
  }
  static int data(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* at, size_t n,
                  void* user) {
    return guarded([&] { of(user).events.data(stream, view(at, n)); });
  }
  static int stream_close(nghttp2_session*, int32_t stream, uint32_t code, void* user) {
    return guarded([&] { of(user).events.closed(stream, static_cast<Http2Code>(code)); });
  }
  // A request that is not complete when its answer is: the rest of it is not wanted.
  static int frame_sent(nghttp2_session* session, const nghttp2_frame* f, void*) {
    const bool last = (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (last && (f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) &&
        nghttp2_session_check_server_session(session) &&
        !nghttp2_session_get_stream_remote_close(session, f->hd.stream_id))
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, f->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
  }

  static ssize_t source(nghttp2_session* session, int32_t stream, uint8_t*, size_t length,
                        uint32_t* flags, nghttp2_data_source*, void* user) {
    size_t n = 0;
    bool ended = false;
    HttpHeaders trailers;
    const int failed = guarded([&] {
      n = of(user).events.to_send(stream, length, ended).size();
      if (ended) trailers = of(user).events.trailers(stream);
    });
    if (failed) return failed;
    if (n == 0 && !ended) return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (ended) *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (ended && !trailers.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const std::vector<nghttp2_nv> list = pairs(trailers);
      nghttp2_submit_trailer(session, stream, list.data(), list.size());
    }
    return static_cast<ssize_t>(n);
  }
  static int send_data(nghttp2_session*, nghttp2_frame* f, const uint8_t* head, size_t length,
                       nghttp2_data_source*, void* user) {
    State& s = of(user);
    if (s.out->size() >= s.most) return NGHTTP2_ERR_WOULDBLOCK;
    return guarded([&] {
      s.out->append(view(head, 9));
      bool ended = false;
      if (length > 0) append_bytes(*s.out, s.events.to_send(f->hd.stream_id, length, ended));
      s.events.sent(f->hd.stream_id, length);
    });
  }
  static ssize_t frame_length(nghttp2_session*, uint8_t, int32_t, int32_t connection_window,
                              int32_t stream_window, uint32_t most, void*) {
    const auto window = std::min(connection_window, stream_window);
    return static_cast<ssize_t>(
        std::min({static_cast<size_t>(std::max(1, window)), size_t{most}, kMostFrame}));
  }

  static std::vector<nghttp2_nv> pairs(const HttpHeaders& headers) {
    std::vector<nghttp2_nv> out;
    out.reserve(headers.size());
    const auto bytes = [](const std::string& s) {
      return reinterpret_cast<uint8_t*>(const_cast<char*>(s.data()));
    };
    for (const auto& [name, value] : headers) {
      const bool once = name == kTimingHeader;
      const uint8_t flags = once ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;
      out.push_back({bytes(name), bytes(value), name.size(), value.size(), flags});
    }
    return out;
  }
  static nghttp2_data_provider provider() {
    nghttp2_data_provider p{};
    p.read_callback = source;
    return p;
  }

  void open(Role role) {
    nghttp2_session_callbacks* calls = nullptr;
    nghttp2_option* options = nullptr;
    TD_CHECK(nghttp2_session_callbacks_new(&calls) == 0 && nghttp2_option_new(&options) == 0,
             Memory, "no memory for a connection");
    nghttp2_session_callbacks_set_on_begin_frame_callback(calls, begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(calls, header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(calls, frame_sent);
    nghttp2_session_callbacks_set_send_data_callback(calls, send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(calls, frame_length);
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_no_closed_streams(options, 1);
    const int failed = role == Role::server
                           ? nghttp2_session_server_new2(&session, calls, this, options)
                           : nghttp2_session_client_new2(&session, calls, this, options);
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(options);
    TD_CHECK(failed == 0, Memory, "no memory for a connection");
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits.window},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMostFrame},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits.header_bytes},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
    };
    const bool server = role == Role::server;
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings,
                            server ? std::size(settings) - 1 : std::size(settings));
    nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                          static_cast<int32_t>(limits.connection_window));
  }
};

bool Http2Frames::available() noexcept { return true; }

Http2Frames::Http2Frames(Role role, const Http2Limits& limits, Http2Events& events)
    : state_(std::make_unique<State>(limits, events)) {
  state_->open(role);
}
Http2Frames::~Http2Frames() = default;

bool Http2Frames::receive(std::string_view bytes) {
  const ssize_t n = nghttp2_session_mem_recv(
      state_->session, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (n >= 0) return true;
  const bool flooded =
      state_->flooded || n == NGHTTP2_ERR_FLOODED || n == NGHTTP2_ERR_TOO_MANY_SETTINGS;
  // Floods are what remains after the protocol's own errors, which the library answers itself.
  terminate(flooded ? Http2Code::enhance_your_calm
            : !state_->broken && (n == NGHTTP2_ERR_CALLBACK_FAILURE || n == NGHTTP2_ERR_NOMEM)
                ? Http2Code::internal_error
                : Http2Code::protocol_error);
  return false;
}

void Http2Frames::produce(std::string& out, size_t most) {
  state_->out = &out;
  state_->most = most;
  while (out.size() < most) {
    const uint8_t* bytes = nullptr;
    const ssize_t n = nghttp2_session_mem_send(state_->session, &bytes);
    if (n <= 0) break;
    out.append(State::view(bytes, static_cast<size_t>(n)));
  }
  state_->out = nullptr;
}

bool Http2Frames::over() const {
  return !nghttp2_session_want_read(state_->session) &&
         !nghttp2_session_want_write(state_->session);
}

int32_t Http2Frames::request(const HttpHeaders& head, bool with_body) {
  const std::vector<nghttp2_nv> list = State::pairs(head);
  const nghttp2_data_provider body = State::provider();
  return nghttp2_submit_request(state_->session, nullptr, list.data(), list.size(),
                                with_body ? &body : nullptr, nullptr);
}
void Http2Frames::respond(int32_t stream, const HttpHeaders& head, bool with_body) {
  const std::vector<nghttp2_nv> list = State::pairs(head);
  const nghttp2_data_provider body = State::provider();
  nghttp2_submit_response(state_->session, stream, list.data(), list.size(),
                          with_body ? &body : nullptr);
}
void Http2Frames::resume(int32_t stream) { nghttp2_session_resume_data(state_->session, stream); }
void Http2Frames::reset(int32_t stream, Http2Code code) {
  nghttp2_submit_rst_stream(state_->session, NGHTTP2_FLAG_NONE, stream,
                            static_cast<uint32_t>(code));
}
void Http2Frames::consume(int32_t stream, size_t bytes) {
  if (bytes > 0) nghttp2_session_consume(state_->session, stream, bytes);
}
void Http2Frames::consume_closed(size_t bytes) {
  if (bytes > 0) nghttp2_session_consume_connection(state_->session, bytes);
}
void Http2Frames::announce_end() { nghttp2_submit_shutdown_notice(state_->session); }
void Http2Frames::refuse_streams() {
  nghttp2_submit_goaway(state_->session, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(state_->session), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}
void Http2Frames::terminate(Http2Code code) {
  nghttp2_session_terminate_session(state_->session, static_cast<uint32_t>(code));
}

}  // namespace tandem::serve

#else

namespace tandem::serve {

struct Http2Frames::State {};

bool Http2Frames::available() noexcept { return false; }
Http2Frames::Http2Frames(Role, const Http2Limits&, Http2Events&) {
  TD_FAIL(Unsupported,
          "this build has no HTTP/2 and no gRPC\nInstall libnghttp2-dev and build again.");
}
Http2Frames::~Http2Frames() = default;
bool Http2Frames::receive(std::string_view) { return false; }
void Http2Frames::produce(std::string&, size_t) {}
bool Http2Frames::over() const { return true; }
int32_t Http2Frames::request(const HttpHeaders&, bool) { return -1; }
void Http2Frames::respond(int32_t, const HttpHeaders&, bool) {}
void Http2Frames::resume(int32_t) {}
void Http2Frames::reset(int32_t, Http2Code) {}
void Http2Frames::consume(int32_t, size_t) {}
void Http2Frames::consume_closed(size_t) {}
void Http2Frames::announce_end() {}
void Http2Frames::refuse_streams() {}
void Http2Frames::terminate(Http2Code) {}

}  // namespace tandem::serve

#endif
