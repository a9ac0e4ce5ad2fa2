// SPDX-License-Identifier: Apache-2.0
// The verbs of the tool: each adds its subcommand and gives its exit code through `code`
// (0 ok, 1 failed, 2 usage, 3 check not met, 130 interrupted).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem::cli {

void add_advise(CLI::App& app, int& code);
void add_bench(CLI::App& app, int& code);
void add_bench_serve(CLI::App& app, int& code);
void add_compile(CLI::App& app, int& code);
void add_config(CLI::App& app, int& code);
void add_convert(CLI::App& app, int& code);
void add_export(CLI::App& app, int& code);
void add_deploy(CLI::App& app, int& code);
void add_demo(CLI::App& app, int& code);
void add_doctor(CLI::App& app, int& code);
void add_find(CLI::App& app, int& code);
void add_generate(CLI::App& app, int& code);
void add_launch(CLI::App& app, int& code);
void add_onnx_test(CLI::App& app, int& code);
void add_inspect(CLI::App& app, int& code);
void add_ops(CLI::App& app, int& code);
void add_plan(CLI::App& app, int& code);
void add_quantize(CLI::App& app, int& code);
void add_predict(CLI::App& app, int& code);
void add_verify(CLI::App& app, int& code);
void add_data(CLI::App& app, int& code);
void add_runs(CLI::App& app, int& code);
void add_serve(CLI::App& app, int& code);
void add_tune(CLI::App& app, int& code);
void add_recipe(CLI::App& app, int& code);
void add_train(CLI::App& app, int& code);

/// True once Ctrl-C was pressed; installs the handler on the first call.
bool interrupted();
/// Until a handler of its own takes over, a signal that ends this process leaves no empty run
/// folder. Signals that are ignored (nohup) stay so.
void leave_no_empty_runs();

}  // namespace tandem::cli
