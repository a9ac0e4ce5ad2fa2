// SPDX-License-Identifier: Apache-2.0
// The texts of deploy's targets. Braces hold what fmt fills in; a brace of the text is doubled.
#pragma once

namespace tandem::serve {

inline constexpr const char* kDockerfileHead =
    R"(# {name} on a base image of your own; image/ holds the same files on none at all.
#   docker build --build-arg BASE=debian:bookworm-slim -t {name}:{tag} .
# With a C compiler in the base image (apt-get install gcc), fused loops are compiled at run time.
ARG BASE=debian:bookworm-slim
FROM scratch AS files
)";
inline constexpr const char* kDockerfile = R"(
FROM ${{BASE}}
COPY --from=files /usr/bin/tandem /opt/tandem/bin/tandem
COPY --from=files {libraries} /opt/tandem/lib
COPY --from=files {loader} /opt/tandem/lib/{loader_name}
COPY --from=files /etc/tandem /etc/tandem
COPY --from=files /models /models
ENV TANDEM_SERVE_CONFIG=/etc/tandem/serve.yaml
USER 65532:65532
EXPOSE {port}
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/tandem/lib/{loader_name}", "--library-path", "/opt/tandem/lib", "/opt/tandem/bin/tandem", "serve"]
)";
inline constexpr const char* kDockerNext =
    R"(tar -C image -c . | docker load        # or: skopeo copy oci:image:{tag} containers-storage:{name}:{tag}
docker run --rm --read-only --tmpfs /tmp --memory {memory_docker} -p 127.0.0.1:{port}:{port}{key_option} {name}:{tag}
)";

inline constexpr const char* kDeployment = R"(apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: {name}
spec:
  # The number of replicas is the autoscaler's: hpa.yaml.
  selector:
    matchLabels:
      app.kubernetes.io/name: {name}
  strategy:
    rollingUpdate:
      maxUnavailable: 0
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {name}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "{port}"
        prometheus.io/path: /metrics
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {stop}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: tandem
          image: "{image}"
          imagePullPolicy: IfNotPresent
          ports:
            - name: http
              containerPort: {port}
          resources:
            requests:
              cpu: "1"
              memory: {memory}
            limits:
              memory: {memory}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          startupProbe:
            httpGet:
              path: /v2/health/ready
              port: http
            periodSeconds: 1
            failureThreshold: 120
          readinessProbe:
            httpGet:
              path: /v2/health/ready
              port: http
            periodSeconds: 2
            failureThreshold: 2
          livenessProbe:
            httpGet:
              path: /v2/health/live
              port: http
            periodSeconds: 10
            timeoutSeconds: 5
          volumeMounts:
            - name: tmp
              mountPath: /tmp
{key_mount}      volumes:
        - name: tmp
          emptyDir: {{}}
{key_volume})";
inline constexpr const char* kKeyMount = R"(            - name: keys
              mountPath: /run/secrets/tandem
              readOnly: true
)";
inline constexpr const char* kKeyVolume = R"(        - name: keys
          secret:
            secretName: {}-keys
)";
inline constexpr const char* kKustomization = R"(apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - deployment.yaml
  - servers.yaml
  - proxy.yaml
  - service.yaml
  - hpa.yaml
{key_resource}configMapGenerator:
  - name: {name}-envoy
    files: [envoy.yaml]
)";
inline constexpr const char* kSecret = R"(apiVersion: v1
kind: Secret
metadata:
  name: {name}-keys
type: Opaque
stringData:
  keys: |
)";
inline constexpr const char* kK8sNext =
    R"(skopeo copy oci:image:{tag} docker://REGISTRY/{name}:{tag}
kubectl apply -k .                     # deployment.yaml names the image {image}
kubectl port-forward service/{name} {port}:80
)";

inline constexpr const char* kUnit = R"([Unit]
Description=tandem serve: {name}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
WorkingDirectory=/opt/tandem/{name}
ExecStart=/opt/tandem/{name}/lib/{loader_name} --library-path /opt/tandem/{name}/lib /opt/tandem/{name}/bin/tandem serve --config /opt/tandem/{name}/serve.yaml{key_argument}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
TimeoutStopSec={stop}
MemoryMax={memory_systemd}
{key_credential}CacheDirectory=tandem-{name}
CacheDirectoryMode=0700
Environment=TANDEM_CACHE_DIR=%C/tandem-{name}
# It reads its folder, listens, and keeps compiled loops in its cache: nothing else.
DynamicUser=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target
)";
inline constexpr const char* kInstall = R"TEXT(#!/bin/sh
# Installs the service {name} to /opt/tandem/{name} and starts it. Another version replaces what is
# there. With DESTDIR=FOLDER everything goes below it, for packages, and nothing is started.
set -eu
root=${{DESTDIR:-}}
[ -n "$root" ] || [ "$(id -u)" = 0 ] || {{ echo "run it as root: sudo $0" >&2; exit 1; }}
cd "$(dirname "$0")"
to=$root/opt/tandem/{name}
mkdir -p "$root/opt/tandem" "$root/etc/tandem" "$root/etc/systemd/system"
rm -rf "$to.new"
mkdir "$to.new"
cp -R bin lib models serve.yaml "$to.new/"
chmod -R u=rwX,go=rX "$to.new"
rm -rf "$to.old"
[ ! -e "$to" ] || mv "$to" "$to.old"
mv "$to.new" "$to"
rm -rf "$to.old"
[ ! -e keys ] || install -m 600 keys "$root/etc/tandem/{name}.keys"
install -m 644 {name}.service "$root/etc/systemd/system/{name}.service"
[ -n "$root" ] || {{ systemctl daemon-reload && systemctl enable {name} && systemctl restart {name}; }}
)TEXT";
inline constexpr const char* kSystemdNext =
    R"TEXT(sudo ./install.sh                      # /opt/tandem/{name} and {name}.service
