// SPDX-License-Identifier: Apache-2.0
// What stands in front of several servers: Envoy in a cluster, nginx elsewhere, and what the
// number of servers follows. Braces hold what fmt fills in; a brace of the text is doubled.
#pragma once

namespace tandem::serve {

// A request is sent again where no server has read it, and nowhere else: a connection that was
// refused, a stream that HTTP/2 says was not begun.
inline constexpr const char* kEnvoy =
    R"(# Envoy in front of the servers of {name}: HTTP/1.1, HTTP/2 and gRPC at one port, each request to the
# server with the fewest at the time. Checked by: envoy --mode validate -c envoy.yaml
admin:
  address:
    socket_address: {{address: 127.0.0.1, port_value: 9901}}
overload_manager:
  resource_monitors:
    - name: envoy.resource_monitors.global_downstream_max_connections
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig
        max_active_downstream_connections: 10000
static_resources:
  listeners:
    - name: http
      address:
        socket_address: {{address: 0.0.0.0, port_value: {proxy_port}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: servers
                codec_type: AUTO
                use_remote_address: true
                request_headers_timeout: 10s
                stream_idle_timeout: {patience}s
                http2_protocol_options: {{max_concurrent_streams: 256}}
                route_config:
                  name: servers
                  virtual_hosts:
                    - name: servers
                      domains: ["*"]
                      routes:
                        - match: {{path: /metrics}}   # each server has its own
                          direct_response: {{status: 404}}
                        - match: {{prefix: /}}
                          route:
                            cluster: servers
                            timeout: 0s              # the servers have deadlines
                            retry_policy:
                              retry_on: connect-failure,refused-stream
                              num_retries: 3
                              retry_host_predicate:
                                - name: envoy.retry_host_predicates.previous_hosts
                                  typed_config:
                                    "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
                              host_selection_retry_max_attempts: 3
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: servers
      type: STRICT_DNS
      connect_timeout: 1s
      lb_policy: LEAST_REQUEST
      common_lb_config:
        healthy_panic_threshold: {{value: 0}}
      load_assignment:
        cluster_name: servers
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    socket_address: {{address: {name}-servers, port_value: {port}}}
      # A server that drains is not ready, and still answers for {drain_delay} s.
      health_checks:
        - http_health_check: {{path: /v2/health/ready}}
          interval: 1s
          no_traffic_interval: 1s
          timeout: 2s
          unhealthy_threshold: 2
          healthy_threshold: 1
      circuit_breakers:
        thresholds:
          - max_connections: {connections}
            max_pending_requests: 10000
            max_requests: 10000
            max_retries: 100
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          common_http_protocol_options: {{idle_timeout: {idle}s}}   # before the servers close
          use_downstream_protocol_config:
            http_protocol_options: {{}}
            http2_protocol_options: {{}}
)";
inline constexpr const char* kEnvoyDeployment = R"(apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}-proxy
  labels:
    app.kubernetes.io/name: {name}-proxy
spec:
  replicas: 2
  selector:
    matchLabels:
      app.kubernetes.io/name: {name}-proxy
  strategy: {{rollingUpdate: {{maxUnavailable: 0}}}}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {name}-proxy
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {stop}
      securityContext: {{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
        - name: envoy
          image: envoyproxy/envoy:v1.39-latest
          command: [envoy]
          args: [-c, /etc/envoy/envoy.yaml, --log-level, warning, --drain-time-s, "5", --drain-strategy, immediate]
          ports:
            - name: http
              containerPort: {proxy_port}
          resources: {{requests: {{cpu: 200m, memory: 128Mi}}, limits: {{memory: 256Mi}}}}
          securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
          # Ready where a server is.
          readinessProbe: {{httpGet: {{path: /v2/health/ready, port: http}}, periodSeconds: 2, failureThreshold: 2}}
          livenessProbe: {{tcpSocket: {{port: http}}, periodSeconds: 10}}
          lifecycle:
            preStop:
              exec:
                # Answers say that connections end; clients come back to another proxy.
                command:
                  - bash
                  - -c
                  - >-
                    exec 3<>/dev/tcp/127.0.0.1/9901;
                    printf 'POST /drain_listeners?graceful HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' >&3;
                    sleep 8
          volumeMounts:
            - name: config
              mountPath: /etc/envoy
              readOnly: true
      volumes:
        - name: config
          configMap:
            name: {name}-envoy
)";
inline constexpr const char* kService = R"(apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  # For servers without Envoy: {name}. Calls of gRPC then stay with one server for as long as their connection lives.
  selector:
    app.kubernetes.io/name: {name}-proxy
  ports:
    - name: http
      port: 80
      targetPort: http
)";
inline constexpr const char* kServersService = R"(apiVersion: v1
kind: Service
metadata:
  name: {name}-servers
spec:
  clusterIP: None
  selector:
    app.kubernetes.io/name: {name}
  ports:
    - name: http
      port: {port}
      targetPort: http
)";

inline constexpr const char* kAutoscaler = R"(apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {name}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {name}
  minReplicas: 2
  maxReplicas: 10
  metrics:
    # What waits, from /metrics by way of prometheus-adapter.yaml. A cluster without it scales by the
    # processor alone.
{queue_metrics}    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: 80
  behavior:
    scaleDown:
      policies:
        - type: Pods
          value: 1
          periodSeconds: 60
)";
inline constexpr const char* kQueueMetric = R"(    - type: Pods
      pods:
        metric:
          name: {metric}
        target:
          type: AverageValue
          averageValue: "{target}"
)";
inline constexpr const char* kAdapter =
    R"(# Values of the chart prometheus-adapter: which of the servers' metrics hpa.yaml can follow.
