// SPDX-License-Identifier: Apache-2.0
// What RFC 9113 and RFC 7541 say about wrong frames, case by case as h2spec has them: each is sent
// as bytes, and the answer is the error that the specification names, or none.
// https://github.com/summerwind/h2spec
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/io/io_helper.h"
#include "tests/serve/http2_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using namespace wire;

enum Code : int {
  kProtocol = 1,
  kFlowControl = 3,
  kStreamClosed = 5,
  kFrameSize = 6,
  kRefused = 7,
  kCompression = 9,
};

/// What is allowed to come of it. An error of a stream may be one of the connection.
struct Wanted {
  std::set<int> connection = {}, stream = {};  ///< codes; both empty: no error
};
Wanted fine() { return {}; }
Wanted connection(std::set<int> codes) { return {.connection = std::move(codes)}; }
Wanted stream(const std::set<int>& codes) { return {.connection = codes, .stream = codes}; }

struct WireCase {
  const char* name;
  std::string bytes;  ///< after the preface and SETTINGS
  Wanted wanted;
  std::string settings = "";
};

/// What the server sent.
struct Heard {
  int goaway = -1;
  std::set<int> resets;  ///< codes
  int pings = 0, settings_acks = 0;
  bool closed = false;
  std::map<uint32_t, std::string> data;
  std::map<uint32_t, size_t> largest;  ///< DATA frame
  std::set<uint32_t> ended;
  size_t bytes(uint32_t id) const { return data.count(id) ? data.at(id).size() : 0; }
};

uint32_t number_at(std::string_view bytes, size_t at, size_t n) {
  uint32_t out = 0;
  for (size_t i = 0; i < n; ++i) out = out << 8 | static_cast<unsigned char>(bytes[at + i]);
  return out;
}
std::string number(uint32_t n, int bytes = 4) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
  return out;
}

void hear(Heard& h, std::string_view f) {
  const int type = f[3], flags = static_cast<unsigned char>(f[4]);
  const uint32_t id = number_at(f, 5, 4);
  const std::string_view payload = f.substr(9);
  if (type == kPing && (flags & kAck)) ++h.pings;
  if (type == kSettings && (flags & kAck)) ++h.settings_acks;
  if (type == kGoaway) h.goaway = static_cast<int>(number_at(payload, 4, 4));
  if (type == kReset) h.resets.insert(static_cast<int>(number_at(payload, 0, 4)));
  if (type == kData) h.data[id] += payload;
  if (type == kData) h.largest[id] = std::max(h.largest[id], payload.size());
  if ((type == kData || type == kHeaders) && (flags & kEndStream)) h.ended.insert(id);
}

/// Sends bytes and two PINGs after them, whose answers say that everything before was dealt with.
/// An end of the connection has to come after a GOAWAY.
Heard converse(int port, const std::string& bytes) {
  HttpClient client("127.0.0.1", port, 5);
  const std::string ping = frame(kPing, 0, 0, "-after--");
  try {
    client.send(bytes + ping);
  } catch (const Error&) {}  // it closed the connection while more was sent
  Heard h;
  std::string in;
  for (bool asked_again = false; !h.closed;) {
    char room[65536];
    const ssize_t n = recv(client.fd(), room, sizeof room, 0);
    h.closed = n == 0 || (n < 0 && errno == ECONNRESET);
    if (n <= 0) break;
    in.append(room, static_cast<size_t>(n));
    while (in.size() >= 9 && in.size() >= 9 + number_at(in, 0, 3)) {
      const size_t size = 9 + number_at(in, 0, 3);
      hear(h, std::string_view(in).substr(0, size));
      in.erase(0, size);
    }
    if (h.pings == 1 && !asked_again && h.goaway < 0) {
      asked_again = true;
      client.send(ping);
    }
    if (h.pings == 2 && h.goaway < 0) break;
  }
  return h;
}

// ---- requests in HPACK without compression and without the table

std::string field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}
const std::string kMethod = "\x83", kScheme = "\x86", kPath = "\x84", kAuthority = "\x41\x01h";
const std::string kPost = kMethod + kScheme + kPath + kAuthority;
const std::string kGet = "\x82" + kScheme + kPath + kAuthority;

