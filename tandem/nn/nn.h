// SPDX-License-Identifier: Apache-2.0
// All of nn.
#pragma once

#include "tandem/nn/activation.h"
#include "tandem/nn/attention.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/init.h"
#include "tandem/nn/linear.h"
#include "tandem/nn/loss.h"
#include "tandem/nn/module.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/rnn.h"
