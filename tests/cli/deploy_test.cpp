// SPDX-License-Identifier: Apache-2.0
// `tandem deploy`: images checked by other readers (sha256sum, tar), unpacked and started where
// this machine lets a user change its root; units and manifests read back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tandem/base/clock.h"
#include "tandem/base/files/folder.h"
#include "tandem/io/json.h"
#include "tandem/io/yaml.h"
#include "tandem/serve/deploy/elf_internal.h"
#include "tandem/serve/deploy/image_internal.h"
#include "tests/cli/started_helper.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"

namespace tandem::cli_test {
namespace {

namespace fs = std::filesystem;

// Two versions of a model with settings, and one beside it whose weights lie in a file of its own.
void put_models(const std::string& folder) {
  serve::put_model(folder + "/scale/1/model.onnx", serve::scale_model(2));
  serve::put_model(folder + "/scale/2/model.onnx", serve::scale_model(3));
  write_file(folder + "/scale/serve.yaml", "max_batch: 8\n");
  serve::put_model(folder + "/pair.onnx", serve::pair_model());
}

const std::string kFour = "[[1,2,3,4]]";

io::Json json_of(const std::string& path) { return io::parse_json(read_file(path), path); }

// A blob by its descriptor, whose digest sha256sum has found and whose size the file has.
std::string blob_of(const std::string& image, const io::Json& descriptor) {
  const std::string digest = io::text_of(descriptor.find("digest"));
  EXPECT_EQ(digest.substr(0, 7), "sha256:");
  const std::string path = image + "/blobs/sha256/" + digest.substr(7);
  EXPECT_EQ(shell("sha256sum < " + path).text.substr(0, 64), digest.substr(7));
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(path)), io::whole_of(descriptor.find("size")));
  return path;
}

// Reads an image as its specification says, and unpacks it.
io::Json unpack(const std::string& image, const std::string& root) {
  EXPECT_EQ(io::text_of(json_of(image + "/oci-layout").find("imageLayoutVersion")), "1.0.0");
  const io::Json index = json_of(image + "/index.json");
  const io::Json::Array& manifests = *index.find("manifests")->as_array();
  EXPECT_EQ(manifests.size(), 1U);
  const io::Json manifest = json_of(blob_of(image, manifests[0]));
  io::Json config = json_of(blob_of(image, *manifest.find("config")));
  const io::Json::Array& layers = *manifest.find("layers")->as_array();
  const io::Json::Array& ids = *config.find("rootfs")->find("diff_ids")->as_array();
  EXPECT_EQ(layers.size(), ids.size());
  fs::create_directories(root);
  for (size_t i = 0; i < layers.size() && i < ids.size(); ++i) {
    const std::string layer = blob_of(image, layers[i]);
    EXPECT_EQ("sha256:" + shell("gzip -dc < " + layer + " | sha256sum").text.substr(0, 64),
              *ids[i].as_string());
    EXPECT_EQ(shell("tar -xzf " + layer + " -C " + root).code, 0);
  }
  size_t blobs = 0;
  for (const auto& entry : fs::directory_iterator(image + "/blobs/sha256"))
    blobs += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(blobs, layers.size() + 2);  // nothing else
  return config;
}

bool may_change_root() { return shell("unshare -r true 2> /dev/null").code == 0; }

// The command that an image's configuration gives, below `root`, and more arguments.
std::string start_of(const io::Json& config, const std::string& root, const std::string& more) {
  std::string out = "env -i";
  const auto words = [&](const io::Json* list) {
    if (list)
      for (const io::Json& word : *list->as_array()) out += " '" + *word.as_string() + "'";
  };
  const io::Json& run = *config.find("config");
  words(run.find("Env"));
  out += " /usr/bin/unshare -r /usr/sbin/chroot '" + root + "'";
  words(run.find("Entrypoint"));
  words(run.find("Cmd"));
  return out + more;
}