std::string headers(uint32_t id, int flags, const std::string& block = kPost) {
  return frame(kHeaders, flags, id, block);
}
std::string data(uint32_t id, int flags, const std::string& bytes) {
  return frame(kData, flags, id, bytes);
}
std::string request_of(const std::string& block) {
  return headers(1, kEndStream | kEndHeaders, block);
}
/// A stream that stays open, one that the client has ended (its answer has no room), and one that
/// is closed.
const std::string kOpen = headers(1, kEndHeaders);
const std::string kEnded = request_of(kPost + field("x", "y"));
const std::string kNoRoom = number(4, 2) + number(0);
const std::string kReset1 = frame(kReset, 0, 1, number(8));
const std::string kRest = field("a", "b");

class Conformance : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Http2Frames::available()) GTEST_SKIP() << "this build has no HTTP/2";
  }
  void check(const std::vector<WireCase>& cases) {
    for (const WireCase& c : cases) {
      const std::string opening = std::string(kHttp2Preface) + frame(kSettings, 0, 0, c.settings);
      const Heard h = converse(server_->port(), opening + c.bytes);
      expect(c, h);
    }
    server_.expect_healthy();
  }
  static void expect(const WireCase& c, const Heard& h) {
    if (h.goaway >= 0) {
      EXPECT_TRUE(c.wanted.connection.count(h.goaway)) << c.name << ": GOAWAY " << h.goaway;
      EXPECT_TRUE(h.closed) << c.name << ": the connection stays open after GOAWAY";
      return;
    }
    EXPECT_EQ(h.pings, 2) << c.name << ": the connection ended without GOAWAY";
    if (c.wanted.connection.empty()) {
      EXPECT_TRUE(h.resets.empty()) << c.name << ": RST_STREAM " << *h.resets.begin();
      return;
    }
    const auto named = [&c](int code) { return c.wanted.stream.count(code) > 0; };
    EXPECT_TRUE(std::any_of(h.resets.begin(), h.resets.end(), named))
        << c.name << ": no error, "
        << (h.resets.empty() ? "nothing" : "RST_STREAM " + std::to_string(*h.resets.begin()));
  }
  EchoServer server_{{.limits = {.streams = 100}}};
};

TEST_F(Conformance, Preface) {  // 3.4
  const Heard h = converse(server_->port(), kOpening);
  EXPECT_EQ(h.settings_acks, 1);
  EXPECT_EQ(h.goaway, -1);
  // What is none is answered as HTTP/1.1 and closed.
  EXPECT_TRUE(server_.talk("INVALID CONNECTION PREFACE\r\n\r\n").starts_with("HTTP/1.1 "));
  check({{"a frame before SETTINGS", "", fine()}});
  const std::string ping_first = std::string(kHttp2Preface) + frame(kPing, 0, 0, "12345678");
  EXPECT_EQ(converse(server_->port(), ping_first).goaway, kProtocol);
}

TEST_F(Conformance, Frames) {  // 4.1, 4.2, 5.5
  const std::string ping = "12345678";
  const std::string huge((size_t{256} << 10) + 1, 'x');
  check({
      {"an unknown type", frame(22, 0, 0, "12345678"), fine()},
      {"an unknown type in a stream", kOpen + frame(22, 0, 1, "12345678"), fine()},
      {"undefined flags", frame(kPing, 0x16, 0, ping), fine()},
      {"the reserved bit", frame(kPing, 0, 0x80000000U, ping), fine()},
      {"DATA of 2^14 bytes", kOpen + data(1, kEndStream, std::string(16384, 'x')), fine()},
      {"DATA beyond our largest frame", kOpen + data(1, 0, huge), stream({kFrameSize})},
      {"HEADERS beyond our largest frame", headers(1, kEndHeaders, huge), connection({kFrameSize})},
      {"SETTINGS beyond our largest frame", frame(kSettings, 0, 0, huge + "12345"),
       connection({kFrameSize})},
      {"an unknown frame inside a head", headers(1, 0) + frame(22, 0, 1, "12345678"),
       connection({kProtocol})},
  });
}

