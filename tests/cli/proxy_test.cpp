// SPDX-License-Identifier: Apache-2.0
// Several servers behind a proxy: what `tandem deploy` writes for Envoy, nginx and the autoscaler
// agrees with the servers, and a server that ends costs no request (with the proxies that are
// installed here).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/files/folder.h"
#include "tandem/io/yaml.h"
#include "tests/cli/started_helper.h"
#include "tests/io/io_helper.h"
#include "tests/serve/grpc_helper.h"
#include "tests/serve/serve_helper.h"

namespace tandem::cli_test {
namespace {

namespace fs = std::filesystem;

// A model of numbers and one that continues texts.
void put_both(const std::string& folder) {
  serve::put_model(folder + "/scale/1/model.onnx", serve::scale_model(3));
  fs::copy(std::string(std::getenv("TANDEM_SOURCE_DIR")) + "/tests/golden/hf/gpt2",
           folder + "/gpt2");
  write_file(folder + "/gpt2/tokenizer.json",
             "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"a\", \"vocab\": {\"a\": 0}},"
             " \"pre_tokenizer\": {\"type\": \"Whitespace\"}}");
}

// Of the image only the texts beside it are wanted here.
const std::string kSmall = " --program /bin/true";

const io::Yaml& in(const io::Yaml& root, const std::vector<std::string>& path) {
  const io::Yaml* here = &root;
  for (const std::string& word : path) {
    here =
        here->kind == io::Yaml::Kind::list ? &here->items.at(std::stoul(word)) : here->find(word);
    if (!here) throw std::runtime_error("no " + word);
  }
  return *here;
}

io::Yaml yaml_of(const std::string& path) { return io::parse_yaml(read_file(path), path); }

TEST(DeployFleet, TheManifestsAgree) {
  const TempFolder t;
  put_both(t / "models");
  const Result r =
      tool("deploy " + (t / "models") + " --target k8s --name net --set port=8123 --set body_mb=5" +
           kSmall + " -o " + (t / "k"));
  ASSERT_EQ(r.code, 0) << r.text;
  const io::Yaml envoy = yaml_of(t / "k/envoy.yaml"), servers = yaml_of(t / "k/servers.yaml"),
                 service = yaml_of(t / "k/service.yaml"), proxy = yaml_of(t / "k/proxy.yaml"),
                 pods = yaml_of(t / "k/deployment.yaml"), hpa = yaml_of(t / "k/hpa.yaml"),
                 adapter = yaml_of(t / "k/prometheus-adapter.yaml");
  // From the service to the proxies' port, and from them to the servers'.
  const std::vector<std::string> pod = {"spec", "template", "spec", "containers", "0"};
  const auto below = [](std::vector<std::string> path, const std::vector<std::string>& more) {
    path.insert(path.end(), more.begin(), more.end());
    return path;
  };
  const auto label = [&](const io::Yaml& d) {
    return in(d, {"spec", "template", "metadata", "labels", "app.kubernetes.io/name"}).text;
  };
  EXPECT_EQ(in(service, {"spec", "selector", "app.kubernetes.io/name"}).text, label(proxy));
  EXPECT_EQ(in(servers, {"spec", "selector", "app.kubernetes.io/name"}).text, label(pods));
  EXPECT_NE(label(proxy), label(pods));
  const io::Yaml& listener = in(envoy, {"static_resources", "listeners", "0", "address"});
  EXPECT_EQ(in(listener, {"socket_address", "port_value"}).text,
            in(proxy, below(pod, {"ports", "0", "containerPort"})).text);
  const io::Yaml& cluster = in(envoy, {"static_resources", "clusters", "0"});
  const io::Yaml& address = in(cluster, {"load_assignment", "endpoints", "0", "lb_endpoints", "0",
                                         "endpoint", "address", "socket_address"});
  EXPECT_EQ(in(address, {"address"}).text, in(servers, {"metadata", "name"}).text);
  EXPECT_EQ(in(servers, {"spec", "clusterIP"}).text, "None");
  for (const io::Yaml* port :
       {&in(address, {"port_value"}), &in(servers, {"spec", "ports", "0", "port"}),
        &in(pods, below(pod, {"ports", "0", "containerPort"}))})
    EXPECT_EQ(port->text, "8123");
  EXPECT_EQ(in(cluster, {"health_checks", "0", "http_health_check", "path"}).text,
            in(pods, below(pod, {"readinessProbe", "httpGet", "path"})).text);
  EXPECT_EQ(in(yaml_of(t / "k/kustomization.yaml"), {"configMapGenerator", "0", "name"}).text,
            in(proxy, {"spec", "template", "spec", "volumes", "0", "configMap", "name"}).text);
  // What the autoscaler follows is there: in the adapter's rules and in /metrics.
  std::set<std::string> followed, ruled;
  for (const io::Yaml& m : in(hpa, {"spec", "metrics"}).items)
    if (const io::Yaml* of = m.find("pods")) followed.insert(in(*of, {"metric", "name"}).text);
  for (const io::Yaml& rule : in(adapter, {"rules", "custom"}).items) {
    const std::string name = in(rule, {"name", "as"}).text;
    EXPECT_TRUE(in(rule, {"seriesQuery"}).text.starts_with(name + "{"));
    EXPECT_EQ(in(rule, {"name", "matches"}).text, "^" + name + "$");
    ruled.insert(name);
  }
  EXPECT_EQ(followed, (std::set<std::string>{"tandem_queue_length", "tandem_texts_waiting"}));
  EXPECT_EQ(followed, ruled);
  const Started server(std::string(std::getenv("TANDEM_TOOL")) + " serve " + (t / "models") +
                       " --port 0");
  const std::string metrics = server.get("/metrics").body;
  for (const std::string& name : followed)
    EXPECT_TRUE(has(metrics, "# TYPE " + name + " gauge\n") && has(metrics, "\n" + name + "{"))
        << name;
  EXPECT_EQ(
      server.get(in(cluster, {"health_checks", "0", "http_health_check", "path"}).text).status,
      200);
  if (shell("command -v envoy > /dev/null").code != 0) GTEST_SKIP() << "envoy is not installed";
  const Result valid = shell("envoy --mode validate -c " + (t / "k/envoy.yaml") + " 2>&1");
  EXPECT_EQ(valid.code, 0) << valid.text;
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(a);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&a), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size), 0);
  close(fd);
  return ntohs(a.sin_port);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  ASSERT_TRUE(has(text, from)) << from;
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}
// The line or lines from `begin` to `end`, once for each port in the place of 8000.
void repeat_for(std::string& text, const std::string& begin, const std::string& end,
                const std::vector<int>& ports) {
  size_t from = 0;
  while ((from = text.find(begin, from)) != text.npos) {
    const size_t to = text.find(end, from) + end.size();
    const std::string part = text.substr(from, to - from);
    std::string out;
    for (const int port : ports) {
      out += part;
      replace_all(out, "8000", std::to_string(port));
    }
    text.replace(from, part.size(), out);
    from += out.size();
  }
}

