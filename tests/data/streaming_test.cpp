// SPDX-License-Identifier: Apache-2.0
// Files far larger than the memory they may use: sparse ones with text, records and images spread
// in them, read by a child process whose peak memory is checked. TANDEM_SLOW=1 makes the text file
// 20 GB. Sanitizers use several times the memory: they run without these.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>

#include "tandem/base/files/mapped_pages.h"
#include "tandem/data/sets/record_datasets.h"
#include "tandem/tandem.h"
#include "tests/data/shards_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

constexpr int64_t kMega = 1 << 20;

/// A line of /proc/self/status in MB.
int64_t status_mb(const char* key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0)
      return std::strtoll(line.c_str() + std::strlen(key), nullptr, 10) / 1024;
  return -1;
}

/// Peak memory in MB of a child in which `f` returns an empty string; fails on any other.
int64_t peak_mb(const std::function<std::string()>& f) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    std::string wrong;
    try {
      wrong = f();
    } catch (const std::exception& e) {
      wrong = std::string("threw ") + e.what();
    }
    const std::string say = std::to_string(status_mb("VmHWM:")) + " " + wrong;
    const ssize_t n = ::write(ends[1], say.data(), std::min<size_t>(say.size(), 2000));
    ::_exit(n > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said(2000, '\0');
  const ssize_t n = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  said.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  EXPECT_EQ(status, 0) << "the child's end";
  const size_t blank = said.find(' ');
  EXPECT_EQ(said.substr(std::min(blank + 1, said.size())), "");
  return std::strtoll(said.c_str(), nullptr, 10);
}

void expect_small(const char* what, int64_t peak) {
  std::printf("%s: peak memory %lld MB\n", what, static_cast<long long>(peak));
  EXPECT_GT(peak, 0) << what;
  EXPECT_LT(peak, 300) << what;
}

int64_t text_megas() {
  const char* slow = std::getenv("TANDEM_SLOW");
  return slow && *slow == '1' ? 20480 : 4096;
}

std::string json_line(int64_t k) {
  return fmt::format("{{\"x\": [{}, 0.5], \"y\": {}}}", k, k % 7);
}

TEST(SlowStreaming, TextAndJsonLines) {
  TempFolder f;
  const std::string path = f / "big.jsonl";
  const int64_t megas = text_megas();
  {  // every MB a line of JSON, and what lies between is a line of zeros
    std::ofstream out(path, std::ios::binary);
    for (int64_t k = 0; k < megas; ++k) {
      out.seekp(k * kMega);
      out << (k ? "\n" : "") << json_line(k) << "\n";
    }
    out.seekp(megas * kMega - 1);
    out << "\n";
  }
  expect_small("TextLines", peak_mb([&]() -> std::string {
                 const TextLines lines(path);
                 if (lines.size() != 2 * megas) return fmt::format("{} lines", lines.size());
                 for (int64_t k = 0; k < megas; ++k) {
                   const int64_t i = k * 997 % megas;  // all, out of order
                   if (lines.line(2 * i) != json_line(i)) return fmt::format("line {}", 2 * i);
                   if (lines.number(2 * i) != 2 * i + 1) return fmt::format("number {}", 2 * i);
                 }
                 // Many of the long ones too, as a loader with two threads reads them.
                 int64_t bytes = 0;
                 auto p =
                     pipeline(lines, {.seed = 1}).shuffle().take(1000).prefetch({.workers = 2});
                 for (const Tensor& t : p) bytes += t.numel();
                 if (bytes < 300 * kMega) return fmt::format("{} bytes", bytes);
                 return "";
               }));
  expect_small("JsonLines", peak_mb([&]() -> std::string {
                 const JsonLines lines(path);
                 for (int64_t i = 0; i < megas; i += 3) {
                   const Example e = lines.get(2 * i);
                   if (e.x[0].item<float>() != static_cast<float>(i))
                     return fmt::format("x of line {}", i);
                   if (e.y.item<int64_t>() != i % 7) return fmt::format("y of line {}", i);
                 }
                 return "";
               }));
  // A line without an end is rejected before it is read completely.
  std::ofstream(f / "no-end", std::ios::binary).seekp(megas * kMega - 1).put('x');
  expect_small("one long line", peak_mb([&]() -> std::string {
                 const std::string what = error_of([&] { TextLines(f / "no-end"); });
                 return what.find("line 1: more than the 67108864 bytes") == what.npos ? what : "";
               }));
}