TEST_F(Conformance, HeadsInParts) {  // 4.3, 6.10
  const auto more = [](uint32_t id, int flags) { return frame(kContinuation, flags, id, kRest); };
  const std::string begun = headers(1, kEndStream);
  check({
      {"two parts", begun + more(1, kEndHeaders), fine()},
      {"four parts", begun + more(1, 0) + more(1, 0) + more(1, kEndHeaders), fine()},
      {"PRIORITY between", begun + frame(kPriority, 0, 1, number(0) + "\x10"),
       connection({kProtocol})},
      {"PING between", begun + frame(kPing, 0, 0, "12345678"), connection({kProtocol})},
      {"HEADERS of another stream", begun + headers(3, kEndHeaders), connection({kProtocol})},
      {"CONTINUATION of another stream", begun + more(3, kEndHeaders), connection({kProtocol})},
      {"DATA after CONTINUATION", headers(1, 0) + more(1, 0) + data(1, 0, "x"),
       connection({kProtocol})},
      {"CONTINUATION of the connection", begun + more(0, kEndHeaders), connection({kProtocol})},
      {"CONTINUATION after END_HEADERS", kOpen + more(1, kEndHeaders), connection({kProtocol})},
      {"CONTINUATION after a whole head", begun + more(1, kEndHeaders) + more(1, kEndHeaders),
       connection({kProtocol})},
      {"CONTINUATION after DATA", kOpen + data(1, 0, "x") + more(1, kEndHeaders),
       connection({kProtocol})},
      {"a head that cannot be decoded", headers(1, kEndHeaders, "\x40"),
       connection({kCompression})},
  });
}

TEST_F(Conformance, StatesOfStreams) {  // 5.1
  const std::string more = frame(kContinuation, kEndHeaders, 1, kRest);
  const std::string closed = kOpen + kReset1, answered = request_of(kPost);
  const Wanted late = stream({kStreamClosed, kProtocol});
  check({
      {"idle: DATA", data(1, kEndStream, "x"), connection({kProtocol, kStreamClosed})},
      {"idle: RST_STREAM", kReset1, connection({kProtocol})},
      {"idle: WINDOW_UPDATE", frame(kWindow, 0, 1, number(100)), connection({kProtocol})},
      {"idle: CONTINUATION", more, connection({kProtocol})},
      {"idle: PRIORITY", frame(kPriority, 0, 1, number(0) + "\x10"), fine()},
      {"half closed: DATA", kEnded + data(1, kEndStream, "x"), stream({kStreamClosed}), kNoRoom},
      {"half closed: HEADERS", kEnded + headers(1, kEndStream | kEndHeaders, kRest),
       stream({kStreamClosed}), kNoRoom},
      {"half closed: CONTINUATION", kEnded + more, connection({kProtocol, kStreamClosed}), kNoRoom},
      {"half closed: WINDOW_UPDATE", kEnded + frame(kWindow, 0, 1, number(100)), fine(), kNoRoom},
      {"half closed: PRIORITY", kEnded + frame(kPriority, 0, 1, number(0) + "\x10"), fine(),
       kNoRoom},
      {"reset: CONTINUATION", closed + more, connection({kProtocol, kStreamClosed})},
      {"reset: WINDOW_UPDATE", closed + frame(kWindow, 0, 1, number(100)), fine()},
      {"reset: RST_STREAM", closed + kReset1, fine()},
      {"closed: DATA", answered + data(1, kEndStream, "x"), late},
      {"closed: HEADERS", answered + headers(1, kEndStream | kEndHeaders), late},
      {"closed: CONTINUATION", answered + more, connection({kProtocol, kStreamClosed})},
      {"closed: PRIORITY", answered + frame(kPriority, 0, 1, number(0) + "\x10"), fine()},
      {"closed: RST_STREAM", answered + kReset1, fine()},
  });
}

TEST_F(Conformance, NumbersOfStreams) {  // 5.1.1, 5.1.2
  std::string many;
  for (uint32_t i = 0; i < 101; ++i) many += headers(2 * i + 1, kEndHeaders);
  check({
      {"an even number", headers(2, kEndHeaders), connection({kProtocol})},
      {"a smaller number", headers(5, kEndHeaders) + headers(3, kEndHeaders),
       connection({kProtocol, kStreamClosed})},
      {"one more than may be open", many, stream({kRefused, kProtocol})},
      {"the largest number", headers(0x7fffffff, kEndStream | kEndHeaders), fine()},
  });
}

