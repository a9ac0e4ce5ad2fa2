// SPDX-License-Identifier: Apache-2.0
// The machinery around oneDNN primitives; see plans_internal.h. Invariant: a primitive is created
// and run with one fixed number of oneDNN threads: one, except for the few calls that cannot be
// split into parts. Our threads are parallel_for's.
#ifdef TANDEM_HAVE_ONEDNN
#include "tandem/backend/cpu/onednn/plans_internal.h"

#include <atomic>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/view/strided_copy_internal.h"

extern "C" void omp_set_num_threads(int n);  // for this thread; oneDNN's own are libgomp's

namespace tandem::detail::onednn {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kMaxThreadPlans = 4096;

std::atomic<uint64_t> next_plan{1};

dnnl::stream& thread_stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

// One thread's memory objects for the arguments of a plan's primitives.
struct Bound {
  std::vector<std::vector<dnnl::memory>> memories;
  std::vector<std::vector<dnnl_exec_arg_t>> args;

  explicit Bound(const DnnlPlan& plan) {
    for (const Step& s : plan.steps) {
      auto& mem = memories.emplace_back();
      auto& arg = args.emplace_back();
      for (const Step::Arg& a : s.args) {
        mem.emplace_back(a.data.desc, engine(), nullptr);
        arg.push_back({a.id, mem.back().get()});
      }
    }
  }
};

Bound& bound_to(const DnnlPlan& plan) {
  thread_local std::unordered_map<uint64_t, Bound> bound;
  auto at = bound.find(plan.id);
  if (at != bound.end()) return at->second;
  if (bound.size() >= kMaxThreadPlans) bound.clear();
  return bound.emplace(plan.id, Bound(plan)).first->second;
}

char* address(const KernelCall& call, const Place& p) {
  void* base = p.kind == Place::input    ? call.in[p.index].data
               : p.kind == Place::output ? call.out[p.index].data
                                         : call.scratch;
  return static_cast<char*>(base) + p.offset;
}

void copy_step(const KernelCall& call, const Step& s) {
  const Data &from = s.args[0].data, &to = s.args[1].data;
  const Array& a = call.in[from.place.index];
  Dims strides = to.desc.get_strides();
  strided_copy(address(call, to.place), strides.data(), a.data, a.strides, a.shape, a.rank,
               size_of(a.dtype));
}

void check_status(dnnl_status_t status) {
  TD_CHECK(status == dnnl_success, Internal, "oneDNN reports status {}", static_cast<int>(status));
}

}  // namespace

const dnnl::engine& engine() {
  static const auto* e = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives all threads
  return *e;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return a;
}

bool computes(DType t) {
  const CpuFeatures& f = cpu_features();
  return t == DType::f32 || (t == DType::bf16 && f.bf16) || (t == DType::f16 && f.f16);
}

PlanBuilder::PlanBuilder(int threads) : plan_(std::make_shared<DnnlPlan>()) {
  plan_->id = next_plan.fetch_add(1);
  plan_->threads = threads;
  omp_set_num_threads(threads);
}

Type PlanBuilder::type_of(DType t) {
  return t == DType::f32 ? Type::f32 : t == DType::bf16 ? Type::bf16 : Type::f16;
}

Desc PlanBuilder::desc_of(DType t, const Dims& dims, const Dims& strides) {
  return Desc(dims, type_of(t), strides);
}

Data PlanBuilder::temporary(const Desc& desc) {
  Data d{{Place::scratch, 0, plan_->workspace}, desc};
  plan_->workspace += (desc.get_size() + kAlign - 1) / kAlign * kAlign;
  return d;
}

Data PlanBuilder::copied(int i, const Desc& desc) {
  Data to = temporary(desc);
  plan_->steps.push_back({dnnl::primitive(), {{0, input(i, desc)}, {1, to}}});
  return to;
}

void PlanBuilder::reorder(const Data& from, const Data& to) {
  dnnl::reorder::primitive_desc pd(engine(), from.desc, engine(), to.desc, user_scratchpad());
  add(pd, dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, 0);
}

Data PlanBuilder::as(const Data& d, const Desc& want) {
  if (d.desc == want) return d;
  Data to = temporary(want);
  reorder(d, to);
  return to;
}

void PlanBuilder::add(const dnnl::primitive_desc_base& pd, const dnnl::primitive& p,
                      std::vector<Step::Arg> args, double operations) {
  constexpr double kTiny = 1e5;
  if (operations > kTiny && std::string_view(pd.impl_info_str()).find("ref") != std::string::npos)
    throw dnnl::error(dnnl_unimplemented, "a reference implementation");
  if (pd.scratchpad_desc().get_size())
    args.push_back({DNNL_ARG_SCRATCHPAD, temporary(pd.scratchpad_desc())});
  plan_->steps.push_back({p, std::move(args)});
}

std::shared_ptr<const Plan> PlanBuilder::finish() {
  plan_->usable = true;
  return plan_;
}

void run_plan(const KernelCall& call) {
  const auto& plan = *static_cast<const DnnlPlan*>(call.plan);
  if (!plan.usable) {
    call.op.reference_fn(call);
    return;
  }
  omp_set_num_threads(plan.threads);
  Bound& bound = bound_to(plan);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    if (!s.primitive) {
      copy_step(call, s);
      continue;
    }
    auto& args = bound.args[i];
    for (size_t k = 0; k < s.args.size(); ++k)
      check_status(
          dnnl::dnnl_memory_set_data_handle(args[k].memory, address(call, s.args[k].data.place)));
    check_status(dnnl::dnnl_primitive_execute(s.primitive.get(), thread_stream().get(),
                                              static_cast<int>(args.size()), args.data()));
  }
}

}  // namespace tandem::detail::onednn

namespace tandem::detail {

void register_onednn_kernels() {
  register_onednn_matmul_kernels();
  register_onednn_conv_kernels();
  register_onednn_conv_weight_kernels();
}

std::string onednn_version() {
  const dnnl_version_t* v = dnnl::dnnl_version();
  const char* isa = "other";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      isa = "sse41";
      break;
    case dnnl::cpu_isa::avx:
      isa = "avx";
      break;
    case dnnl::cpu_isa::avx2:
      isa = "avx2";
      break;
    case dnnl::cpu_isa::avx2_vnni:
      isa = "avx2_vnni";
      break;
    case dnnl::cpu_isa::avx2_vnni_2:
      isa = "avx2_vnni_2";
      break;
    case dnnl::cpu_isa::avx512_core:
      isa = "avx512_core";
      break;
    case dnnl::cpu_isa::avx512_core_vnni:
      isa = "avx512_core_vnni";
      break;
    case dnnl::cpu_isa::avx512_core_bf16:
      isa = "avx512_core_bf16";
      break;
    case dnnl::cpu_isa::avx512_core_fp16:
      isa = "avx512_core_fp16";
      break;
    case dnnl::cpu_isa::avx512_core_amx:
      isa = "avx512_core_amx";
      break;
    case dnnl::cpu_isa::avx512_core_amx_fp16:
      isa = "avx512_core_amx_fp16";
      break;
    default:
      break;
  }
  return fmt::format("{}.{}.{}, {}", v->major, v->minor, v->patch, isa);
}

}  // namespace tandem::detail

#endif