TEST(Deploy, AnImageHoldsAllThatItNeeds) {
  const TempFolder t;
  put_models(t / "models");
  const Result r = tool("deploy " + (t / "models") + " --target docker --name Scale_3 --tag 7 -o " +
                        (t / "out"));
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "docker run")) << r.text;
  EXPECT_TRUE(has(text_of(t / "out/Dockerfile"), "FROM ${BASE}"));
  const io::Json config = unpack(t / "out/image", t / "root");
  EXPECT_EQ(io::text_of(config.find("config")->find("User")), "65532:65532");
  EXPECT_TRUE(has(text_of(t / "out/image/manifest.json"), "\"scale-3:7\""));
  // The versions that are served, their settings, and no others.
  EXPECT_TRUE(fs::exists(t / "root/models/scale/2/model.onnx"));
  EXPECT_FALSE(fs::exists(t / "root/models/scale/1"));
  EXPECT_EQ(text_of(t / "root/models/scale/serve.yaml"), "max_batch: 8\n");
  EXPECT_EQ(fs::status(t / "root/tmp").permissions() & fs::perms::mask,
            fs::perms::all | fs::perms::sticky_bit);
  // The loader finds every library in the image.
  const serve::ProgramFiles program = serve::files_of_program(std::getenv("TANDEM_TOOL"));
  EXPECT_TRUE(fs::exists((t / "root") + program.interpreter));
  for (const auto& [name, path] : program.libraries)
    EXPECT_TRUE(fs::exists((t / "root") + program.folder + "/" + name)) << name;
  if (!may_change_root()) GTEST_SKIP() << "this machine lets users have no root of their own";
  Started server(start_of(config, t / "root", " --port 0"));
  ASSERT_GT(server.port(), 0) << server.text();
  EXPECT_EQ(server.post("/predictions/scale", kFour).body, "{\"y\":[[3.0,6.0,9.0,12.0]]}");
  EXPECT_EQ(server.get("/v2/health/ready").status, 200);
  EXPECT_EQ(server.stop(), 0);
}

TEST(Deploy, EqualFilesGiveEqualImages) {
  const TempFolder t;
  write_file(t / "big", std::string(3 << 20, 'x') + "end");
  const std::string deep = "a/" + std::string(90, 'b') + "/" + std::string(90, 'c');
  const serve::ImageLayer layer{
      .comment = "files",
      .files = {{.name = deep, .text = "far"}, {.name = "big", .source = t / "big", .mode = 0755}},
      .folders = {{"tmp", 01777}}};
  for (const char* out : {"a", "b"}) serve::write_image(t / out, {layer}, {.entrypoint = {"/big"}});
  EXPECT_EQ(text_of(t / "a/index.json"), text_of(t / "b/index.json"));
  unpack(t / "a", t / "root");
  EXPECT_EQ(text_of((t / "root/") + deep), "far");
  EXPECT_EQ(text_of(t / "root/big"), text_of(t / "big"));
}