TEST_F(Conformance, DataAndHeaders) {  // 6.1, 6.2
  const std::string pad = "\x20";
  check({
      {"DATA of the connection", kOpen + data(0, 0, "x"), connection({kProtocol})},
      {"DATA of padding alone", kOpen + data(1, kPadded | kEndStream, std::string(1, '\2') + "ab"),
       fine()},
      {"DATA with more padding than there is", kOpen + data(1, kPadded, pad + "x"),
       connection({kProtocol})},
      {"padded DATA without a length", kOpen + data(1, kPadded, ""),
       connection({kProtocol, kFrameSize})},
      {"HEADERS of the connection", headers(0, kEndHeaders), connection({kProtocol})},
      {"padded HEADERS", headers(1, kEndStream | kEndHeaders | kPadded, "\2" + kPost + "ab"),
       fine()},
      {"HEADERS with more padding than there is", headers(1, kEndHeaders | kPadded, "\x7f" + kPost),
       connection({kProtocol})},
      {"HEADERS with a priority",
       headers(1, kEndStream | kEndHeaders | kPriorityFlag, number(0) + "\x10" + kPost), fine()},
      {"HEADERS too short for their priority", headers(1, kEndHeaders | kPriorityFlag, "ab"),
       connection({kProtocol, kFrameSize})},
      {"PUSH_PROMISE by a client", frame(kPushPromise, kEndHeaders, 1, number(2) + kPost),
       connection({kProtocol})},
  });
}

TEST_F(Conformance, PriorityAndReset) {  // 6.3, 6.4
  check({
      {"PRIORITY of the connection", frame(kPriority, 0, 0, number(0) + "\x10"),
       connection({kProtocol})},
      {"PRIORITY of 4 bytes", frame(kPriority, 0, 1, number(0)), stream({kFrameSize})},
      {"RST_STREAM of the connection", frame(kReset, 0, 0, number(8)), connection({kProtocol})},
      {"RST_STREAM of 3 bytes", kOpen + frame(kReset, 0, 1, "abc"), connection({kFrameSize})},
      {"RST_STREAM of an unknown code", kOpen + frame(kReset, 0, 1, number(0x1234)), fine()},
  });
}

TEST_F(Conformance, Settings) {  // 6.5
  const auto setting = [](uint32_t key, uint32_t value) {
    return frame(kSettings, 0, 0, number(key, 2) + number(value));
  };
  constexpr uint32_t kPush = 2, kWindowSize = 4, kFrameSizeKey = 5;
  check({
      {"an ACK with more", frame(kSettings, kAck, 0, number(4, 2) + number(1)),
       connection({kFrameSize})},
      {"SETTINGS of a stream", frame(kSettings, 0, 1, ""), connection({kProtocol})},
      {"SETTINGS of 3 bytes", frame(kSettings, 0, 0, "abc"), connection({kFrameSize})},
      {"ENABLE_PUSH of 2", setting(kPush, 2), connection({kProtocol})},
      {"a window beyond 2^31", setting(kWindowSize, 0x80000000U), connection({kFlowControl})},
      {"frames of 2^14 - 1", setting(kFrameSizeKey, 16383), connection({kProtocol})},
      {"frames of 2^24", setting(kFrameSizeKey, 1U << 24), connection({kProtocol})},
      {"an unknown setting", setting(0xff, 1), fine()},
  });
  const Heard h =
      converse(server_->port(), kOpening + setting(kWindowSize, 1) + setting(kWindowSize, 2));
  EXPECT_EQ(h.settings_acks, 3);
}

