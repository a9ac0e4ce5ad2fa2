// SPDX-License-Identifier: Apache-2.0
// The access log: a line for each request. Handlers leave what it says in a queue; a thread of its
// own writes it. A disk that is full, or slow, costs lines and never answers: they are counted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/serve/http/message.h"

namespace tandem::serve {

struct JobResult;

struct AccessLogOptions {
  std::string path = "";          ///< "-": the standard output; "": none
  std::string format = "json";    ///< or combined, as web servers have it
  double most_bytes = 1 << 30;    ///< beyond it the file becomes PATH.1, and a new one begins
  size_t most_waiting = 1 << 16;  ///< lines that wait to be written
};

/// What a line says. Neither bodies nor headers with keys nor queries are part of it.
struct AccessEntry {
  double at = 0;  ///< when the request was complete (of a stream: its head), as unix_time()
  std::string remote, protocol, method, path;
  std::string model = "", trace = "", request_id = "", agent = "";
  int64_t version = 0;
  int status = 200;  ///< 499: the client went away before the answer
  std::string grpc_status = "";
  uint64_t bytes_in = 0, bytes_out = 0;
  double seconds = 0, queue_seconds = 0, compute_seconds = 0;  ///< sums, where a model ran often
  int64_t batch = 0, prompt_tokens = 0, new_tokens = 0;        ///< 0: it does not apply
};
/// With the line's end.
TD_API std::string json_line(const AccessEntry& e);
TD_API std::string combined_line(const AccessEntry& e);

class TD_API AccessLog {
 public:
  /// Makes the file where it is not there. Throws Io, and Value for another format.
  explicit AccessLog(AccessLogOptions options);
  /// Writes what waits.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  /// From any thread; never waits for the file.
  void add(AccessEntry entry) noexcept;
  /// Opens the file again, which something has moved away.
  void reopen() noexcept { reopens_.fetch_add(1); }
  /// Lines that could not be written.
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  void work();
  void write(const std::vector<AccessEntry>& entries);
  void open();
  void turn_over();
  void put(std::string_view text);
  void lose(size_t lines, const std::string& why);

  AccessLogOptions options_;
  int fd_ = -1;
  bool regular_ = false;  ///< it is a file, which grows
  bool torn_ = false;     ///< the last line was written in part
  bool failing_ = false;
  double bytes_ = 0;
  int reopened_ = 0;
  std::atomic<int> reopens_{0};
  std::atomic<uint64_t> lost_{0};
  std::mutex lock_;
  std::condition_variable ready_;
  std::vector<AccessEntry> waiting_;
  bool ends_ = false;
  std::thread thread_;
};

/// A request until its line is complete.
class TD_API AccessRecord {
 public:
  /// `log` outlives this.
  AccessRecord(const HttpRequest& request, AccessLog& log);
  /// A model answered; of several the line names the last.
  void ran(const std::string& model, int64_t version, const JobResult& r);
  /// A language model continues texts, and has ended them.
  void names(const std::string& model, int64_t version);
  void texts(int64_t prompt_tokens, int64_t new_tokens);
  /// What the client calls its request in the body; a header of that meaning counts more.
  void called(std::string_view id);
  void traced(std::string_view trace);
  /// A piece of the answer; the last completes the line. `received`: bytes of a body that came in
  /// pieces.
  void answer(const HttpResponse& piece, bool last, bool gone, uint64_t received);

 private:
  AccessLog& log_;
  Clock::time_point begin_ = Clock::now();
  std::mutex lock_;
  bool begun_ = false, done_ = false;
  AccessEntry entry_;
};

}  // namespace tandem::serve