#   helm upgrade --install prometheus-adapter prometheus-community/prometheus-adapter -f prometheus-adapter.yaml
# Prometheus finds the servers by the annotations of their pods, and writes the labels namespace and pod.
rules:
  custom:
{rules})";
inline constexpr const char* kAdapterRule =
    R"(    - seriesQuery: '{metric}{{namespace!="",pod!=""}}'
      resources:
        overrides:
          namespace: {{resource: namespace}}
          pod: {{resource: pod}}
      name:
        matches: ^{metric}$
        as: {metric}
      metricsQuery: sum(avg_over_time(<<.Series>>{{<<.LabelMatchers>>}}[1m])) by (<<.GroupBy>>)
)";

// POST is sent again by nginx only where it was not sent to a server that broke off; so it says
// nothing of non_idempotent.
inline constexpr const char* kNginx =
    R"(# nginx in front of several servers of {name}: /etc/nginx/conf.d/{name}.conf
# HTTP/1.1 at port {proxy_port}, gRPC at {grpc_port}; each request to the server with the fewest at the time. A server
# that cannot be reached is left out for 2 s, and what it did not read goes to another one.
upstream {name}-http {{
  zone {name}-http 128k;
  least_conn;
  server 127.0.0.1:{port} max_fails=1 fail_timeout=2s;   # a line for each server
  keepalive 64;
  keepalive_timeout {idle}s;                             # before the servers close
}}
upstream {name}-grpc {{
  zone {name}-grpc 128k;
  least_conn;
  server 127.0.0.1:{port} max_fails=1 fail_timeout=2s;   # the same lines
  keepalive 64;
  keepalive_timeout {idle}s;
}}
server {{
  listen 127.0.0.1:{proxy_port};                         # elsewhere with keys, or TLS and a check of its own
  client_max_body_size {body}m;
  location = /metrics {{ return 404; }}                   # each server has its own
  location / {{
    proxy_pass http://{name}-http;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_request_buffering off;
    proxy_buffering off;                                 # texts come token by token
    proxy_connect_timeout 1s;
    proxy_read_timeout {patience}s;
    proxy_next_upstream error timeout;
    proxy_next_upstream_tries 3;
    proxy_next_upstream_timeout 5s;
  }}
}}
server {{
  listen 127.0.0.1:{grpc_port} http2;
  client_max_body_size 0;                                # of a stream; the servers bound messages
  location / {{
    grpc_pass grpc://{name}-grpc;
    grpc_connect_timeout 1s;
    grpc_read_timeout {patience}s;
    grpc_next_upstream error timeout;
    grpc_next_upstream_tries 3;
    grpc_next_upstream_timeout 5s;
  }}
}}
)";

}  // namespace tandem::serve