TEST_F(Conformance, PingAndGoaway) {  // 6.7, 6.8, 5.4.1
  check({
      {"PING with ACK", frame(kPing, kAck, 0, "12345678"), fine()},
      {"PING of a stream", frame(kPing, 0, 1, "12345678"), connection({kProtocol})},
      {"PING of 6 bytes", frame(kPing, 0, 0, "123456"), connection({kFrameSize})},
      {"GOAWAY of a stream", frame(kGoaway, 0, 1, number(0) + number(0)), connection({kProtocol})},
      {"GOAWAY of 4 bytes", frame(kGoaway, 0, 0, number(0)), connection({kFrameSize})},
  });
  // One that is an answer gets none.
  EXPECT_EQ(converse(server_->port(), kOpening + frame(kPing, kAck, 0, "12345678")).pings, 2);
  EXPECT_EQ(converse(server_->port(), kOpening + frame(kPing, 0, 0, "12345678")).pings, 2);
}

TEST_F(Conformance, Windows) {  // 6.9
  const auto window = [](uint32_t id, uint32_t more) {
    return frame(kWindow, 0, id, number(more));
  };
  check({
      {"0 more of the connection", window(0, 0), connection({kProtocol})},
      {"0 more of a stream", kOpen + window(1, 0), stream({kProtocol})},
      {"WINDOW_UPDATE of 3 bytes", frame(kWindow, 0, 0, "abc"), connection({kFrameSize})},
      {"the connection's beyond 2^31 - 1", window(0, 0x7fffffff) + window(0, 0x7fffffff),
       connection({kFlowControl})},
      {"a stream's beyond 2^31 - 1", kOpen + window(1, 0x7fffffff) + window(1, 0x7fffffff),
       stream({kFlowControl})},
      {"all streams' beyond 2^31 - 1",
       kOpen + window(1, 0x7fff0000) + frame(kSettings, 0, 0, number(4, 2) + number(0x7fffffff)),
       stream({kFlowControl})},
  });
}

TEST_F(Conformance, AnswersFitTheirWindow) {  // 6.9.1, 6.9.2
  const auto opening = [](uint32_t window) {
    return std::string(kHttp2Preface) + frame(kSettings, 0, 0, number(4, 2) + number(window));
  };
  const auto resize = [](uint32_t window) {
    return frame(kSettings, 0, 0, number(4, 2) + number(window));
  };
  const std::string asked = headers(1, kEndHeaders) + data(1, kEndStream, std::string(93, 'z'));
  constexpr size_t kWhole = 100;  // "POST  " and the body ...
  const Heard one = converse(server_->port(), opening(1) + asked);
  EXPECT_EQ(one.bytes(1), 1U);
  EXPECT_TRUE(one.ended.empty());
  const Heard more = converse(server_->port(), opening(0) + asked + resize(1));
  EXPECT_EQ(more.bytes(1), 1U);
  // A window of 3 of which one remains after it is made smaller by 2: then 5 more than it lacks.
  const Heard less =
      converse(server_->port(), opening(3) + asked + resize(1) + frame(kWindow, 0, 1, number(7)));
  EXPECT_LE(less.bytes(1), 10U);
  EXPECT_GE(less.bytes(1), 8U);
  const Heard all = converse(server_->port(), opening(5) + asked + resize(1000));
  EXPECT_EQ(all.ended.count(1), 1U);
  EXPECT_EQ(all.bytes(1), kWhole - 1);
  // Frames are not larger than the client takes.
  const std::string part = data(1, 0, std::string(12500, 'z'));
  Heard large = converse(server_->port(), opening(1 << 20) + headers(1, kEndHeaders) + part + part +
                                              part + part + data(1, kEndStream, ""));
  EXPECT_EQ(large.bytes(1), 50006U);
  EXPECT_LE(large.largest[1], 16384U);
}