// A proxy: where it listens, and the command that starts it with the configuration that was written
// for its target, whose ports are changed.
struct ProxyCase {
  const char* name;
  const char* target;
  std::string (*command)(const TempFolder& t, const std::vector<int>& servers, int http, int grpc);
  bool one_port;
};

std::string nginx_command(const TempFolder& t, const std::vector<int>& servers, int http,
                          int grpc) {
  std::string text = read_file(t / "out/nginx.conf");
  replace_all(text, "127.0.0.1:8080", "127.0.0.1:" + std::to_string(http));
  replace_all(text, "127.0.0.1:8081", "127.0.0.1:" + std::to_string(grpc));
  repeat_for(text, "  server 127.0.0.1:", "\n", servers);
  write_file(t / "servers.conf", text);
  std::string rooms;
  for (const char* room : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    rooms += fmt::format("  {}_temp_path {}/{};\n", room, t.path().string(), room);
  write_file(
      t / "nginx.conf",
      fmt::format("daemon off; master_process off; pid {0}/pid; error_log {0}/log warn;\n"
                  "events {{ }}\nhttp {{\n  access_log off;\n{1}  include {0}/servers.conf;\n}}\n",
                  t.path().string(), rooms));
  return "nginx -e " + (t / "log") + " -c " + (t / "nginx.conf");
}

std::string envoy_command(const TempFolder& t, const std::vector<int>& servers, int http, int) {
  std::string text = read_file(t / "out/envoy.yaml");
  replace_all(text, "0.0.0.0, port_value: 8080", "127.0.0.1, port_value: " + std::to_string(http));
  replace_all(text, "port_value: 9901", "port_value: 0");
  replace_all(text, "net-servers", "127.0.0.1");
  repeat_for(text, "              - endpoint:\n", "8000}\n", servers);
  write_file(t / "envoy.yaml", text);
  return "envoy --concurrency 1 --disable-hot-restart --log-level warning -c " +
         (t / "envoy.yaml") + " 2> " + (t / "log");
}

const ProxyCase kProxies[] = {{"nginx", "docker", nginx_command, false},
                              {"envoy", "k8s", envoy_command, true}};

class BehindAProxy : public testing::TestWithParam<ProxyCase> {};

// A process that a command starts, until the test ends.
class Child {
 public:
  explicit Child(const std::string& command) : pid_(fork()) {
    if (pid_ != 0) return;
    execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
    _exit(127);
  }
  ~Child() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

// Clients that ask all the time, a hundred times over each connection; one that failed is left.
class ProxyClients {
 public:
  ProxyClients(int http, int grpc) {
    const auto client = [this](std::atomic<int>& answers, std::function<void()> ask) {
      threads_.emplace_back([this, &answers, ask = std::move(ask)] {
        while (!stop_) {
          try {
            ask();
          } catch (const std::exception& e) {
            failed(e.what());
          }
          ++answers;
        }
      });
    };
    for (int k = 0; k < 2; ++k)
      client(by_http, [this, http] {
        thread_local std::unique_ptr<serve::HttpClient> kept;
        thread_local int n = 0;
        std::unique_ptr<serve::HttpClient> c = std::move(kept);
        if (n++ % 100 == 0 || !c) c = std::make_unique<serve::HttpClient>("127.0.0.1", http, 20);
        const serve::HttpResponse r =
            c->post("/predictions/scale", "[[1,2,3,4]]", {{"Content-Type", "application/json"}});
        if (r.status != 200 || r.body != "{\"y\":[[3.0,6.0,9.0,12.0]]}")
          return failed(fmt::format("{} {}", r.status, r.body));
        kept = std::move(c);
      });
    if (grpc > 0)
      client(by_grpc, [this, grpc] {
        thread_local std::unique_ptr<serve::Http2Client> kept;
        thread_local int n = 0;
        std::unique_ptr<serve::Http2Client> c = std::move(kept);
        if (n++ % 100 == 0 || !c) c = std::make_unique<serve::Http2Client>("127.0.0.1", grpc, 20);
        const serve::GrpcAnswer a = serve::grpc_answer(
            c->call("/inference.GRPCInferenceService/ModelInfer",
                    serve::as_body(serve::v2_infer_request("scale", {serve::raw_input()}))));
        if (a.code != 0 || serve::field_of(a.message, 6) != serve::bytes_of_floats({3, 6, 9, 12}))
          return failed(fmt::format("gRPC {} {}, HTTP {}", a.code, a.text, a.http.status));
        kept = std::move(c);
      });
  }
  ~ProxyClients() { stop(); }
  ProxyClients(const ProxyClients&) = delete;
  ProxyClients& operator=(const ProxyClients&) = delete;
  void stop() {
    stop_ = true;
    for (std::thread& t : threads_)
      if (t.joinable()) t.join();
  }
  // Waits until as many more answers have come by each way.
  void more(int n) const {
    const int http = by_http + n, grpc = by_grpc + n;
    const auto begin = Clock::now();
    while ((by_http < http || (threads_.size() > 2 && by_grpc < grpc)) && seconds_since(begin) < 30)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<std::string> failures() {
    const std::lock_guard hold(lock_);
    return failures_;
  }
  std::atomic<int> by_http{0}, by_grpc{0};

 private:
  void failed(const std::string& what) {
    const std::lock_guard hold(lock_);
    failures_.push_back(what);
  }
  std::atomic<bool> stop_{false};
  std::mutex lock_;
  std::vector<std::string> failures_;
  std::vector<std::thread> threads_;
};

bool answers(int port) {
  for (const auto begin = Clock::now(); seconds_since(begin) < 20;) {
    try {
      if (serve::HttpClient("127.0.0.1", port).get("/v2/health/ready").status == 200) return true;
    } catch (const Error&) {}
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST_P(BehindAProxy, AServerThatEndsCostsNoRequest) {
  const ProxyCase& proxy = GetParam();
  if (shell(fmt::format("command -v {} > /dev/null", proxy.name)).code != 0)
    GTEST_SKIP() << proxy.name << " is not installed";
  const TempFolder t;
  serve::put_model(t / "models/scale/1/model.onnx", serve::scale_model(3));
  const Result r = tool("deploy " + (t / "models") + " --target " + proxy.target + " --name net" +
                        kSmall + " -o " + (t / "out"));
  ASSERT_EQ(r.code, 0) << r.text;
  const std::string serve = std::string(std::getenv("TANDEM_TOOL")) + " serve " + (t / "models") +
                            " --port 0 --set drain_delay=2";
  Started a(serve), b(serve);
  ASSERT_TRUE(a.port() > 0 && b.port() > 0);
  const int http = free_port(), grpc = proxy.one_port ? http : free_port();
  const Child child(proxy.command(t, {a.port(), b.port()}, http, grpc));
  ASSERT_TRUE(answers(http)) << text_of(t / "log");
  EXPECT_EQ(serve::HttpClient("127.0.0.1", http).get("/metrics").status, 404);
  ProxyClients clients(http, serve::Http2Frames::available() ? grpc : 0);
  clients.more(100);
  // Both have their part.
  for (const Started* s : {&a, &b})
    EXPECT_FALSE(has(s->get("/metrics").body,
                     "tandem_requests_total{model=\"scale\",version=\"1\",result=\"ok\"} 0\n"));
  EXPECT_EQ(a.stop(), 0);
  clients.more(100);
  clients.stop();
  EXPECT_GE(clients.by_http, 200);
  for (const std::string& failure : clients.failures()) ADD_FAILURE() << failure;
  if (HasFailure()) fmt::print("{}\n", text_of(t / "log"));
  fmt::print("{}: {} answers by HTTP/1.1, {} by gRPC, {} failed\n", proxy.name,
             clients.by_http.load(), clients.by_grpc.load(), clients.failures().size());
}

INSTANTIATE_TEST_SUITE_P(Proxies, BehindAProxy, testing::ValuesIn(kProxies),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::cli_test
