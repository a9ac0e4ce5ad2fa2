// SPDX-License-Identifier: Apache-2.0
#include "tests/dist/deeds_helper.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

void hang() {
  for (;;) ::usleep(1000);
}
void crash() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
}
}  // namespace

const std::map<std::string, Deed>& deeds() {
  static const std::map<std::string, Deed> all{
      {"none", [](Engine&) {}},
      {"kill", [](Engine&) { ::raise(SIGKILL); }},
      {"segv", [](Engine&) { crash(); }},
      {"stop", [](Engine&) { ::raise(SIGSTOP); }},
      {"hang", [](Engine&) { hang(); }},
      {"exit 0", [](Engine&) { std::exit(0); }},
      {"exit 7", [](Engine&) { ::_exit(7); }},
      {"throw", [](Engine&) { TD_FAIL(Value, "the data ends here"); }},
      {"abort", [](Engine& e) { e.abort("the disk is full"); }},
      {"other call",
       [](Engine& e) {
         float x = 0;
         e.broadcast({&x, 1, DType::f32}, 0, {"the rate"}).wait();
       }},
      {"one call more",
       [](Engine& e) {
         float x = 0;
         e.all_reduce({&x, 1, DType::f32}, ReduceOp::sum, {"the loss"}).wait();
       }},
      {"backward throws",
       [](Engine&) {
         const Tensor x = ones({2}).requires_grad_();
         TD_FAIL(Value, "a hook has thrown");
       }},
      {"deaf",  // and does not end at SIGTERM
       [](Engine&) {
         ::signal(SIGTERM, SIG_IGN);
         hang();
       }},
      {"sleep",  // of the whole process, as on a machine that is overloaded
       [](Engine&) {
         const pid_t self = ::getpid();
         if (::fork() == 0) {
           ::kill(self, SIGSTOP);
           ::usleep(1000000);
           ::kill(self, SIGCONT);
           ::_exit(0);
         }
       }},
      {"child",  // leaves a process of its own
       [](Engine&) {
         if (::fork() == 0) hang();
         ::_exit(9);
       }},
      {"child in a group",  // as compilers are started
       [](Engine&) {
         if (::fork() == 0) {
           ::setpgid(0, 0);
           hang();
         }
         ::_exit(9);
       }},
  };
  return all;
}

}  // namespace tandem::distributed