TEST_F(Conformance, MessagesOfRequests) {  // 8.1, 8.2, 8.3
  const auto without = [](const std::string& left_out) {
    std::string out;
    for (const std::string& part : {kMethod, kScheme, kPath, kAuthority})
      if (part != left_out) out += part;
    return out;
  };
  const Wanted malformed = stream({kProtocol});
  std::vector<WireCase> cases = {
      {"a second head without an end", kOpen + headers(1, kEndHeaders), malformed},
      {"trailers", kOpen + data(1, 0, "x") + headers(1, kEndStream | kEndHeaders, kRest), fine()},
      {"a pseudo-header in trailers",
       kOpen + data(1, 0, "x") + headers(1, kEndStream | kEndHeaders, kMethod), malformed},
      {"DATA of less than said",
       headers(1, kEndHeaders, kPost + field("content-length", "3")) + data(1, kEndStream, "ab"),
       malformed},
      {"DATA of more than said",
       headers(1, kEndHeaders, kPost + field("content-length", "1")) + data(1, 0, "a") +
           data(1, kEndStream, "b"),
       malformed},
      {"DATA as said",
       headers(1, kEndHeaders, kPost + field("content-length", "2")) + data(1, kEndStream, "ab"),
       fine()},
  };
  const std::pair<const char*, std::string> heads[] = {
      {"capitals in a name", kPost + field("X-TEST", "a")},
      {"an unknown pseudo-header", kPost + field(":test", "a")},
      {"a pseudo-header of answers", kPost + field(":status", "200")},
      {"a pseudo-header after others", without(kPath) + kRest + kPath},
      {"connection", kPost + field("connection", "keep-alive")},
      {"transfer-encoding", kPost + field("transfer-encoding", "chunked")},
      {"upgrade", kPost + field("upgrade", "h2c")},
      {"te of more than trailers", kPost + field("te", "trailers, deflate")},
      {"an empty path", without(kPath) + field(":path", "")},
      {"no method", without(kMethod)},
      {"no scheme", without(kScheme)},
      {"no path", without(kPath)},
      {"two methods", kMethod + kPost},
      {"two schemes", kScheme + kPost},
      {"two paths", kPath + kPost},
      {"a line feed in a value", kPost + field("a", "b\nc")},
      {"a NUL in a value", kPost + field("a", std::string("b\0c", 3))},
      {"a space in a name", kPost + field("a b", "c")},
      {"an empty name", kPost + field("", "c")},
  };
  for (const auto& [name, block] : heads) cases.push_back({name, request_of(block), malformed});
  for (const auto& [name, block] :
       {std::pair<const char*, std::string>{"te of trailers", kGet + field("te", "trailers")},
        {"a header of no meaning", kGet + field("x-test", "")},
        {"several cookies", kGet + field("cookie", "a=b") + field("cookie", "c=d")}})
    cases.push_back({name, request_of(block), fine()});
  check(cases);
}

TEST_F(Conformance, HeaderCompression) {  // RFC 7541
  const std::pair<const char*, std::string> broken[] = {
      {"index 0", kPost + "\x80"},
      {"an index beyond both tables", kPost + "\xc0"},
      {"a name's index beyond both tables", kPost + "\x7f\x10\x01"
                                                    "a"},
      {"a size of the table after a field", kPost + "\x20"},
      {"a size of the table beyond SETTINGS", "\x3f\xe2\x1f" + kPost},
      // Texts in Huffman's code: 0xff pads by 8 bits, 0x18 ends with zeros, and EOS.
      {"padding of more than 7 bits", kPost + std::string("\0\x01z\x82\x1f\xff", 6)},
      {"padding by zeros", kPost + std::string("\0\x01z\x81\x18", 5)},
      {"the code of the end", kPost + std::string("\0\x01z\x84\xff\xff\xff\xfc", 8)},
      {"a length beyond the block", kPost + std::string("\0\x01z\x7e"
                                                        "ab",
                                                        6)},
      {"a number that never ends", kPost + "\xff" + std::string(20, '\xff')},
  };
  std::vector<WireCase> cases;
  for (const auto& [name, block] : broken)
    cases.push_back({name, request_of(block), connection({kCompression})});
  const std::pair<const char*, std::string> good[] = {
      {"every form of a field", kPost + std::string("\x40\1a\1b\0\1c\1d\x10\1e\1f\xbe", 16)},
      {"a text in Huffman's code", kPost + std::string("\0\x01z\x81\x1f", 5)},
      {"sizes of the table before the fields", "\x20\x3f\xe1\x1f" + kPost},
      {"an empty text", kPost + std::string("\0\x01z\0", 4)},
  };
  for (const auto& [name, block] : good) cases.push_back({name, request_of(block), fine()});
  check(cases);
}

}  // namespace
}  // namespace tandem::serve
