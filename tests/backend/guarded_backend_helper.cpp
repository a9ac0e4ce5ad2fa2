// SPDX-License-Identifier: Apache-2.0
#include "tests/backend/guarded_backend_helper.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tandem/codegen/pointwise.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/run/kernel_choice.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"

namespace tandem::guarded {
namespace {

// ---- memory

constexpr size_t kPage = 4096;
constexpr size_t in_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Blocks by address. Freed ones stay without access for ever; their addresses are not used again
// until many others were freed.
struct Memory {
  std::mutex lock;
  std::map<char*, size_t> blocks;
  Work work;
  DeviceError error;
};
Memory& memory() {
  static auto* m = new Memory;
  return *m;
}

// The block that holds [p, p + bytes); every access of the backend is checked by this.
std::pair<char*, size_t> block_of(const void* p, size_t bytes) {
  Memory& m = memory();
  std::lock_guard hold(m.lock);
  auto* at = static_cast<char*>(const_cast<void*>(p));
  auto after = m.blocks.upper_bound(at);
  TD_CHECK(after != m.blocks.begin(), Internal, "no block of the device holds this address");
  --after;
  TD_CHECK(at + bytes <= after->first + after->second, Internal,
           "{} bytes at offset {} of a block of {}", bytes, at - after->first, after->second);
  return {after->first, in_pages(after->second)};
}

// Opens the blocks of operands while it lives.
class Open {
 public:
  Open() = default;
  ~Open() {
    for (const auto& [p, n] : open_) mprotect(p, n, PROT_NONE);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  void add(const void* p, size_t bytes) {
    const auto block = block_of(p, bytes);
    if (std::find(open_.begin(), open_.end(), block) != open_.end()) return;
    TD_CHECK(mprotect(block.first, block.second, PROT_READ | PROT_WRITE) == 0, Internal,
             "mprotect failed");
    open_.push_back(block);
  }
  void add(const Array& a) {
    if (!a.data || a.numel == 0) return;
    int64_t last = 0;
    for (int d = 0; d < a.rank; ++d) last += (a.shape[d] - 1) * a.strides[d];
    add(a.data, static_cast<size_t>(last + 1) * size_of(a.dtype));
  }

 private:
  std::vector<std::pair<char*, size_t>> open_;
};

void* allocate(size_t bytes, int, Stream) {
  void* p = mmap(nullptr, in_pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TD_CHECK(p != MAP_FAILED, Memory, "the guarded device has no {} bytes", bytes);
  std::lock_guard hold(memory().lock);
  memory().blocks[static_cast<char*>(p)] = bytes;
  return p;
}
void deallocate(void* p, size_t bytes, int, Stream) noexcept {
  std::lock_guard hold(memory().lock);
  memory().blocks.erase(static_cast<char*>(p));
  munmap(p, in_pages(bytes));
}

void count_copy() {
  std::lock_guard hold(memory().lock);
  ++memory().work.copies;
}
void copy_in(void* to, const void* host, size_t bytes, int, Stream) {
  Open open;
  open.add(to, bytes);
  std::memcpy(to, host, bytes);
  count_copy();
}
void copy_out(void* host, const void* from, size_t bytes, int, Stream) {
  Open open;
  open.add(from, bytes);
  std::memcpy(host, from, bytes);
  count_copy();
}
void copy_within(void* to, const void* from, size_t bytes, int, Stream) {
  Open open;
  open.add(to, bytes);
  open.add(from, bytes);
  std::memmove(to, from, bytes);
  count_copy();
}
void fill_bytes(void* to, uint8_t value, size_t bytes, int, Stream) {
  Open open;
  open.add(to, bytes);
  std::memset(to, value, bytes);
}
void synchronize_all(int) {}

bool take_error(int, DeviceError& error) {
  std::lock_guard hold(memory().lock);
  error = std::exchange(memory().error, DeviceError{});
  return error.code != 0;
}

// ---- kernels

// Opens the operands of a call and counts it; as a launch would, it takes what the call says of the
// device.
class Launch : public Open {
 public:
  explicit Launch(const KernelCall& c) {
    TD_CHECK(!is_host(c.device), Internal, "a kernel of the guarded device got a call of the host");
    for (int i = 0; i < c.n_in; ++i) add(c.in[i]);
    for (int i = 0; i < c.n_out; ++i) add(c.out[i]);
    std::lock_guard hold(memory().lock);
    ++memory().work.kernels;
    memory().work.stream = c.stream;
  }
};

// The device computes with the host's loops: what is proved is who may touch which bytes.
void run_reference(const KernelCall& c) {
  const Launch launch(c);
  c.op.reference_fn(c);
}
void run_pointwise(const KernelCall& c) {
  const Launch launch(c);
  codegen::run_pointwise(c);
}
void run_loop(const ScalarProgram& program, const KernelCall& c) {
  const Launch launch(c);
  codegen::run_program(program, c.in, c.n_in, c.out, c.n_out, nullptr, true);
}

// As the host multiplies, with its plan, and scratch on the device.
KernelCall as_host(const KernelCall& c) {
  KernelCall h = c;
  h.device = cpu;
  h.stream = {};
  return h;
}
struct MatmulPlan : Plan {
  KernelChoice choice;
  std::shared_ptr<const Plan> inner;
};
bool has_host_kernel(const KernelCall& c) { return find_kernel(as_host(c), cpu.kind) != nullptr; }
bool matmul_layout(const KernelCall& c, int output, Strides& strides) {
  const Kernel* k = find_kernel(as_host(c), cpu.kind);
  return k->layout && k->layout(as_host(c), output, strides);
}
std::shared_ptr<const Plan> prepare_matmul(const KernelCall& c) {
  auto plan = std::make_shared<MatmulPlan>();
  plan->choice = choose_kernel(as_host(c));
  if (plan->choice.kernel->prepare) plan->inner = plan->choice.kernel->prepare(as_host(c));
  plan->workspace = plan->inner ? plan->inner->workspace : 0;
  return plan;
}
void run_matmul(const KernelCall& c) {
  Launch launch(c);
  const auto& plan = *static_cast<const MatmulPlan*>(c.plan);
  if (plan.workspace) launch.add(c.scratch, plan.workspace);
  KernelCall h = as_host(c);
  h.plan = plan.inner.get();
  plan.choice.kernel->run(h);
}

// Reports like a device: into its own word, which the host finds when it reads next.
void run_index(const KernelCall& c) {
  const Launch launch(c);
  ErrorWord found;
  KernelCall h = as_host(c);
  h.error = &found;
  c.op.reference_fn(h);
  if (found.code == 0) return;
  std::lock_guard hold(memory().lock);
  if (memory().error.code == 0) memory().error = {found.code, c.ticket, found.value};
}

DeviceKind make(const char* name, bool plain) {
  init();
  Backend b;
  b.memory = {name,     1,           allocate,   deallocate,     copy_in,
              copy_out, copy_within, fill_bytes, synchronize_all};
  b.whole_composites = !plain;
  b.run_loop = plain ? run_loop : nullptr;
  b.take_error = take_error;
  const DeviceKind kind = register_backend(b);
  register_kernel(kind, op::copy, {nullptr, nullptr, nullptr, run_reference});
  register_kernel(kind, op::fill, {nullptr, nullptr, nullptr, run_reference});
  register_kernel(kind, op::add, {nullptr, nullptr, nullptr, run_pointwise});
  register_kernel(kind, op::matmul, {has_host_kernel, matmul_layout, prepare_matmul, run_matmul});
  register_kernel(kind, op::index, {nullptr, nullptr, nullptr, run_index});
  return kind;
}

}  // namespace

Device device() {
  static const DeviceKind kind = make("guarded", false);
  return {kind, 0};
}
Device plain_device() {
  static const DeviceKind kind = make("plain_guarded", true);
  return {kind, 0};
}

Work work() {
  std::lock_guard hold(memory().lock);
  return memory().work;
}
void reset_work() {
  std::lock_guard hold(memory().lock);
  memory().work = {};
}
int blocks() {
  std::lock_guard hold(memory().lock);
  return static_cast<int>(memory().blocks.size());
}

}  // namespace tandem::guarded
