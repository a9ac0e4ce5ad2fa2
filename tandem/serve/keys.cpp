// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/keys.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "tandem/base/ascii.h"
#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/serve/grpc/call_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kLeastKey = 16;

std::string digest_of(std::string_view key) {
  const auto hash = sha256(key);
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

// Every byte is compared, whatever those before gave.
bool same_digest(const std::string& a, const std::string& b) {
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i)
    different |=
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return different == 0;
}

uint8_t scopes_of(std::string_view list, const std::string& place) {
  uint8_t out = 0;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view word = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const KeyScope scope = word == "infer"     ? KeyScope::infer
                           : word == "admin"   ? KeyScope::admin
                           : word == "metrics" ? KeyScope::metrics
                                               : KeyScope::none;
    TD_CHECK(
        scope != KeyScope::none, Value,
        "{}: there is no scope '{}'\nWrite infer, admin and metrics, with commas between them.",
        place, word);
    out |= static_cast<uint8_t>(scope);
  }
  return out;
}

// "rate=50 burst=100" after a key; nothing where it has no rate.
std::shared_ptr<TokenBucket> bucket_of(std::string_view words, const std::string& place) {
  double rate = 0, burst = 0;
  while (!(words = trimmed(words)).empty()) {
    const std::string_view word = words.substr(0, words.find_first_of(" \t"));
    words.remove_prefix(word.size());
    double* to = word.starts_with("rate=") ? &rate : word.starts_with("burst=") ? &burst : nullptr;
    TD_CHECK(to, Value,
             "{}: after a key come rate=NUMBER and burst=NUMBER, got '{}'; a key has no blanks",
             place, one_line(word, 32));
    const std::string number(word.substr(word.find('=') + 1));
    char* end = nullptr;
    *to = std::strtod(number.c_str(), &end);
    TD_CHECK(!number.empty() && *end == 0 && *to > 0 && *to <= 1e9, Value,
             "{}: '{}' is not a number above 0, of requests{}", place, one_line(word, 32),
             to == &rate ? " a second" : "");
  }
  TD_CHECK(burst == 0 || rate > 0, Value, "{}: a burst without a rate\nAdd rate=NUMBER.", place);
  if (rate == 0) return nullptr;
  return std::make_shared<TokenBucket>(rate, std::max(burst > 0 ? burst : rate, 1.0));
}

// "Authorization: Bearer KEY", or "X-API-Key: KEY".
std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  if (const std::string* key = request.header("x-api-key")) return trimmed(*key);
  const std::string* header = request.header("authorization");
  if (!header || ascii_lower(std::string_view(*header).substr(0, kBearer.size())) != kBearer)
    return {};
  return trimmed(std::string_view(*header).substr(kBearer.size()));
}

}  // namespace

ApiKeys::ApiKeys(const std::string& file) : ApiKeys(parse(read_file(file, 1 << 20), file)) {}

ApiKeys ApiKeys::parse(std::string_view text, const std::string& file) {
  ApiKeys out;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string place = fmt::format("{}, line {}", file, number);
    const size_t blank = line.find_first_of(" \t");
    TD_CHECK(blank != std::string_view::npos, Value,
             "{}: a line has scopes, a blank and a key, as \"infer,metrics KEY\"", place);
    const std::string_view rest = trimmed(line.substr(blank));
    const std::string_view key = rest.substr(0, rest.find_first_of(" \t"));
    TD_CHECK(
        key.size() >= kLeastKey, Value,
        "{}: a key has {} characters at least, and no blanks\n`openssl rand -hex 24` makes one.",
        place, kLeastKey);
    Key next{digest_of(key), scopes_of(line.substr(0, blank), place),
             bucket_of(rest.substr(key.size()), place)};
    for (const Key& other : out.keys_)
      TD_CHECK(other.digest != next.digest, Value, "{}: this key stands there twice", place);
    out.keys_.push_back(std::move(next));
  }
  TD_CHECK(!out.keys_.empty(), Value, "{} has no keys", file);
  return out;
}

void ApiKeys::keep_rates(const ApiKeys& before) {
  for (Key& key : keys_)
    for (const Key& old : before.keys_)
      if (key.digest == old.digest && key.bucket && old.bucket && key.bucket->is_like(*old.bucket))
        key.bucket = old.bucket;
}

double TokenBucket::take(double now) {
  const std::lock_guard hold(lock_);
  if (since_ >= 0 && now > since_) tokens_ = std::min(burst_, tokens_ + (now - since_) * rate_);
  since_ = std::max(since_, now);
  if (tokens_ < 1) return (1 - tokens_) / rate_;
  tokens_ -= 1;
  return 0;
}

int ApiKeys::check(const HttpRequest& request, KeyScope scope, double* wait) const {
  if (scope == KeyScope::none) return 0;
  const std::string digest = digest_of(key_of(request));
  const Key* found = nullptr;
  for (const Key& key : keys_)
    if (same_digest(key.digest, digest)) found = &key;
  if (!found) return 401;
  if ((found->scopes & static_cast<int>(scope)) == 0) return 403;
  if (!found->bucket) return 0;
  const double seconds =
      found->bucket->take(std::chrono::duration<double>(Clock::now().time_since_epoch()).count());
  if (wait) *wait = seconds;
  return seconds > 0 ? 429 : 0;
}

KeyScope scope_of(const HttpRequest& request, std::string_view health_route) {
  if (is_grpc(request)) {
    const GrpcMethod* method = find_grpc_method(request.path);
    return method ? method->scope : KeyScope::infer;
  }
  if (!health_route.empty() && request.path == health_route) return KeyScope::none;
  if (asks_for_page(request)) return KeyScope::none;
  const auto path = path_segments(request.path);
  if (!path || path->empty()) return KeyScope::infer;
  const std::vector<std::string>& p = *path;
  if (p[0] == "ping" || (p[0] == "v2" && p.size() > 1 && p[1] == "health")) return KeyScope::none;
  if (p[0] == "metrics") return KeyScope::metrics;
  if (p[0] == "v2" && p.size() > 2 && p[1] == "repository" && p[2] == "models")
    return KeyScope::admin;
  const bool memory = p[0] == "v2" && p.size() > 2 && p[1].ends_with("sharedmemory");
  if (memory && p.back().ends_with("register")) return KeyScope::admin;
  return KeyScope::infer;
}

}  // namespace tandem::serve
