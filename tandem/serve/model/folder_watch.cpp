// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/folder_watch_internal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"

namespace tandem::serve {

FolderWatch::FolderWatch()
    : notify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_ >= 0) return;
  if (notify_ >= 0) ::close(notify_);
  TD_FAIL(Io, "the folder of models cannot be watched: no more files can be opened");
}

FolderWatch::~FolderWatch() {
  if (notify_ >= 0) ::close(notify_);
  ::close(wake_);
}

bool FolderWatch::add(const std::vector<std::string>& folders) {
  constexpr uint32_t kChanges = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY |
                                IN_CLOSE_WRITE | IN_ATTRIB | IN_ONLYDIR;
  missed_ = false;
  bool fresh = false;
  for (const std::string& folder : folders) {
    if (notify_ < 0) break;
    // One that has gone meanwhile says so by a change of the folder that it was in.
    const int at = ::inotify_add_watch(notify_, folder.c_str(), kChanges);
    missed_ = missed_ || at < 0;
    fresh = (at >= 0 && known_.insert(at).second) || fresh;
  }
  return fresh;
}

void FolderWatch::drain() const {
  std::array<char, 4096> room = {};
  while (notify_ >= 0 && ::read(notify_, room.data(), room.size()) > 0) {}
}

void FolderWatch::wait(double seconds, bool for_change) {
  const auto begin = Clock::now();
  for (;;) {
    const double left = seconds - seconds_since(begin);
    if (stopped() || left <= 0) return;
    std::array<pollfd, 2> of = {{{wake_, POLLIN, 0}, {notify_, POLLIN, 0}}};
    const bool two = for_change && notify_ >= 0;
    const auto most = static_cast<int>(std::ceil(std::min(left, 1e6) * 1e3));
    if (::poll(of.data(), two ? 2 : 1, most) > 0 && two && of[1].revents != 0) return drain();
  }
}

void FolderWatch::wait_for_change(double seconds) { wait(seconds, true); }
void FolderWatch::pause(double seconds) {
  wait(seconds, false);
  drain();
}

void FolderWatch::stop() noexcept {
  stopped_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

}  // namespace tandem::serve
