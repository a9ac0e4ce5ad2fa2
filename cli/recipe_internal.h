// SPDX-License-Identifier: Apache-2.0
// What recipes may name: the tool's data sets, models and agents on top of the library's own.
#pragma once

#include <cstdlib>

#include "tandem/data/datasets.h"
#include "tandem/models/ddpm.h"
#include "tandem/models/detector.h"
#include "tandem/train/recipe.h"

namespace tandem::cli {

/// Losses, data sets, models and agents. Data is looked for under `data.root`, else under
/// TANDEM_DATA.
train::Registry recipe_registry();
void add_data_components(train::Registry& registry);
void add_media_components(train::Registry& registry);
void add_model_components(train::Registry& registry);
void add_agent_components(train::Registry& registry);

/// `root` of a data component, else `folder` under TANDEM_DATA.
std::string root_of(train::Options& o, const char* folder);
/// Batches of rows in memory: shuffled ones to train on, plain ones to judge by; `val_part` of the
/// training samples held out.
train::RecipeData table_batches(train::Options& o, uint64_t seed, data::TensorDataset train,
                                std::optional<data::TensorDataset> test, double val_part);

// What trained models are judged by, over a test set.

/// "recognised": the share of `samples` drawn digits that a LeNet, trained on the test set alone,
/// reads as the class that was asked for; "frechet": the distance of Fréchet between its features
/// of drawn and real digits.
train::Logs judge_digits(models::DDPM& net, data::AnyPipeline test, int64_t samples,
                         int64_t sampler_steps);
/// "map50": the mean over the classes of the average precision at an overlap of 0.5.
train::Logs judge_boxes(models::Detector& net, data::AnyPipeline test);

}  // namespace tandem::cli