// From a finished run to the first answer of its container.
TEST(Deploy, AFinishedRunAnswersSoon) {
  const TempFolder t;
  write_file(t / "r.yaml",
             "recipe: r\nseed: 0\ndata: {type: digits}\nmodel: {type: mlp, hidden: [8]}\n"
             "loss: {type: cross_entropy}\noptim: {type: sgd, lr: 0.01}\n"
             "trainer: {max_steps: 3, report: false, metrics: []}\n");
  ASSERT_EQ(tool("train " + (t / "r.yaml") + " --run " + (t / "digits") + " > /dev/null 2>&1").code,
            0);
  const auto begin = Clock::now();
  const Result r = tool("deploy " + (t / "digits") + " --target sagemaker -o " + (t / "out"));
  ASSERT_EQ(r.code, 0) << r.text;
  const double written = seconds_since(begin);
  const io::Json config = unpack(t / "out/image", t / "root");
  EXPECT_FALSE(fs::exists(t / "root/models/digits/1/checkpoints"));
  if (!may_change_root()) GTEST_SKIP() << "this machine lets users have no root of their own";
  // SageMaker's contract: the argument is `serve`, the port 8080.
  EXPECT_EQ(text_of(t / "root/etc/tandem/serve.yaml").find("port: 8080") != std::string::npos,
            true);
  const Started server(start_of(config, t / "root", " --port 0"));
  ASSERT_GT(server.port(), 0) << server.text();
  EXPECT_EQ(server.get("/ping").status, 200);
  std::string image;
  for (int i = 0; i < 8; ++i) image += ",[0,0.5,0,1,1,0,0.5,0]";
  image[0] = '[';
  const serve::HttpResponse answer = server.post("/invocations", "[[" + image + "]]]");
  EXPECT_EQ(answer.status, 200) << answer.body;
  fmt::print("from a finished run to the first answer: {:.2f} s (deploy {:.2f} s)\n",
             seconds_since(begin), written);
}

TEST(Deploy, AServiceStartsInPlaceAndInstalls) {
  const TempFolder t;
  put_models(t / "models");
  write_file(t / "keys", "infer,metrics 0123456789abcdef0123\n");
  const Result r = tool("deploy " + (t / "models") + " --target systemd --name svc --keys " +
                        (t / "keys") + " --set port=8099 -o " + (t / "out"));
  ASSERT_EQ(r.code, 0) << r.text;
  const std::string unit = text_of(t / "out/svc.service");
  for (const char* line :
       {"\nDynamicUser=yes\n", "\nNoNewPrivileges=yes\n", "\nProtectSystem=strict\n",
        "\nLoadCredential=keys:/etc/tandem/svc.keys\n", "--set keys=%d/keys\n"})
    EXPECT_TRUE(has(unit, line)) << line;
  EXPECT_TRUE(has(unit, "\nMemoryMax=")) << unit;
  {
    // Its own loader and libraries, and no others.
    const std::string loader =
        fs::path(serve::files_of_program(std::getenv("TANDEM_TOOL")).interpreter).filename();
    const Started server("env -i sh -c 'cd " + (t / "out") + " && exec ./lib/" + loader +
                         " --library-path lib ./bin/tandem serve --config serve.yaml --port 0'");
    ASSERT_GT(server.port(), 0) << server.text();
    EXPECT_EQ(server.get("/v2").status, 401);
    EXPECT_EQ(server.get("/v2/health/ready").status, 200);
  }
  ASSERT_EQ(shell("DESTDIR=" + (t / "dest") + " " + (t / "out/install.sh")).code, 0);
  EXPECT_TRUE(fs::exists(t / "dest/opt/tandem/svc/models/scale/2/model.onnx"));
  EXPECT_EQ(fs::status(t / "dest/etc/tandem/svc.keys").permissions() & fs::perms::mask,
            fs::perms::owner_read | fs::perms::owner_write);
  if (shell("command -v systemd-analyze > /dev/null").code != 0)
    GTEST_SKIP() << "systemd-analyze is not installed";
  // At most 20 of 100 points of exposure; a unit that cannot be read is an error, too.
  const Result safe = shell("systemd-analyze security --offline=yes --threshold=20 " +
                            (t / "dest/etc/systemd/system/svc.service") + " 2>&1");
  EXPECT_EQ(safe.code, 0) << safe.text;
}

// By keys and places.
const io::Yaml& at(const io::Yaml& root, const std::string& path) {
  const io::Yaml* here = &root;
  for (size_t from = 0; from < path.size();) {
    const size_t end = std::min(path.find('/', from), path.size());
    const std::string word = path.substr(from, end - from);
    here =
        here->kind == io::Yaml::Kind::list ? &here->items.at(std::stoul(word)) : here->find(word);
    if (!here) throw std::runtime_error("no " + path);
    from = end + 1;
  }
  return *here;
}

