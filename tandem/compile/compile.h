// SPDX-License-Identifier: Apache-2.0
// compile(fn): the same code as one planned graph, which gives the same bits as the code itself,
// always, unless CompileOptions::same_bits is false. The first call for a set of dtypes and shapes
// runs fn once on symbolic tensors; forward, backward() and optimizer steps land in one program,
// which later calls run. Parameters, buffers, moments and learning rates are bound by reference.
#pragma once

#include <functional>
#include <memory>

#include "tandem/graph/signature.h"
#include "tandem/graph/trace.h"

namespace tandem {

class Executable;

/// Dimension `dim` of every tensor argument, or of argument `argument` alone, may differ from call
/// to call without a new trace. Dimensions of one name are equal.
struct DynamicDim {
  DynamicDim(int64_t dim, std::string name) : dim(dim), name(std::move(name)) {}
  DynamicDim(int64_t argument, int64_t dim, std::string name)
      : argument(argument), dim(dim), name(std::move(name)) {}
  int64_t argument = -1;  ///< number of the tensor among all in the arguments, -1 for all
  int64_t dim = 0;
  std::string name;
};

/// How a compiled function may branch.
enum class Control : uint8_t {
  traced,  ///< one program: reading a value throws; use where(), cond(), while_loop(), scan()
  /// fn runs at every call, C++ effects and all; what it computes up to a read of a value (item(),
  /// bool, a size that depends on data) runs as one compiled segment. Cells and gradients are
  /// written when fn has ended: an exception undoes all.
  eager,
};

struct CompileOptions {
  std::vector<DynamicDim> dynamic = {};
  /// Store gradients that an optimizer has used in the same call, too.
  bool keep_grads = false;
  /// Most bytes that one call may hold (Executable::peak_bytes(): cells and arguments not counted);
  /// 0: no limit. To stay below it values of the forward pass are recomputed in the backward
  /// one; no number changes. Throws Memory where that is not enough.
  size_t memory_limit = 0;
  /// Most specialisations (traces and sizes) kept; the one not used for longest goes.
  int cache_size = 32;
  Control control = Control::traced;
  /// Name for messages.
  std::string name = "fn";
  /// Run fn op by op, too, at every call, and throw Value where the program does something else:
  /// TANDEM_CHECK_COMPILE=1 sets it for every function. For debugging: slower than not compiling.
  bool check = false;
  /// Results are those of fn run op by op, to the bit. false allows what rounds differently, for
  /// faster inference: convolutions whose weights stay from call to call read them packed and take
  /// in the batch norms that follow them, a softmax between two matmuls becomes one attention
  /// kernel, activations are done on the tiles of a matmul. The results then differ as those of two
  /// libraries do.
  bool same_bits = true;
};

/// Counts of what a compiled function has done.
struct CompileStats {
  int64_t traces = 0;  ///< runs of fn on symbolic tensors
  int64_t plans = 0;   ///< programs lowered (one per trace and set of sizes)
  int64_t calls = 0;
  int64_t looks = 0;     ///< runs of fn to compare its trace with a new one
  int64_t segments = 0;  ///< of Control::eager: segments run; `plans` counts the compiled ones
};

namespace detail {

/// The part of a compiled function that does not depend on its types.
class TD_API CompiledCore {
 public:
  /// Runs the user's function on `args`; appends what is not a tensor in its result to `key`.
  using Body = FunctionRef<std::vector<Tensor>(std::span<const Tensor> args, std::string& key)>;

  CompiledCore(CompileOptions options, SourceLocation loc);
  ~CompiledCore();
  CompiledCore(const CompiledCore&) = delete;
  CompiledCore& operator=(const CompiledCore&) = delete;

  /// Run; gives the result's tensors and its key. `callable` is the user's function as an object,
  /// with what it captures.
  std::vector<Tensor> call(const CallParts& args, Body body, std::span<const std::byte> callable,
                           std::string& result_key);
  CompileStats stats() const;
  /// Of the specialisation used last; nullptr before the first call.
  Ref<Executable> executable() const;
  /// The graph that it was traced to; nullptr before the first call.
  Ref<Graph> graph() const;
  void clear();

 private:
  std::vector<Tensor> call_program(const CallParts& args, Body body,
                                   std::span<const std::byte> callable, std::string& result_key);
  std::vector<Tensor> call_in_segments(const CallParts& args, Body body, std::string& result_key);
  struct State;
  std::unique_ptr<State> state_;
};

/// A floating number given for a parameter that is a Tensor: a 0-d f64 tensor, so that another
/// number needs no trace. Given for a parameter that is a number it is part of the key.
TD_API Tensor number_slot(double v);

template <class A, bool slot>
using SlotOr = std::conditional_t<slot && std::is_floating_point_v<A>, Tensor, A>;
template <class F, unsigned mask, class Index, class... A>
struct WithSlots;
template <class F, unsigned mask, size_t... I, class... A>
struct WithSlots<F, mask, std::index_sequence<I...>, A...> {
  using Args = std::tuple<SlotOr<A, (mask >> I & 1) != 0>...>;
  static constexpr unsigned kFloats = ((std::is_floating_point_v<A> ? 1U << I : 0U) | ... | 0U);
  static constexpr bool kFits =
      std::is_invocable_v<F&, typename Packed<SlotOr<A, (mask >> I & 1) != 0>>::Type...>;
};
template <class F, unsigned mask, class... A>
constexpr auto choose_slots() {
  using Try = WithSlots<F, mask, std::index_sequence_for<A...>, A...>;
  if constexpr (Try::kFits)
    return static_cast<typename Try::Args*>(nullptr);
  else if constexpr (mask == Try::kFloats)  // none fits: the call says why
    return static_cast<std::tuple<A...>*>(nullptr);
  else
    return choose_slots<F, (mask - Try::kFloats) & Try::kFloats, A...>();
}
/// The arguments as fn takes them: the fewest floats as slots with which it can be called.
template <class F, class... A>
using ArgsOf = std::remove_pointer_t<decltype(choose_slots<F, 0, A...>())>;

}  // namespace detail

/// A compiled function: called as fn is. Copies share what was compiled.
template <class F>
class Compiled {
 public:
  Compiled(F fn, CompileOptions options, SourceLocation loc)
      : fn_(std::make_shared<F>(std::move(fn))),
        core_(std::make_shared<detail::CompiledCore>(std::move(options), loc)) {}

