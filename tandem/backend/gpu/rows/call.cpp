// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/base/log.h"

namespace tandem::gpu {

bool has_f64(const KernelCall& c) { return engine_of(c.device).info().f64; }

bool has_types(const KernelCall& c) { return has_f64(c); }

void argue_array(Arguments& a, const Array& x) { a.address(address_of(x.data), span_of(x)); }
void argue_nothing(Arguments& a) { a.address(0, 0); }

uint64_t variant_of(const Walk& walk, DType t, uint64_t other) {
  return (other << 16 | static_cast<uint64_t>(t)) << 8 | walk.shape_key();
}

void declare_reports(KernelSource& k) {
  k.parameters.push_back({Parameter::out, DType::i32, "td_error"});
  k.parameters.push_back({Parameter::value, DType::i32, "td_ticket"});
}

void argue_reports(Arguments& a, Engine& e, const KernelCall& c) {
  a.address(e.error_word(), Engine::kErrorBytes).value(static_cast<int32_t>(c.ticket));
}

void say_library_is_off(std::once_flag& said, const Engine& e, const char* rows,
                        const Status& status) {
  if (e.info().compute_major == 0) return;
  std::call_once(said, [&] {
    log_warning("{} on {} run by kernels without tensor cores: {}", rows, to_string(e.device()),
                status.text());
  });
}

std::string filled_in(std::string text,
                      std::initializer_list<std::pair<const char*, std::string>> parts) {
  for (const auto& [name, part] : parts) {
    const std::string mark = fmt::format("@{}@", name);
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += part.size()) {
      text.replace(at, mark.size(), part);
    }
  }
  return text;
}

std::string loaded(const std::string& x, DType t) {
  if (t == DType::f16) return fmt::format("tdo_from_f16((tdm_u16){})", x);
  if (t == DType::bf16) return fmt::format("tdo_from_bf16((tdm_u16){})", x);
  return x;
}

std::string stored(const std::string& x, DType t) {
  if (t == DType::f16) return fmt::format("(td_i16)tdo_to_f16({})", x);
  if (t == DType::bf16) return fmt::format("(td_i16)tdo_to_bf16({})", x);
  return x;
}

std::string stored_i64(const std::string& x, DType t) {
  if (t == DType::b8) return x + " != 0";
  if (is_floating(t)) return stored_f64(fmt::format("(td_f64)({})", x), t);
  return fmt::format("({})({})", td_type(t), x);
}

std::string stored_f64(const std::string& x, DType t) {
  if (t == DType::f64) return x;
  if (t == DType::b8) return x + " != 0";
  if (is_floating(t)) return stored(fmt::format("(td_f32)({})", x), t);
  return fmt::format("({})tdo_di({})", td_type(t), x);
}

std::string register_type(DType t) {
  return is_floating(t) && t != DType::f64 ? "td_f32" : td_type(word_of(t));
}

}  // namespace tandem::gpu
