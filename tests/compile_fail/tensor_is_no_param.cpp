// error: conversion from .*Tensor.* to .*Param|no viable conversion|could not convert
// SPDX-License-Identifier: Apache-2.0
// A tensor does not become a parameter by itself.
#include "tandem/tandem.h"

using namespace tandem;

void learn(Param p);
void f(Tensor x) {
#ifdef TD_CONTROL
  learn(Param(x));
#else
  learn(x);
#endif
}
