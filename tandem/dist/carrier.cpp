// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/carrier_internal.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/fields.h"
#include "tandem/base/short_turns.h"
#include "tandem/tensor/strided.h"

namespace tandem::distributed {
namespace {

// Folders that may hold plugins: those of the user, then those beside what holds this function,
// which is the library or a program that it is linked into.
std::vector<std::string> plugin_folders() {
  const char* own = std::getenv("TANDEM_CARRIERS");
  std::vector<std::string> folders = words_of(own ? own : "", ':');
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&find_plugin), &info) != 0 && info.dli_fname) {
    const std::string file = std::filesystem::weakly_canonical(info.dli_fname);
    const size_t slash = file.rfind('/');
    const std::string here = slash == file.npos ? "." : file.substr(0, slash);
    for (const char* below : {"/tandem", "/lib/tandem", "/../lib/tandem"})
      folders.push_back(here + below);
  }
  folders.insert(folders.end(), {"/usr/local/lib/tandem", "/usr/lib/tandem"});
  return folders;
}

Plugin open_plugin(const std::string& name) {
  Plugin found;
  // A name of a file, and no way out of the folders.
  TD_CHECK(
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == name.npos && !name.empty(),
      Value, "an engine's name has lower-case letters, digits and '_', got '{}'", name);
  std::string folders;
  for (const std::string& folder : plugin_folders()) {
    folders += (folders.empty() ? "" : ", ") + folder;
    found.path = folder + "/libtandem_" + name + ".so";
    if (::access(found.path.c_str(), F_OK) != 0) continue;
    void* library = ::dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      found.problem = ::dlerror();
      return found;
    }
    const auto get = reinterpret_cast<TandemCarrierFunction>(::dlsym(library, "tandem_carrier"));
    const TandemCarrier* c = get ? get() : nullptr;
    if (c && c->abi == TANDEM_CARRIER_ABI)
      found.carrier = c;
    else
      found.problem = found.path + (c ? " was built for another version of the library"
                                      : " does not export tandem_carrier()");
    return found;
  }
  found.path.clear();
  found.problem = "there is no libtandem_" + name + ".so in " + folders;
  return found;
}

std::optional<int> type_of(DType t) {
  switch (t) {
    case DType::u8:
      return TANDEM_U8;
    case DType::i8:
      return TANDEM_I8;
    case DType::i16:
      return TANDEM_I16;
    case DType::i32:
      return TANDEM_I32;
    case DType::i64:
      return TANDEM_I64;
    case DType::f32:
      return TANDEM_F32;
    case DType::f64:
      return TANDEM_F64;
    default:
      return {};
  }
}
// The kinds and operations of engines come first, in the same order.
static_assert(static_cast<int>(CallKind::all_reduce) == TANDEM_ALL_REDUCE &&
              static_cast<int>(CallKind::reduce_scatter) == TANDEM_REDUCE_SCATTER &&
              static_cast<int>(CallKind::all_gather) == TANDEM_ALL_GATHER &&
              static_cast<int>(CallKind::broadcast) == TANDEM_BROADCAST &&
              static_cast<int>(CallKind::all_to_all) == TANDEM_ALL_TO_ALL);
static_assert(static_cast<int>(ReduceOp::sum) == TANDEM_SUM &&
              static_cast<int>(ReduceOp::min) == TANDEM_MIN &&
              static_cast<int>(ReduceOp::max) == TANDEM_MAX);
bool reduces(CallKind k) { return k == CallKind::all_reduce || k == CallKind::reduce_scatter; }

}  // namespace

Plugin find_plugin(const std::string& name) {
  static std::mutex lock;
  static std::map<std::string, Plugin> known;
  const std::lock_guard hold(lock);
  // What was missing may be there at the next try; what is open stays.
  if (const auto it = known.find(name); it != known.end()) return it->second;
  Plugin p = open_plugin(name);
  if (p.carrier) known.emplace(name, p);
  return p;
}

