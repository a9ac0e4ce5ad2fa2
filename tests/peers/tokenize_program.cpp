// SPDX-License-Identifier: Apache-2.0
// Tokens of many texts, for tests/peers/tokenizers: arguments are a tokenizer's file and a file of
// texts (u32 length, bytes); prints to the third one per text the ids and offsets as u32 numbers.
// With "time" as fourth argument it prints the tokens per second instead.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/base/parallel.h"
#include "tandem/text/sentencepiece.h"
#include "tandem/text/tokenizer.h"

using namespace tandem;

namespace {

void put(std::string& out, size_t v) {
  const auto n = static_cast<uint32_t>(v);
  out.append(reinterpret_cast<const char*>(&n), 4);
}

template <class Encode>
int run(const std::vector<std::string>& texts, const char* path, bool timed, Encode&& encode) {
  if (timed) {
    double best = 0;
    for (int round = 0; round < 5; ++round) {
      size_t tokens = 0;
      const auto begin = std::chrono::steady_clock::now();
      for (const std::string& t : texts) tokens += encode(t).ids.size();
      const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
      best = std::max(best, static_cast<double>(tokens) / s.count());
    }
    fmt::print("{:.0f}\n", best);
    return 0;
  }
  std::string out;
  for (const std::string& t : texts) {
    const text::Encoding e = encode(t);
    put(out, e.ids.size());
    for (const int64_t id : e.ids) put(out, static_cast<size_t>(id));
    put(out, e.offsets.size());
    for (const auto& o : e.offsets) {
      put(out, o.begin);
      put(out, o.end);
    }
  }
  write_file(path, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string model = argv[1];
  const std::string data = read_file(argv[2]);
  std::vector<std::string> texts;
  for (size_t i = 0; i + 4 <= data.size();) {
    uint32_t n = 0;
    std::memcpy(&n, data.data() + i, 4);
    texts.push_back(data.substr(i + 4, n));
    i += 4 + n;
  }
  const bool timed = argc > 4;
  if (model.size() > 6 && model.substr(model.size() - 6) == ".model") {
    const auto t = text::SentencePiece::from_file(model);
    return run(texts, argv[3], timed, [&](const std::string& s) {
      text::Encoding e;
      e.ids = t.encode(s);
      return e;
    });
  }
  const auto t = text::Tokenizer::from_file(model);
  return run(texts, argv[3], timed, [&](const std::string& s) { return t.encode(s); });
}
