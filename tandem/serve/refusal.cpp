// SPDX-License-Identifier: Apache-2.0
#include <new>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {

Refusal refusal_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Refusal& r) {
    return r;
  } catch (const Error& e) {
    switch (e.kind()) {
      case ErrorKind::Value:
      case ErrorKind::Shape:
      case ErrorKind::DType:
      case ErrorKind::Index:
      case ErrorKind::Format:
      case ErrorKind::Unsupported:
        return {400, e.op().empty() ? e.message() : e.op() + ": " + e.message()};
      case ErrorKind::Memory:
        log_warning("a request failed: {}", one_line(e.what(), 500));
        return {503, "not enough memory"};
      default:
        log_warning("a request failed: {}", one_line(e.what(), 500));
        return {500, "internal error"};
    }
  } catch (const std::bad_alloc&) {
    return {503, "not enough memory"};
  } catch (const std::exception& e) {
    log_warning("a request failed: {}", one_line(e.what(), 500));
    return {500, "internal error"};
  }
}

}  // namespace tandem::serve
