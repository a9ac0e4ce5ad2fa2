// SPDX-License-Identifier: Apache-2.0
// What clients send to a server, as readers: requests of HTTP/1.1 and tensors in JSON. What is read
// must not depend on how the bytes were cut on their way.
#include <algorithm>

#include "tandem/io/gzip.h"
#include "tandem/serve/http/parser.h"
#include "tandem/serve/json_cursor.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

// The bodies and paths of all requests in a stream, and how it ends.
std::string read_stream(std::string_view bytes, size_t step) {
  const serve::HttpLimits limits{.body_bytes = 1 << 16,
                                 .header_bytes = 4096,
                                 .target_bytes = 1024,
                                 .headers = 20,
                                 .chunks = 64};
  serve::HttpParser parser(limits);
  std::string out;
  for (size_t at = 0; at < bytes.size() && !parser.failed();) {
    at += parser.feed(bytes.substr(at, std::min(step, bytes.size() - at)));
    if (!parser.done()) continue;
    serve::HttpRequest r = parser.take();
    std::string why;
    const int status = serve::inflate_body(r, limits, why);
    out += r.method + r.path + "?" + r.query + "|" + std::to_string(status) + r.body + "\n";
    TD_CHECK(r.body.size() <= limits.body_bytes, Internal, "a body of {} bytes", r.body.size());
  }
  return out + std::to_string(parser.failed() ? parser.status() : 0);
}

}  // namespace

std::vector<std::string> http_seeds() {
  const std::string host = " HTTP/1.1\r\nHost: h\r\n", packed = io::gzip("{\"inputs\":[]}");
  return {
      "GET /v2/models/a%20b?x=1" + host + "Connection: close\r\n\r\n",
      "POST /v1/models/m:predict" + host + "Content-Length: 2\r\n\r\n{}GET /" + host + "\r\n",
      "POST /a" + host + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n",
      "POST /b" + host + "Content-Encoding: gzip\r\nContent-Length: " +
          std::to_string(packed.size()) + "\r\n\r\n" + packed,
      "GET / HTTP/1.0\r\n\r\n",
  };
}
void read_http(std::string_view bytes) {
  const std::string whole = read_stream(bytes, bytes.size());
  for (const size_t step : {1, 7})
    TD_CHECK(read_stream(bytes, step) == whole, Internal, "pieces of {} bytes are read otherwise",
             step);
  TD_CHECK(whole.ends_with("\n0"), Format, "refused: {}", serve::one_line(whole));
}

std::vector<std::string> json_tensor_seeds() {
  return {"[[1,2.5,-3e-7],[0,1e30,0.1]]",
          "[[[1],[2]],[[3],[4]]]",
          "7",
          "[]",
          "[true,false]",
          "{\"inputs\":[{\"name\":\"\\u00e9\\ud83d\\ude00\",\"data\":[NaN,Infinity]}]}"};
}
void read_json_tensor(std::string_view bytes) {
  serve::JsonCursor json(bytes);
  json.skip(true);
  json.finish();
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first < bytes.size() && bytes[first] == '{') return;  // a document rather than a tensor
  // Numbers that one dtype does not hold another may.
  std::string refused;
  int taken = 0;
  for (const DType dtype : {DType::f32, DType::i8, DType::b8}) {
    Tensor x;
    try {
      x = serve::read_array(bytes, dtype, "x", true);
    } catch (const Error& e) {
      refused = e.what();
      continue;
    }
    ++taken;
    std::string text;
    serve::write_array(text, x, serve::NonFinite::words, true);
    const Tensor again = serve::read_array(text, dtype, "x", true);
    TD_CHECK(again.shape() == x.shape() || x.numel() == 0, Internal, "another shape came back");
  }
  TD_CHECK(taken > 0, Format, "no dtype holds it: {}", refused);
}

}  // namespace tandem::readers