// What the user data tells a machine to do is done here: curl fetches the package from a file.
TEST(Deploy, UserDataFetchesAndInstalls) {
  const TempFolder t;
  put_models(t / "models");
  const Result r =
      tool("deploy " + (t / "models") + " --target cloud-init --name svc -o " + (t / "out"));
  ASSERT_EQ(r.code, 0) << r.text;
  const std::string text = read_file(t / "out/user-data.yaml");
  EXPECT_EQ(text.find("#cloud-config\n"), 0U);
  EXPECT_LT(text.size(), 16384U) << "more than AWS takes";
  const io::Yaml data = io::parse_yaml(text, "user-data.yaml");
  ASSERT_TRUE(data.find("runcmd") && data.find("write_files"));
  const io::Yaml& file = data.find("write_files")->items.at(0);
  std::string script = file.find("content")->text;
  const auto put = [&script](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = script.find(from, at)) != script.npos; at += to.size())
      script.replace(at, from.size(), to);
  };
  put("'URL'", "'file://" + (t / "out/svc.tar.gz") + "'");
  put("/var/tmp/tandem", t / "work");
  write_file(t / "run.sh", script);
  if (shell("command -v curl > /dev/null").code != 0) GTEST_SKIP() << "curl is not installed";
  const std::string run = "DESTDIR=" + (t / "dest") + " sh " + (t / "run.sh") + " 2>&1";
  const Result installed = shell(run);
  ASSERT_EQ(installed.code, 0) << installed.text;
  for (const char* name :
       {"opt/tandem/svc/bin/tandem", "opt/tandem/svc/serve.yaml",
        "opt/tandem/svc/models/scale/2/model.onnx", "etc/systemd/system/svc.service"})
    EXPECT_TRUE(fs::exists(t / ("dest/" + std::string(name)))) << name;
  EXPECT_FALSE(fs::exists(t / "work"));
  const Result version =
      shell(t / "dest/opt/tandem/svc/lib/" +
            fs::path(serve::read_elf(t / "dest/opt/tandem/svc/bin/tandem").interpreter)
                .filename()
                .string() +
            " --library-path " + (t / "dest/opt/tandem/svc/lib") + " " +
            (t / "dest/opt/tandem/svc/bin/tandem") + " --version");
  EXPECT_EQ(version.code, 0) << version.text;
  // A package that is another one is not installed.
  write_file(t / "out/svc.tar.gz", "not it");
  const Result other = shell(run);
  EXPECT_NE(other.code, 0);
  EXPECT_NE(other.text.find("FAILED"), std::string::npos) << other.text;
  const Result keyed = tool("deploy " + (t / "models") + " --target cloud-init --keys " +
                            (t / "run.sh") + " -o " + (t / "keyed") + " 2>&1");
  EXPECT_NE(keyed.code, 0);
  EXPECT_NE(keyed.text.find("keys have no place in it"), std::string::npos) << keyed.text;
}

