// SPDX-License-Identifier: Apache-2.0
// A variable of the environment for a while.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace tandem {

class Environment {
 public:
  /// An empty value takes it out.
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value.empty())
      ::unsetenv(name);
    else
      ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace tandem
