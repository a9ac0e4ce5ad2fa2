// SPDX-License-Identifier: Apache-2.0
// Triton's model repository: NAME/config.pbtxt and NAME/VERSION/model.onnx or model.savedmodel/.
// Field names are those of model_config.proto.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/folder_internal.h"
#include "tandem/serve/model/foreign_text_internal.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

class TritonModel {
 public:
  TritonModel(std::string folder, ForeignModel& out)
      : folder_(std::move(folder)), out_(out), notes_{out.name + "/config.pbtxt"} {}

  void read() {
    const std::string file = folder_ + "/config.pbtxt";
    if (file_exists(file))
      for (const io::TextField& f :
           io::parse_text_proto(read_file(file, size_t{1} << 20), notes_.what).fields)
        field(f);
    for (const auto& [version, path] : version_folders(folder_)) {
      const std::string found = model_of(path);
      if (!found.empty()) out_.versions[version] = found;
    }
    out_.notes = std::move(notes_.notes);
    if (!out_.settings.ensemble.empty()) out_.settings.ensemble_outputs = answered_;
    TD_CHECK(!ensemble_ || !out_.settings.ensemble.empty(), Format,
             "'{}': an ensemble needs ensemble_scheduling with its steps", notes_.what);
  }

 private:
  [[noreturn]] void refuse_field(const io::TextField& f, const std::string& why) const {
    TD_FAIL(Unsupported, "'{}', line {}: {}", notes_.what, f.line, why);
  }

  void field(const io::TextField& f) {
    ModelSettings& s = out_.settings;
    if (f.name == "name") {
      TD_CHECK(f.text == out_.name, Format, "'{}', line {}: the name '{}' is not the folder's",
               notes_.what, f.line, one_line(f.text, 64));
    } else if (f.name == "platform" || f.name == "backend") {
      backend(f);
    } else if (f.name == "max_batch_size") {
      s.max_batch = std::max<int64_t>(notes_.whole(f, 0, 4096), 1);
      batched_ = s.max_batch > 1 || f.text == "1";
    } else if (f.name == "input") {
      input(notes_.message(f));
    } else if (f.name == "output") {
      // The model's own; an ensemble's are those that it names.
      if (const io::TextField* name = notes_.message(f).find("name"))
        answered_.push_back(name->text);
    } else if (f.name == "version_policy") {
      notes_.version_policy(f, s);
    } else if (f.name == "instance_group") {
      instances(notes_.message(f));
    } else if (f.name == "dynamic_batching") {
      dynamic_batching(notes_.message(f));
    } else if (f.name == "default_model_filename") {
      TD_CHECK(f.text.find('/') == std::string::npos && !f.text.starts_with('.'), Format,
               "'{}', line {}: '{}' is not the name of a file", notes_.what, f.line,
               one_line(f.text, 64));
      file_ = f.text;
    } else {
      other(f);
    }
  }

  void backend(const io::TextField& f) {
    constexpr std::array<std::string_view, 6> kKnown = {
        "onnxruntime", "onnxruntime_onnx", "tensorflow", "tensorflow_savedmodel", "ensemble", ""};
    ensemble_ = ensemble_ || f.text == "ensemble";
    if (std::find(kKnown.begin(), kKnown.end(), f.text) != kKnown.end()) return;
    const std::string name = one_line(f.text, 64);
    if (f.text == "python")
      refuse_field(f,
                   "the backend 'python' runs the model's code, and code of models is never run");
    refuse_field(f, fmt::format("models of '{}' cannot be read\nExport the model as ONNX to "
                                "{}/1/model.onnx, and write backend: \"onnxruntime\".",
                                name, out_.name));
  }

  // Sizes without the batch's. They tell the warm-up what the model's open sizes are.
  void input(const io::TextMessage& m) {
    std::string name, sizes;
    bool fixed = true;
    for (const io::TextField& f : m.fields) {
      if (f.name == "name") {
        name = f.text;
      } else if (f.name == "dims") {
        const int64_t n = notes_.whole(f, -1, int64_t{1} << 40);
        fixed = fixed && n > 0;
        sizes += (sizes.empty() ? "" : "x") + std::to_string(n);
      } else if (f.name == "reshape" || f.name == "is_shape_tensor" ||
                 f.name == "allow_ragged_batch" || f.name == "optional") {
        fixed = false;
        notes_.unused(f, "the model's own inputs are taken");
      } else if (f.name != "data_type" && f.name != "format") {
        notes_.unused(f);
      }
    }
    if (name.empty() || sizes.empty() || !fixed) return;
    // Which of them has a batch dimension is known when the whole file is read.
    shapes_.emplace_back(name, sizes);
  }

