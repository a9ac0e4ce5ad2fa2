// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/status.h"

#include "tandem/base/error.h"

namespace tandem::gpu {

const char* to_string(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::not_ready:
      return "not_ready";
    case Code::unavailable:
      return "unavailable";
    case Code::bad_argument:
      return "bad_argument";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::build:
      return "build";
    case Code::launch:
      return "launch";
    case Code::missing_wait:
      return "missing_wait";
    case Code::lost:
      return "lost";
    case Code::driver:
      return "driver";
  }
  return "unknown";
}

void Status::check() const {
  switch (code_) {
    case Code::ok:
      return;
    case Code::unavailable:
      TD_FAIL(Unsupported, "{}", text_);
    case Code::bad_argument:
      TD_FAIL(Value, "{}", text_);
    case Code::out_of_memory:
      TD_FAIL(Memory, "{}", text_);
    default:
      TD_FAIL(Device, "{}", text_);
  }
}

}  // namespace tandem::gpu
