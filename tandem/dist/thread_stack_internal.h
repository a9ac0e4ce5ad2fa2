// SPDX-License-Identifier: Apache-2.0
// Where a thread of this process is: for the text about a rank that hangs.
#pragma once

#include <sys/types.h>

#include <string>

namespace tandem::distributed {

/// The number of this thread, by which the system knows it.
pid_t this_thread();

/// From now on stack_of() may be called: what it needs is loaded here, outside of any handler.
void prepare_stacks();

/// The innermost `frames` calls of a thread of this process, one a line, "function+0x1f (file)", or
/// "file+0x1234" where the file is stripped of names. The thread is interrupted by a realtime
/// signal that nobody has taken for a few microseconds; a sleep of it may end early.
/// "" where it has ended, blocks the signal, or does not answer within `seconds`.
std::string stack_of(pid_t thread, int frames, double seconds);

}  // namespace tandem::distributed