TEST(Streaming, MarksAreSpentSparingly) {
  io::Places<int64_t> places(8);
  for (int64_t i = 0; i < 1000; ++i) {
    places.add(i * 10);
    for (int64_t k = 0; k <= i; ++k)
      ASSERT_EQ(places.before(k), k / places.every() * places.every() * 10) << i << ", " << k;
  }
  EXPECT_EQ(places.size(), 1000);
  EXPECT_EQ(places.every(), 256);
  // More lines than kept offsets, read backwards.
  TempFolder f;
  std::string text;
  const int64_t n = (1 << 19) + 77;
  for (int64_t i = 0; i < n; ++i) text += std::to_string(i) + (i % 5 ? "\n" : "\n\n");
  write_file(f / "t", text);
  const TextLines lines(f / "t");
  ASSERT_EQ(lines.size(), n);
  for (int64_t i = n - 1; i >= 0; i -= 1001) ASSERT_EQ(lines.line(i), std::to_string(i));
}

TEST(SlowStreaming, TokenFiles) {
  TempFolder f;
  const std::string path = f / "tokens";
  std::ofstream(path, std::ios::binary).seekp(1024 * kMega - 1).put('\x01');
  expect_small("TokenFile", peak_mb([&]() -> std::string {
                 const TokenFile t(path, {.dtype = DType::i16, .block = 1024});
                 std::vector<int64_t> rows(64);
                 for (int64_t i = 0; i + 64 <= t.size(); i += 512) {
                   for (int64_t k = 0; k < 64; ++k)
                     rows[static_cast<size_t>(k)] = (i + k) * 7919 % t.size();
                   t.get_many(rows);
                 }
                 return "";
               }));
}

TEST(SlowStreaming, TFRecords) {
  TempFolder f;
  const std::string path = f / "big.tfrecord", zeros(kMega - 16, '\0');
  const std::string record = io::tfrecord(zeros);
  {
    std::ofstream out(path, std::ios::binary);
    for (int64_t k = 0; k < 1024; ++k) {
      out << record.substr(0, 12);
      out.seekp((k + 1) * kMega - 4);
      out << record.substr(record.size() - 4);
    }
  }
  expect_small("TFRecordFile", peak_mb([&]() -> std::string {
                 const io::TFRecordFile file(path);
                 if (file.size() != 1024) return fmt::format("{} records", file.size());
                 for (int64_t i = 0; i < 1024; ++i)
                   if (file.record(i * 3 % 1024).size() != zeros.size())
                     return fmt::format("record {}", i);
                 return "";
               }));
}

TEST(SlowStreaming, TarShards) {
  TempFolder f;
  const std::string png = io::encode_png(full({3, 4, 5}, 7, DType::u8));
  {
    std::ofstream out(f / "s.tar", std::ios::binary);
    for (int64_t k = 0; k < 1000; ++k) {
      const std::string name = std::to_string(k);
      out << tar_entry(name + ".cls", "3\n") << tar_entry(name + ".png", png)
          << tar_head(name + ".pad", static_cast<size_t>(4 * kMega));
      out.seekp(4 * kMega, std::ios::cur);
    }
    out << std::string(1024, '\0');
  }
  expect_small("WebDataset", peak_mb([&]() -> std::string {
                 const WebDataset d({f / "s.tar"});
                 if (d.size() != 1000) return fmt::format("{} samples", d.size());
                 for (int64_t i = 0; i < d.size(); ++i) {
                   if (d.get(i).y.item<int64_t>() != 3) return "label";
                   if (i % 4 != 0) continue;
                   int64_t sum = 0;  // read all of the large entry
                   const std::string_view bytes = d.entry(i, "pad");
                   for (size_t k = 0; k < bytes.size(); k += 512) sum += bytes[k];
                   if (sum != 0) return "pad";
                 }
                 return "";
               }));
}

}  // namespace
}  // namespace tandem::data