  // Of KIND_GPU "count" are on each of "gpus", on the first one where none are named. Several
  // groups add up.
  void instances(const io::TextMessage& m) {
    const io::TextField* on_gpus = nullptr;
    int64_t count = 1;
    std::vector<int64_t> gpus;
    for (const io::TextField& f : m.fields) {
      if (f.name == "count") {
        count = notes_.whole(f, 1, 64);
      } else if (f.name == "kind") {
        if (f.text == "KIND_GPU") on_gpus = &f;
      } else if (f.name == "gpus") {
        gpus.push_back(notes_.whole(f, 0, 255));
      } else if (f.name != "name") {
        notes_.unused(f);
      }
    }
    if (on_gpus && is_host(device_named("auto"))) {
      notes_.unused(*on_gpus, "no CUDA device is there: the model is served on the CPU");
      on_gpus = nullptr;
    }
    std::vector<std::string> devices;
    if (on_gpus && gpus.empty()) gpus.push_back(0);
    for (const int64_t gpu : gpus)
      if (on_gpus) devices.push_back(fmt::format("cuda:{}", gpu));
    if (!on_gpus) devices.emplace_back("cpu");
    count *= static_cast<int64_t>(devices.size());
    out_.settings.instances =
        std::min<int64_t>((groups_++ ? out_.settings.instances : 0) + count, 64);
    for (std::string& device : devices)
      if (std::find(devices_.begin(), devices_.end(), device) == devices_.end())
        devices_.push_back(std::move(device));
    // On the processor alone is what a model without devices is.
    if (devices_ != std::vector<std::string>{"cpu"}) out_.settings.devices = devices_;
  }

  void dynamic_batching(const io::TextMessage& m) {
    ModelSettings& s = out_.settings;
    for (const io::TextField& f : m.fields) {
      if (f.name == "max_queue_delay_microseconds") {
        s.delay_us = static_cast<double>(notes_.whole(f, 0, 1000000));
      } else if (f.name == "default_queue_policy") {
        for (const io::TextField& q : notes_.message(f).fields) {
          if (q.name == "max_queue_size") {
            if (const int64_t n = notes_.whole(q, 0, int64_t{1} << 30); n > 0) s.queue = n;
          } else if (q.name == "default_timeout_microseconds") {
            s.timeout_ms = static_cast<double>(notes_.whole(q, 0, int64_t{1} << 53)) / 1000;
          } else {
            notes_.unused(q);
          }
        }
      } else if (f.name == "priority_levels") {
        s.priority_levels = notes_.whole(f, 0, kMostPriorities);
      } else if (f.name == "default_priority_level") {
        s.default_priority = notes_.whole(f, 0, kMostPriorities);
      } else if (f.name == "preferred_batch_size") {
        notes_.unused(f, "sizes are chosen by what they cost");
      } else if (f.name != "preserve_ordering" || f.as_bool() != false) {
        notes_.unused(f);
      }
    }
  }

  void ensemble(const io::TextMessage& m) {
    for (const io::TextField& f : m.fields) {
      if (f.name != "step") {
        notes_.unused(f);
        continue;
      }
      EnsembleStep& step = out_.settings.ensemble.emplace_back();
      for (const io::TextField& s : notes_.message(f).fields) {
        if (s.name == "model_name") {
          step.model = s.text;
        } else if (s.name == "model_version") {
          step.version = std::max<int64_t>(notes_.whole(s, -1, int64_t{1} << 53), 0);
        } else if (s.name == "input_map" || s.name == "output_map") {
          const io::TextField *key = notes_.message(s).find("key"),
                              *value = notes_.message(s).find("value");
          if (!key || !value) refuse_field(s, "an entry has a key and a value");
          (s.name == "input_map" ? step.input_map : step.output_map)
              .push_back(key->text + "=" + value->text);
        } else {
          notes_.unused(s);
        }
      }
      if (step.model.empty()) refuse_field(f, "a step has a model_name");
    }
  }

  void sequence_batching(const io::TextField& whole) {
    ModelSettings& s = out_.settings;
    s.sequence_idle_seconds = 1;  // Triton's
    for (const io::TextField& f : notes_.message(whole).fields) {
      if (f.name == "max_sequence_idle_microseconds") {
        if (const int64_t n = notes_.whole(f, 0, int64_t{1} << 53); n > 0)
          s.sequence_idle_seconds = static_cast<double>(n) * 1e-6;
      } else if (f.name == "state") {
        state(f);
      } else if (f.name == "control_input") {
        controls(f);
      } else if (f.name == "direct" || f.name == "oldest") {
        strategy(notes_.message(f));
      } else {
        notes_.unused(f);
      }
    }
    if (s.state.empty() && s.controls.empty())
      refuse_field(whole, "it names no state, and a model keeps none of its own");
  }

  void strategy(const io::TextMessage& m) {
    for (const io::TextField& f : m.fields)
      if (f.name == "max_candidate_sequences") {
        if (const int64_t n = notes_.whole(f, 0, 1 << 30); n > 0) out_.settings.sequences = n;
      } else if (f.name == "max_queue_delay_microseconds") {
        out_.settings.delay_us = static_cast<double>(notes_.whole(f, 0, 1000000));
      } else {
        notes_.unused(f, "steps run when they come");
      }
  }

