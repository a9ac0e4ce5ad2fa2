// SPDX-License-Identifier: Apache-2.0
// What the tests of ONNX export have in common.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::onnx {

// Files are synced one by one: in memory that takes no time.
struct InMemory {
  InMemory() {
    if (std::filesystem::is_directory("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
  }
};

class OnnxFiles : public testing::Test, InMemory {
 protected:
  void SetUp() override {
    init();
    manual_seed(1);
  }
  std::string path(const std::string& name = "m.onnx") const { return folder_ / name; }
  TempFolder folder_;
};

}  // namespace tandem::onnx
