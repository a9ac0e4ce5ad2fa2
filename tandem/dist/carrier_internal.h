// SPDX-License-Identifier: Apache-2.0
// Carriers, as engines use them: plugins that are looked for, opened and called.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/carrier.h"
#include "tandem/dist/engine.h"

namespace tandem::distributed {

/// A plugin, or why there is none.
struct Plugin {
  const TandemCarrier* carrier = nullptr;
  std::string path;     ///< where it was found
  std::string problem;  ///< what is wrong with it, or where it was looked for
};
/// The plugin libtandem_NAME.so of $TANDEM_CARRIERS (folders with ':' between them), or of the
/// folders beside the library. It stays open.
Plugin find_plugin(const std::string& name);

/// A group's carrier. Errors are Io with the carrier's own words.
class Carrier {
 public:
  Carrier(const TandemCarrier& plugin, const TandemCarrierGroup& group);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  const TandemCarrier& plugin() const { return plugin_; }
  const char* name() const { return plugin_.name; }
  /// Does it make this call, with the results that Engine promises?
  bool takes(const Call& call) const;
  /// Make it; `check` is called now and then while it waits, and may throw. Some carriers do not
  /// give way while they wait: they give up after `timeout` seconds without progress.
  void make(const Call& call, double timeout, const std::function<void()>& check);

 private:
  void make_piece(const TandemCarrierCall& c, const std::function<void()>& check);

  const TandemCarrier& plugin_;
  int size_;
  void* state_ = nullptr;
  bool failed_ = false;
  std::vector<float> wide_;  ///< f16 and bf16 while they are summed
};

}  // namespace tandem::distributed