journalctl -u {name}                   # ready at http://127.0.0.1:{port}
./lib/{loader_name} --library-path lib ./bin/tandem serve --config serve.yaml   # without installing it
)TEXT";

inline constexpr const char* kUserData = R"TEXT(#cloud-config
# Starts {name} on a new machine with systemd. Put {name}.tar.gz where the machine can fetch it, write
# its address in the place of URL below, and give this file to the machine as its user data.
write_files:
  - path: /run/tandem/{name}.sh
    permissions: "0700"
    content: |
      #!/bin/sh
      set -eu
      url='URL'
      mkdir -p /var/tmp/tandem
      cd /var/tmp/tandem
      curl -fsSL --retry 5 --retry-all-errors -o package.tar.gz "$url"
      echo '{digest}  package.tar.gz' | sha256sum -c -
      rm -rf package
      mkdir package
      tar -xzf package.tar.gz -C package
      ./package/install.sh
      cd /
      rm -rf /var/tmp/tandem
runcmd:
  - [/bin/sh, /run/tandem/{name}.sh]
)TEXT";
inline constexpr const char* kCloudInitNext =
    R"TEXT(aws s3 cp {name}.tar.gz s3://BUCKET/ && aws s3 presign s3://BUCKET/{name}.tar.gz   # or any address; write it into user-data.yaml
cloud-init schema --config-file user-data.yaml
aws ec2 run-instances --user-data file://user-data.yaml --image-id IMAGE --instance-type TYPE   # it listens at 127.0.0.1:{port}: --set host=... for others
)TEXT";

inline constexpr const char* kSageMaker = R"TEXT(#!/bin/sh
# Pushes the image to ECR and starts an endpoint of SageMaker. Needs skopeo and the AWS CLI.
#   ROLE=arn:aws:iam::123456789012:role/sagemaker ./deploy.sh
set -eu
: "${{ROLE:?the ARN of the role that SageMaker takes}}"
name=${{NAME:-{name}}} type=${{TYPE:-ml.c7i.large}}
cd "$(dirname "$0")"
account=$(aws sts get-caller-identity --query Account --output text)
region=${{AWS_REGION:-$(aws configure get region)}}
registry=$account.dkr.ecr.$region.amazonaws.com
aws ecr describe-repositories --repository-names "$name" > /dev/null 2>&1 ||
  aws ecr create-repository --repository-name "$name" > /dev/null
aws ecr get-login-password --region "$region" | skopeo login -u AWS --password-stdin "$registry"
# SageMaker takes manifests of Docker's form.
skopeo copy --format v2s2 oci:image:{tag} "docker://$registry/$name:{tag}"
aws sagemaker create-model --model-name "$name" --execution-role-arn "$ROLE" \
  --primary-container "Image=$registry/$name:{tag}"
aws sagemaker create-endpoint-config --endpoint-config-name "$name" --production-variants \
  "VariantName=all,ModelName=$name,InstanceType=$type,InitialInstanceCount=1"
aws sagemaker create-endpoint --endpoint-name "$name" --endpoint-config-name "$name"
)TEXT";
inline constexpr const char* kSageMakerNext =
    R"TEXT(ROLE=arn:aws:iam::ACCOUNT:role/ROLE ./deploy.sh
aws sagemaker-runtime invoke-endpoint --endpoint-name {name} --content-type application/json --body fileb://input out
)TEXT";

inline constexpr const char* kVertex = R"TEXT(#!/bin/sh
# Pushes the image to Artifact Registry and deploys it to an endpoint of Vertex AI. Needs skopeo and
# gcloud.
#   PROJECT=my-project REGION=europe-west4 ./deploy.sh
set -eu
: "${{PROJECT:?the project}}" "${{REGION:?the region}}"
name=${{NAME:-{name}}} repository=${{REPOSITORY:-tandem}} type=${{TYPE:-n1-standard-2}}
cd "$(dirname "$0")"
registry=$REGION-docker.pkg.dev
image=$registry/$PROJECT/$repository/$name:{tag}
gcloud artifacts repositories describe "$repository" --project="$PROJECT" --location="$REGION" \
  > /dev/null 2>&1 || gcloud artifacts repositories create "$repository" --project="$PROJECT" \
  --location="$REGION" --repository-format=docker
gcloud auth print-access-token | skopeo login -u oauth2accesstoken --password-stdin "$registry"
skopeo copy oci:image:{tag} "docker://$image"
# Vertex AI hands these to the server as AIP_HTTP_PORT, AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE.
gcloud ai models upload --project="$PROJECT" --region="$REGION" --display-name="$name" \
  --model-id="$name" --container-image-uri="$image" --container-ports={port} \
  --container-health-route=/ping --container-predict-route=/invocations
endpoint=$(gcloud ai endpoints create --project="$PROJECT" --region="$REGION" \
  --display-name="$name" --format='value(name)')
gcloud ai endpoints deploy-model "$endpoint" --project="$PROJECT" --region="$REGION" \
  --model="$name" --display-name="$name" --machine-type="$type" --traffic-split=0=100
)TEXT";
inline constexpr const char* kVertexNext =
    R"TEXT(PROJECT=PROJECT REGION=REGION ./deploy.sh
gcloud ai endpoints predict ENDPOINT --region=REGION --json-request=request.json
)TEXT";

}  // namespace tandem::serve
