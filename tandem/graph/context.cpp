// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/context.h"

#include <deque>
#include <mutex>
#include <unordered_map>

#include "tandem/tensor/device_memory.h"

namespace tandem {
namespace {

struct ScopeTable {
  std::mutex lock;
  std::deque<std::string> names{""};
  std::unordered_map<std::string_view, uint32_t> ids{{names[0], 0}};
};
ScopeTable& scopes() {
  static ScopeTable* t = new ScopeTable;  // outlives every thread
  return *t;
}

}  // namespace

Context& context() {
  static thread_local Context c;
  return c;
}

uint32_t intern_scope(std::string_view path) {
  ScopeTable& t = scopes();
  std::lock_guard hold(t.lock);
  if (auto at = t.ids.find(path); at != t.ids.end()) return at->second;
  t.names.emplace_back(path);
  uint32_t id = static_cast<uint32_t>(t.names.size() - 1);
  t.ids.emplace(t.names.back(), id);
  return id;
}

const std::string& scope_path(uint32_t id) {
  ScopeTable& t = scopes();
  std::lock_guard hold(t.lock);
  return t.names[id];
}

SourceLocation user_line(SourceLocation loc) {
  if (loc.is_user()) return loc;
  for (const ScopeFrame* f = context().scope; f; f = f->parent)
    if (f->loc.is_user()) return f->loc;
  return loc;
}

const std::string& current_layer() {
  for (const ScopeFrame* f = context().scope; f; f = f->parent)
    if (f->path) return scope_path(f->path);
  return scope_path(0);
}

Error with_place(const Error& e, const char* op, SourceLocation loc) {
  return Error(e.kind(), e.message(), e.hint(), e.op().empty() && op ? op : e.op(),
               e.loc().file && e.loc().is_user() ? e.loc() : user_line(loc),
               e.layer().empty() ? current_layer() : e.layer());
}

Error renamed(const Error& e, const char* op, SourceLocation loc) {
  return with_place(Error(e.kind(), e.message(), e.hint(), op, e.loc(), e.layer()), op, loc);
}

void DeviceGuard::check_device(Device device) { device_memory(device); }

bool is_grad_enabled() { return context().grad_enabled; }

DetectAnomalyGuard::DetectAnomalyGuard(bool on) : old_(context().slow) {
  if (on)
    context().slow |= kAnomaly;
  else
    context().slow &= ~uint32_t{kAnomaly};
}
DetectAnomalyGuard::~DetectAnomalyGuard() {
  context().slow = (context().slow & ~uint32_t{kAnomaly}) | (old_ & kAnomaly);
}

AutocastGuard::AutocastGuard(DType dtype, bool on)
    : old_(context().slow), old_dtype_(context().autocast_dtype) {
  TD_CHECK(is_short_float(dtype), DType, "AutocastGuard expects bfloat16 or float16, got {}",
           to_string(dtype));
  context().autocast_dtype = dtype;
  if (on)
    context().slow |= kAutocast;
  else
    context().slow &= ~uint32_t{kAutocast};
}
AutocastGuard::~AutocastGuard() {
  context().slow = (context().slow & ~uint32_t{kAutocast}) | (old_ & kAutocast);
  context().autocast_dtype = old_dtype_;
}

HookGuard::HookGuard(OpHook& hook) {
  context().hooks.push_back(&hook);
  context().slow |= kHooks;
}
HookGuard::~HookGuard() {
  context().hooks.pop_back();
  if (context().hooks.empty()) context().slow &= ~uint32_t{kHooks};
}

}  // namespace tandem
