// SPDX-License-Identifier: Apache-2.0
// `tandem deploy RUN_OR_MODEL --target docker|systemd|cloud-init|k8s|sagemaker|vertex -o DIR`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/commands_internal.h"
#include "tandem/base/bytes_in_words.h"
#include "tandem/base/error.h"
#include "tandem/init.h"
#include "tandem/serve/deploy/deploy.h"

namespace tandem::cli {
namespace {

void print_deployed(const serve::DeployOptions& o, const serve::DeployReport& r) {
  fmt::print("{}: {}\n", o.folder, fmt::join(r.files, " "));
  if (!r.digest.empty())
    fmt::print("  image   {}, {} compressed\n", r.digest, bytes_in_words(r.image_bytes));
  fmt::print("  models  {}\n", fmt::join(r.models, " "));
  fmt::print("  memory  limit {}: weights {}, loaded {}, largest batches {}",
             bytes_in_words(r.memory), bytes_in_words(r.weights), bytes_in_words(r.loaded),
             bytes_in_words(r.arena));
  if (r.cache > 0) fmt::print(", keys and values {}", bytes_in_words(r.cache));
  fmt::print(", process and margin\n");
  for (const std::string& note : r.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("\nIn {}:\n{}", o.folder, r.next);
}

}  // namespace

void add_deploy(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "deploy",
      "A folder that serves models elsewhere: an image, a service or manifests\n\n"
      "  tandem deploy runs/mnist-lenet5 --target docker -o out\n"
      "  tandem deploy models/ --target k8s -o out --image registry.example/digits:3\n"
      "  tandem deploy model.onnx --target systemd -o out --keys keys\n\n"
      "Images are made without a daemon; docs/serving.md says what lies where");
  auto o = std::make_shared<serve::DeployOptions>();
  verb->add_option("models", o->models,
                   "A run's folder, a model, or a folder of models as `tandem serve` takes it")
      ->required();
  verb->add_option("--target", o->target,
                   fmt::format("{}", fmt::join(serve::deploy_targets(), ", ")))
      ->required();
  verb->add_option("-o,--output", o->folder, "The folder to write; it must be empty or new")
      ->required();
  verb->add_option("--name", o->name, "Of the image and the service (the model's)");
  verb->add_option("--tag", o->tag, "Of the image (latest)");
  verb->add_option("--image", o->image, "How the cluster knows the image (NAME:TAG)");
  verb->add_option("--keys", o->keys,
                   "A file of API keys: it lies beside the image, never inside it");
  verb->add_option("--program", o->program, "The tool that is deployed (this one)");
  verb->add_option("--set", o->settings, "Any setting of the server, as defaults.max_batch=8");
  verb->callback([&code, o] {
    init();
    if (o->program.empty()) o->program = std::filesystem::canonical("/proc/self/exe").string();
    print_deployed(*o, serve::deploy(*o));
    code = 0;
  });
}

}  // namespace tandem::cli
