// SPDX-License-Identifier: Apache-2.0
// All of nn.
#pragma once

#include "tandem/nn/activation.h"
#include "tandem/nn/attention.h"
#include "tandem/nn/container.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/dropout.h"
#include "tandem/nn/gnn.h"
#include "tandem/nn/group_norm.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layers.h"
#include "tandem/nn/linear.h"
#include "tandem/nn/loss.h"
#include "tandem/nn/module.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/packed.h"
#include "tandem/nn/padding.h"
#include "tandem/nn/parametrize.h"
#include "tandem/nn/pooling.h"
#include "tandem/nn/rnn.h"
#include "tandem/nn/transformer.h"
#include "tandem/nn/vision.h"
