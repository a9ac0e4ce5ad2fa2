// SPDX-License-Identifier: Apache-2.0
// Parameters by all of their names, tied ones too, as in Module::state_dict().
#pragma once

#include <map>
#include <string>

#include "tandem/nn/module.h"

namespace tandem::distributed::detail {

inline std::map<std::string, Param> all_names(nn::Module& net) {
  struct AllNames : nn::MemberVisitor {
    std::map<std::string, Param> found;
    std::string path;
    void param(const std::string& n, Param& p) override {
      if (p.defined()) found[path + n] = p;
    }
    void buffer(const std::string&, Buffer&) override {}
    void child(const std::string& n, nn::Module& m) override {
      const std::string before = path;
      path += n + ".";
      m.visit_members(*this);
      path = before;
    }
  } all;
  net.visit_members(all);
  return all.found;
}

}  // namespace tandem::distributed::detail