Carrier::Carrier(const TandemCarrier& plugin, const TandemCarrierGroup& group)
    : plugin_(plugin), size_(group.size) {
  char error[512] = "";
  {
    const ShortTurnsGuard its_threads;
    state_ = plugin_.open(&group, error, sizeof error);
  }
  TD_CHECK(state_, Io, "the ranks cannot meet by {}: {}", name(), error);
}

Carrier::~Carrier() { plugin_.close(state_, failed_); }

bool Carrier::takes(const Call& c) const {
  if (!(plugin_.kinds >> static_cast<int>(c.kind) & 1) || c.options.ordered) return false;
  // all_to_all and reduce_scatter are cut per rank, which pieces of a call are not.
  const bool cuts = c.kind == CallKind::all_reduce || c.kind == CallKind::broadcast;
  const auto most = static_cast<size_t>(plugin_.most_count);
  if (!cuts && most > 0 && std::max(c.in.bytes(), c.out.bytes()) > most) return false;
  if (!reduces(c.kind)) return true;
  // Libraries do not agree on the minimum of a NaN.
  if (is_floating(c.out.dtype) && c.op != ReduceOp::sum) return false;
  if (is_short_float(c.out.dtype)) return c.kind == CallKind::all_reduce;
  return type_of(c.out.dtype).has_value();
}

void Carrier::make(const Call& call, double timeout, const std::function<void()>& check) {
  TandemCarrierCall c{static_cast<int>(call.kind),
                      TANDEM_U8,
                      static_cast<int>(call.op),
                      call.peer,
                      call.in.data,
                      call.out.data,
                      0,
                      timeout};
  const bool widened = reduces(call.kind) && is_short_float(call.out.dtype);
  if (widened) {  // summed in f32, rounded once
    wide_.resize(static_cast<size_t>(call.out.count));
    tandem::detail::convert_elements(call.out.data, call.out.dtype, wide_.data(), DType::f32,
                                     call.out.count);
    c.type = TANDEM_F32;
    c.out = wide_.data();
    c.count = call.out.count;
  } else if (reduces(call.kind)) {
    c.type = *type_of(call.out.dtype);
    c.count = call.out.count;
  } else {
    const size_t parts = call.kind == CallKind::all_to_all ? static_cast<size_t>(size_) : 1;
    c.count = static_cast<int64_t>(
        (call.kind == CallKind::all_gather ? call.in : ConstArray(call.out)).bytes() / parts);
  }
  const int64_t most = plugin_.most_count > 0 ? plugin_.most_count : c.count;
  const size_t element = widened ? sizeof(float) : reduces(call.kind) ? size_of(call.out.dtype) : 1;
  for (int64_t at = 0, left = c.count; left > 0; left -= most, at += most) {
    TandemCarrierCall piece = c;
    piece.count = std::min(left, most);
    if (c.count > most) piece.out = static_cast<char*>(c.out) + static_cast<size_t>(at) * element;
    make_piece(piece, check);
  }
  if (widened)
    tandem::detail::convert_elements(wide_.data(), DType::f32, call.out.data, call.out.dtype,
                                     call.out.count);
}

void Carrier::make_piece(const TandemCarrierCall& c, const std::function<void()>& check) {
  char error[512] = "";
  failed_ = true;  // until it has ended
  int done = plugin_.begin(state_, &c, error, sizeof error);
  const Clock::time_point begin = Clock::now();
  for (int64_t tries = 0; done == 0; ++tries) {
    done = plugin_.test(state_, error, sizeof error);
    if (done != 0) break;
    // Other ranks need the processor; a call that takes long need not be watched closely.
    if (tries % 16 == 15) check();
    if (seconds_since(begin) < 0.0005)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  TD_CHECK(done > 0, Io, "{}: {}", name(), error);
  failed_ = false;
}

}  // namespace tandem::distributed