TEST(Deploy, ManifestsOfAClusterAreYaml) {
  const TempFolder t;
  put_models(t / "models");
  write_file(t / "keys", "infer 7c1f-key-of-a-client # of a client\n");
  const Result r = tool("deploy " + (t / "models") + " --target k8s --name net --keys " +
                        (t / "keys") + " --image registry.example/net:3 -o " + (t / "out"));
  ASSERT_EQ(r.code, 0) << r.text;
  std::map<std::string, io::Yaml> files;
  for (const char* name : {"deployment", "hpa", "kustomization", "secret"})
    files[name] = io::parse_yaml(read_file((t / "out/") + name + ".yaml"), name);
  const io::Yaml& pod = at(files["deployment"], "spec/template/spec");
  const io::Yaml& container = at(pod, "containers/0");
  EXPECT_EQ(at(container, "image").text, "registry.example/net:3");
  EXPECT_EQ(at(container, "readinessProbe/httpGet/path").text, "/v2/health/ready");
  EXPECT_EQ(at(container, "resources/limits/memory").text,
            at(container, "resources/requests/memory").text);
  EXPECT_TRUE(at(container, "resources/limits/memory").text.ends_with("Mi"));
  EXPECT_EQ(at(container, "securityContext/readOnlyRootFilesystem").as_bool(), true);
  EXPECT_EQ(at(pod, "volumes/1/secret/secretName").text, "net-keys");
  EXPECT_EQ(at(files["secret"], "stringData/keys").text, read_file(t / "keys"));
  EXPECT_EQ(at(files["hpa"], "spec/metrics/0/pods/metric/name").text, "tandem_queue_length");
  for (const io::Yaml& file : at(files["kustomization"], "resources").items)
    EXPECT_TRUE(fs::exists((t / "out/") + file.text)) << file.text;
  // The key is nowhere in the image.
  const std::string key = "7c1f-key-of-a-client";
  for (const auto& entry : fs::directory_iterator(t / "out/image/blobs/sha256")) {
    EXPECT_NE(shell("gzip -dcf < " + entry.path().string() + " | grep -qa '" + key + "'").code, 0);
  }
  if (shell("command -v kubectl > /dev/null").code == 0) {
    EXPECT_EQ(shell("kubectl kustomize " + (t / "out") + " > /dev/null").code, 0);
  }
}

TEST(Deploy, RefusesWhatCannotBeDeployed) {
  const TempFolder t;
  put_models(t / "models");
  serve::put_model(t / "full/file", "x");
  write_file(t / "text", "no model");
  write_file(t / "keys", "infer short\n");
  serve::put_model(t / "broken/m/1/model.onnx", "not a model");
  const std::string models = t / "models", out = " -o " + (t / "out");
  const std::pair<std::string, const char*> cases[] = {
      {models + " --target dokcer" + out, "did you mean 'docker'"},
      {models + " --target docker -o " + (t / "full"), "holds something"},
      {models + " --target docker --set prot=1" + out, "'port'"},
      {models + " --target docker --keys " + (t / "keys") + out, "a key has 16"},
      {models + " --target vertex --keys " + (t / "keys") + out, "asks its callers itself"},
      {models + " --target docker --program " + (t / "text") + out, "ELF"},
      {(t / "text") + " --target docker" + out, "neither a model nor a folder"},
      {(t / "broken") + " --target docker" + out, "'m' cannot be served: "},
      {(t / "nothing") + " --target docker" + out, "No such file"},
  };
  for (const auto& [arguments, says] : cases) {
    const Result r = tool("deploy " + arguments + " 2>&1");
    EXPECT_NE(r.code, 0) << arguments;
    EXPECT_TRUE(has(r.text, says)) << arguments << "\n" << r.text;
    EXPECT_FALSE(fs::exists(t / "out")) << arguments;
  }
}

TEST(Deploy, DamagedProgramsAreErrors) {
  const TempFolder t;
  const std::string whole = read_file(std::getenv("TANDEM_TOOL"));
  for (const size_t n : {size_t{3}, size_t{40}, size_t{64}, size_t{100}, size_t{700}}) {
    write_file(t / "cut", whole.substr(0, n));
    EXPECT_TRUE(has(thrown([&] { serve::read_elf(t / "cut"); }), "cut")) << n;
  }
  // Bytes of the headers and of the tables that they name changed: an error, or facts.
  int errors = 0;
  std::string damaged = whole.substr(0, 20000);
  for (size_t i = 0; i < 1200; i += 7) {
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    write_file(t / "damaged", damaged);
    try {
      serve::read_elf(t / "damaged");
    } catch (const Error&) {
      ++errors;
    }
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
  }
  EXPECT_GT(errors, 5);
}

}  // namespace
}  // namespace tandem::cli_test