  /// Throws what fn throws, and Unsupported (with the user's line) where fn reads a value, uses a
  /// tensor from outside, or changes what a trace cannot follow.
  template <class... A>
  auto operator()(const A&... args) {
    using Args = detail::ArgsOf<F, std::decay_t<A>...>;
    using Rebuilt = typename detail::Packed<Args>::Type;
    using Result = decltype(std::apply(*fn_, std::declval<Rebuilt>()));
    detail::CallParts flat;
    flatten(static_cast<Args*>(nullptr), flat, args...);
    const auto body = [&](std::span<const Tensor> in, std::string& key) {
      detail::CallReader u{in.data(), flat.key.data()};
      Rebuilt rebuilt = detail::Packed<Args>::rebuild(u);
      if constexpr (std::is_void_v<Result>) {
        std::apply(*fn_, std::move(rebuilt));
        return std::vector<Tensor>();
      } else {
        detail::CallParts out;
        using Value = std::decay_t<Result>;
        detail::Packed<Value>::flatten(std::apply(*fn_, std::move(rebuilt)), out);
        key = std::move(out.key);
        return std::move(out.tensors);
      }
    };
    std::string key;
    const std::span callable(reinterpret_cast<const std::byte*>(fn_.get()), sizeof(F));
    std::vector<Tensor> out = core_->call(flat, body, callable, key);
    if constexpr (!std::is_void_v<Result>) {
      detail::CallReader u{out.data(), key.data()};
      return detail::Packed<std::decay_t<Result>>::rebuild(u);
    }
  }

  CompileStats stats() const { return core_->stats(); }
  /// Of the call made last.
  Ref<Executable> executable() const { return core_->executable(); }
  Ref<Graph> graph() const { return core_->graph(); }
  /// Forget everything that was traced.
  void clear() { core_->clear(); }

 private:
  template <class... S, class... A>
  static void flatten(std::tuple<S...>*, detail::CallParts& flat, const A&... args) {
    [[maybe_unused]] const auto one = [&flat](auto* as, const auto& v) {
      using T = std::remove_pointer_t<decltype(as)>;
      if constexpr (std::is_floating_point_v<std::decay_t<decltype(v)>> && detail::kIsHandle<T>)
        detail::Packed<Tensor>::flatten(detail::number_slot(static_cast<double>(v)), flat);
      else
        detail::Packed<T>::flatten(v, flat);
    };
    (one(static_cast<S*>(nullptr), args), ...);
  }

  std::shared_ptr<F> fn_;
  std::shared_ptr<detail::CompiledCore> core_;
};

/// Compile a function, a lambda, or a module (its forward).
///
/// Read at every call: Params, Buffers, gradients, the optimizer's numbers, the random generator.
/// Retraced when they differ: dtypes, shapes and numbers of the arguments, training modes,
/// requires_grad, autocast, the shapes and dtypes of Params and Buffers.
/// A plain number that fn takes from outside is frozen in the trace. Two things watch over it:
/// - a variable on the stack of the calling thread that fn captures by reference (a number, or the
///   first 64 bytes of a struct) is compared at every call: a change counts at once;
/// - all else (globals, members of objects on the heap, entries of vectors, branches on them) shows
///   when fn is traced again, at the 2nd, 4th, 8th, 16th ... call: then a warning names the op and
///   the calls in between have run with the old number.
/// What changes often is an argument (a float given for a Tensor parameter needs no new trace) or a
/// Buffer. TANDEM_CHECK_COMPILE=1 (CompileOptions::check) compares every call with fn op by op.
/// So fn is run more than once: what it captures by reference must live as long as the compiled
/// function, and its other effects (counters, prints) happen at each of these runs.
template <class F>
auto compile(F fn, CompileOptions options = {}, SourceLocation loc = SourceLocation::here()) {
  if constexpr (requires(F & f) { f.state_dict(); }) {
    auto forward = [net = std::move(fn)](auto&&... args) mutable {
      return net(std::forward<decltype(args)>(args)...);
    };
    return Compiled<decltype(forward)>(std::move(forward), std::move(options), loc);
  } else {
    return Compiled<F>(std::move(fn), std::move(options), loc);
  }
}

}  // namespace tandem
