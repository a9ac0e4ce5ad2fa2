// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/http/server.h"

#include <fmt/format.h>

#include "tandem/serve/http/loop_internal.h"

namespace tandem::serve {

struct HttpServer::State {
  HttpLoop loop;
};

HttpServer::HttpServer(HttpOptions options, HttpHandler handler, HttpRefusal refusal)
    : state_(new State{{std::move(options), std::move(handler), std::move(refusal)}}) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return state_->loop.port; }
std::string HttpServer::url() const {
  const std::string& host = state_->loop.options.host;
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", state_->loop.options.tls.empty() ? "http" : "https",
                     v6 ? "[" + host + "]" : host, port());
}
void HttpServer::run() { state_->loop.run(); }
void HttpServer::drain(double delay, double wait) noexcept {
  HttpLoop& loop = state_->loop;
  loop.drain_delay.store(delay);
  loop.drain_wait.store(wait);
  loop.drains.fetch_add(1);
  loop.wake_up();
}
void HttpServer::reload() noexcept {
  state_->loop.reloads.fetch_add(1);
  state_->loop.wake_up();
}
bool HttpServer::draining() const { return state_->loop.drains.load() > 0; }
HttpCounts HttpServer::counts() const {
  const HttpLoop& l = state_->loop;
  return {l.accepted.load(), l.open.load(), l.requests.load(), l.refused.load(), l.dropped.load()};
}

}  // namespace tandem::serve
