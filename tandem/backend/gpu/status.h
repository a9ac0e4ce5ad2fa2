// SPDX-License-Identifier: Apache-2.0
// Status: what every call of a driver gives. Drivers do not throw, so that one call can be tried
// again (out of memory), passed over (a clean-up) or turned into an Error with the op's name by its
// caller.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tandem/base/export.h"

namespace tandem::gpu {

enum class Code : uint8_t {
  ok,
  not_ready,      ///< an event that has not happened yet; not an error
  unavailable,    ///< no driver, no library, no such device, or an ability that it lacks
  bad_argument,   ///< a call that no device could do
  out_of_memory,  ///< of the device or of pinned host memory
  build,          ///< a kernel's text does not compile; the text holds the compiler's output
  launch,         ///< a kernel could not be started, or went wrong while it ran
  missing_wait,   ///< two operations without order touch the same bytes (fake driver)
  lost,           ///< the device is gone: nothing works until its context is opened again
  driver,         ///< anything else that the driver reports
};

/// "out_of_memory" ...
TD_API const char* to_string(Code code);

class [[nodiscard, gnu::visibility("default")]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }
  /// Throws Error with the text unless ok(): Memory for out_of_memory, Unsupported for unavailable,
  /// Value for bad_argument, Device for all others.
  void check() const;

 private:
  Code code_ = Code::ok;
  std::string text_;
};

/// Leave the function with this status unless it is ok.
#define TD_GPU_TRY(call)                                                       \
  do {                                                                         \
    if (::tandem::gpu::Status status_ = (call); !status_.ok()) return status_; \
  } while (0)

}  // namespace tandem::gpu