  void state(const io::TextField& whole) {
    std::string in, out;
    for (const io::TextField& f : notes_.message(whole).fields) {
      if (f.name == "input_name") {
        in = f.text;
      } else if (f.name == "output_name") {
        out = f.text;
      } else if (f.name == "initial_state") {
        for (const io::TextField& first : notes_.message(f).fields)
          if (first.name == "data_file")
            refuse_field(first, "the first state is zeros; it is not read from a file");
      } else if (f.name != "data_type" && f.name != "dims") {
        notes_.unused(f);
      }
    }
    if (in.empty() || out.empty()) refuse_field(whole, "a state needs input_name and output_name");
    out_.settings.state.push_back(in + "=" + out);
  }

  void controls(const io::TextField& whole) {
    std::string name;
    std::vector<std::string> kinds;
    for (const io::TextField& f : notes_.message(whole).fields) {
      if (f.name == "name") name = f.text;
      if (f.name != "control") continue;
      for (const io::TextField& c : notes_.message(f).fields) {
        if (c.name == "kind") {
          const auto at = std::find_if(kControls.begin(), kControls.end(),
                                       [&](const auto& known) { return known.first == c.text; });
          if (at == kControls.end()) refuse_field(c, "an unknown kind of control");
          kinds.emplace_back(at->second);
        } else if (c.name.ends_with("_false_true")) {
          // Two values: false, then true.
          const char* const wanted = count_++ % 2 == 0 ? "0" : "1";
          const std::string said = c.text.substr(0, c.text.find('.'));
          const auto flag = c.as_bool();
          if (said != wanted && !(flag && *flag == (wanted[0] == '1')))
            refuse_field(c, "controls are 0 and 1");
        }
      }
    }
    for (const std::string& kind : kinds) out_.settings.controls.push_back(kind + "=" + name);
  }

  void other(const io::TextField& f) {
    if (f.name == "ensemble_scheduling") return ensemble(notes_.message(f));
    if (f.name == "sequence_batching") return sequence_batching(f);
    if (f.name == "model_transaction_policy")
      for (const io::TextField& d : notes_.message(f).fields)
        if (d.name == "decoupled" && d.as_bool() == true)
          refuse_field(d, "models with several answers to a request are not served");
    notes_.unused(f);
  }

  std::string model_of(const std::string& folder) const {
    if (!file_.empty()) return file_exists(folder + "/" + file_) ? folder + "/" + file_ : "";
    const std::string saved = folder + "/model.savedmodel";
    return file_exists(saved) ? saved : model_at(folder);
  }

 public:
  /// "x:1x3x224x224" of the inputs whose sizes are all known.
  std::string shapes() const {
    std::string out;
    for (const auto& [name, sizes] : shapes_)
      out += fmt::format("{}{}:{}{}", out.empty() ? "" : ",", name, batched_ ? "1x" : "", sizes);
    return out;
  }

 private:
  std::string folder_, file_;
  ForeignModel& out_;
  FieldNotes notes_;
  bool batched_ = false, ensemble_ = false;
  int groups_ = 0;                     ///< of instances
  std::vector<std::string> devices_;   ///< of theirs
  std::vector<std::string> answered_;  ///< names of outputs
  std::vector<std::pair<std::string, std::string>> shapes_;
  size_t count_ = 0;  ///< values of controls: false and true in turn
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kControls = {
      {{"CONTROL_SEQUENCE_START", "start"},
       {"CONTROL_SEQUENCE_END", "end"},
       {"CONTROL_SEQUENCE_READY", "ready"},
       {"CONTROL_SEQUENCE_CORRID", "id"}}};
};

class TritonLayout : public ForeignLayout {
 public:
  explicit TritonLayout(const std::string& path) : root_(fs::canonical(path).string()) {
    TD_CHECK(fs::is_directory(root_), Format, "'{}' is not a model repository: it is a file", path);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    std::error_code error;
    for (const std::string& name : list_folder(root_))
      if (is_model_name(name) && fs::is_directory(root_ + "/" + name, error) &&
          (file_exists(root_ + "/" + name + "/config.pbtxt") ||
           !version_folders(root_ + "/" + name).empty()))
        out.push_back(name);
    return out;
  }
  std::vector<std::string> configuration(const std::string& name) const override {
    return {root_ + "/" + name + "/config.pbtxt"};
  }
  ForeignModel model(const std::string& name, const ModelSettings& defaults) const override {
    const std::vector<std::string> all = names();
    TD_CHECK(std::find(all.begin(), all.end(), name) != all.end(), Value, "there is no model '{}'",
             name);
    ForeignModel out{.name = name, .folder = root_, .versions = {}, .settings = defaults};
    TritonModel reader(root_ + "/" + name, out);
    reader.read();
    if (out.settings.shapes.empty()) out.settings.shapes = reader.shapes();
    return out;
  }

 private:
  std::string root_;
};

}  // namespace

std::unique_ptr<ForeignLayout> open_triton(const std::string& path) {
  return std::make_unique<TritonLayout>(path);
}

}  // namespace tandem::serve
