// SPDX-License-Identifier: Apache-2.0
// Members that a module holds and does not register: they would be neither trained nor saved.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::nn::detail {

// Modules that no parent has registered. When an object runs TD_REGISTER, every module inside it
// must be among the registered ones.
void enter_module(Module* m);
void leave_module(Module* m) noexcept;

/// Of TD_REGISTER, in the constructor of `m`, an object of `bytes` bytes at `self`. Throws Value
/// for a layer or a vector of layers in it that was not named.
void check_constructed(Module& m, const void* self, size_t bytes);
/// When `root`'s parameters or values are asked for the first time: what its modules hold now.
/// Throws Value for the same and for a Param; warns of Params made in a constructor that something
/// else holds, and of lists whose elements are copies of one module.
void check_used(Module& root);

}  // namespace tandem::nn::detail
