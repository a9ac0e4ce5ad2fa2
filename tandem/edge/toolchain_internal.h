// SPDX-License-Identifier: Apache-2.0
// Compilers as other programs: found on PATH, run in a folder of their own that is removed.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tandem/base/files/private_folder.h"

namespace tandem::edge {

/// The path of the first of these programs that PATH has; "" for none.
std::string program_on_path(std::initializer_list<const char*> names);

/// A fresh folder that goes with this object. Throws Io where none can be made.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  /// What the program wrote. Throws Value with it where the program ends with another status than
  /// 0.
  std::string run(const std::vector<std::string>& words) const;

 private:
  PrivateFolder folder_;
};

}  // namespace tandem::edge
