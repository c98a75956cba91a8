{{- /* Names, labels, and the parts that several pods share. */ -}}

{{- define "holdfast.fullname" -}}
{{- if contains "holdfast" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-holdfast" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* Arguments: the root context and the component. */ -}}
{{- define "holdfast.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "holdfast.servicesImage" -}}
{{ .Values.image.services | default (include "holdfast.image" .) }}
{{- end -}}

{{- define "holdfast.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.keysSecret" -}}
{{ .Values.keys.existingSecret | default (printf "%s-keys" (include "holdfast.fullname" .)) }}
{{- end -}}

{{- /* The Secret with the keys for calls to the secrets service. It is one of its own, so that a job can make it for
an installation that has the other keys already. */ -}}
{{- define "holdfast.secretsKeysSecret" -}}
{{ .Values.keys.existingSecret | default (printf "%s-secrets-keys" (include "holdfast.fullname" .)) }}
{{- end -}}

{{- define "holdfast.backendsSecret" -}}
{{- if .Values.backends.bundled -}}
{{ include "holdfast.fullname" . }}-backends
{{- else -}}
{{ required "backends.existingSecret: name the Secret with the URLs of Postgres, NATS and Redis, or set backends.bundled=true for a trial (docs/install.md)" .Values.backends.existingSecret }}
{{- end -}}
{{- end -}}

{{- /* The Secret with the URLs of NATS and Redis. */ -}}
{{- define "holdfast.busSecret" -}}
{{- if .Values.backends.bundled -}}
{{ include "holdfast.fullname" . }}-bus
{{- else -}}
{{ include "holdfast.backendsSecret" . }}
{{- end -}}
{{- end -}}

{{- /* Whether the job makes the certificates: nobody else issues them. */ -}}
{{- define "holdfast.makesCertificates" -}}
{{- if and .Values.tls.enabled (not .Values.tls.issuerRef) }}true{{ end -}}
{{- end -}}

{{- /* Whether the job `secrets` runs. */ -}}
{{- define "holdfast.makesSecrets" -}}
{{- if or (not .Values.keys.existingSecret) .Values.backends.bundled (include "holdfast.makesCertificates" .) }}true{{ end -}}
{{- end -}}

{{- define "holdfast.scheme" -}}
{{ .Values.tls.enabled | ternary "https" "http" }}
{{- end -}}

{{- /* Names for which a service has a certificate; the first is common to all. Arguments: root, name. */ -}}
{{- define "holdfast.certificateNames" -}}
{{- $fullname := include "holdfast.fullname" .root -}}
{{- $host := printf "%s-%s" $fullname .name -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $names := list $fullname $host (printf "%s.%s" $host $namespace) (printf "%s.%s.svc" $host $namespace) "localhost" -}}
{{- if eq .name "gateway" }}{{ $names = concat $names .root.Values.tls.gatewayNames }}{{ end -}}
{{- join "," $names -}}
{{- end -}}

{{- /* Where the certificate of a service is: {secret, certificate, key, authorities}. Arguments: root, name. */ -}}
{{- define "holdfast.certificate" -}}
{{- $fullname := include "holdfast.fullname" .root -}}
{{- if include "holdfast.makesCertificates" .root -}}
secret: {{ $fullname }}-certificates
certificate: {{ .name }}.crt
key: {{ .name }}.key
authorities: authority.crt
{{- else -}}
secret: {{ $fullname }}-{{ .name }}-tls
certificate: tls.crt
key: tls.key
authorities: ca.crt
{{- end -}}
{{- end -}}

{{- /* Volume with some keys of a Secret; the files change with it. Arguments: name, secret, items (path: key). */ -}}
{{- define "holdfast.certificateVolume" -}}
- name: {{ .name }}
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .secret }}
          items:
{{- range $path, $key := .items }}
            - {key: {{ $key }}, path: {{ $path }}}
{{- end }}
{{- end -}}

{{- define "holdfast.adminKeySecret" -}}
{{ .Values.bootstrap.secretName | default (printf "%s-admin-key" (include "holdfast.fullname" .)) }}
{{- end -}}

{{- /* The runners, of all pools. */ -}}
{{- define "holdfast.runnerService" }}
  values: agentRunner
  ports: {http: 18791, metrics: 18891}
  listen: {HOLDFAST_RUNNER__LISTEN: http, HOLDFAST_TELEMETRY__METRICS_LISTEN: metrics}
  grace: HOLDFAST_RUNNER__SHUTDOWN_GRACE
  database: database-runner-url
  buses: [nats, redis]
  keys:
    HOLDFAST_MESH__KEY: mesh-agent-runner
    HOLDFAST_MESH__NODE_KEY: node-key
  secretsKeys: {HOLDFAST_MESH__SECRETS_KEY: secrets-agent-runner}
  calls: [memory-service, secrets-service]
  internet: true
{{- end -}}

{{- /* Port at which runners offer the egress proxy to the pods of commands; empty if those have no network. */ -}}
{{- define "holdfast.commandProxyPort" -}}
{{- if and .Values.commandPods.enabled (eq (dig "runner" "sandbox" "network" "off" .Values.config) "proxy") -}}
18797
{{- end -}}
{{- end -}}

{{- /* Values of a service; those of a pool of runners are the runners' own but for what the pool says.
Arguments: root, service. */ -}}
{{- define "holdfast.serviceValues" -}}
{{- $values := get .root.Values .service.values -}}
{{- with .service.pool -}}
{{- $values = mergeOverwrite (deepCopy $values) (get $.root.Values.runnerPools . | default dict) -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{- /*
The services, as their code defines them: ports, the settings that each reads from a Secret, and the
services that each calls. tests/helm/check.py compares this with the sources.
*/ -}}
{{- define "holdfast.services" -}}
gateway:
  values: gateway
  ports: {http: 18789, grpc: 18790, metrics: 18889}
  listen: {HOLDFAST_GATEWAY__HTTP: http, HOLDFAST_GATEWAY__GRPC: grpc, HOLDFAST_TELEMETRY__METRICS_LISTEN: metrics}
  grace: HOLDFAST_GATEWAY__SHUTDOWN_GRACE
  database: database-gateway-url
  buses: [nats, redis]
  keys:
    HOLDFAST_SECRETS__PEPPER: pepper
    HOLDFAST_MESH__KEY: mesh-gateway
    HOLDFAST_MESH__CALLER_KEYS: callers-gateway
    HOLDFAST_MESH__NODE_PUBLIC_KEY: node-public-key
  secretsKeys: {HOLDFAST_MESH__SECRETS_KEY: secrets-gateway}
  calls: [memory-service, secrets-service]
  internet: true
agent-runner:
{{ include "holdfast.runnerService" . }}
{{- $root := . }}
{{- range $pool, $_ := .Values.runnerPools }}
agent-runner-{{ $pool }}:
{{ include "holdfast.runnerService" $root }}
  program: agent-runner
  pool: {{ $pool | quote }}
{{- end }}
channel-bridge:
  values: channelBridge
  ports: {http: 18792, metrics: 18892}
  listen: {HOLDFAST_BRIDGE__LISTEN: http, HOLDFAST_TELEMETRY__METRICS_LISTEN: metrics}
  grace: HOLDFAST_BRIDGE__SHUTDOWN_GRACE
  database: database-bridge-url
  buses: [nats, redis]
  keys:
    HOLDFAST_MESH__KEY: mesh-channel-bridge
  secretsKeys: {HOLDFAST_MESH__SECRETS_KEY: secrets-channel-bridge}
  calls: [gateway, secrets-service]
  internet: true
scheduler:
  values: scheduler
  ports: {http: 18793, metrics: 18893}
  listen: {HOLDFAST_SCHEDULER__LISTEN: http, HOLDFAST_TELEMETRY__METRICS_LISTEN: metrics}
  grace: HOLDFAST_SCHEDULER__SHUTDOWN_GRACE
  database: database-scheduler-url
  buses: [nats, redis]
  keys: {}
  calls: []
  internet: false
memory-service:
  values: memoryService
  ports: {grpc: 18794, metrics: 18894}
  listen: {HOLDFAST_MEMORY__LISTEN: grpc, HOLDFAST_TELEMETRY__METRICS_LISTEN: metrics}
  grace: HOLDFAST_MEMORY__SHUTDOWN_GRACE
  database: database-memory-url
  buses: []
  keys:
    HOLDFAST_MESH__CALLER_KEYS: callers-memory-service
  calls: []
  internet: {{ eq (dig "memory" "embedding" "engine" "auto" .Values.config) "openai" }}
secrets-service:
  values: secretsService
  ports: {grpc: 18796, metrics: 18896}
  listen: {HOLDFAST_SECRETS_SERVICE__LISTEN: grpc, HOLDFAST_TELEMETRY__METRICS_LISTEN: metrics}
  grace: HOLDFAST_SECRETS_SERVICE__SHUTDOWN_GRACE
  buses: []
  keys:
    HOLDFAST_SECRETS__KEK: kek
  secretsKeys: {HOLDFAST_MESH__CALLER_KEYS: callers-secrets-service}
  calls: []
  internet: false
{{- end -}}

{{- /* Secrets that a service reads: a list of {variable, secret, key}. Arguments: root, service. */ -}}
{{- define "holdfast.secretFiles" -}}
{{- $root := .root -}}
{{- $backends := include "holdfast.backendsSecret" $root -}}
{{- $keys := include "holdfast.keysSecret" $root -}}
{{- $database := $backends -}}
{{- if eq .service.values "agentRunner" -}}
{{- /* A login reaches one pool, so a pool does not have that of the other runners. */ -}}
{{- $runner := $root.Values.agentRunner -}}
{{- if .service.pool }}{{ $runner = get $root.Values.runnerPools .service.pool | default dict }}{{ end -}}
{{- $database = $runner.databaseSecret | default $backends -}}
{{- end -}}
{{- $files := list -}}
{{- with .service.database -}}
{{- $files = append $files (dict "variable" "HOLDFAST_DATABASE__URL" "secret" $database "key" .) -}}
{{- end -}}
{{- range .service.buses -}}
{{- $files = append $files (dict "variable" (printf "HOLDFAST_%s__URL" (upper .)) "secret" (include "holdfast.busSecret" $root) "key" (replace "database" . $.service.database)) -}}
{{- end -}}
{{- if and (has "redis" .service.buses) $root.Values.backends.redis.sentinel.enabled -}}
{{- if $root.Values.backends.bundled -}}
{{- fail "backends.redis.sentinel.enabled: the bundled Redis has no Sentinels; set backends.bundled=false and name your backends (docs/install.md)" -}}
{{- end -}}
{{- $files = append $files (dict "variable" "HOLDFAST_REDIS__SENTINELS" "secret" $backends "key" "redis-sentinels") -}}
{{- end -}}
{{- range $variable, $key := .service.keys -}}
{{- $files = append $files (dict "variable" $variable "secret" $keys "key" $key) -}}
{{- if has $key $root.Values.keys.previous -}}
{{- $files = append $files (dict "variable" (replace "SECRETS__" "SECRETS__PREVIOUS_" $variable) "secret" $keys "key" (printf "previous-%s" $key)) -}}
{{- end -}}
{{- end -}}
{{- range $variable, $key := .service.secretsKeys -}}
{{- $files = append $files (dict "variable" $variable "secret" (include "holdfast.secretsKeysSecret" $root) "key" $key) -}}
{{- end -}}
{{- if and (eq .service.values "memoryService") $root.Values.memoryService.embeddingKeySecret -}}
{{- $files = append $files (dict "variable" "HOLDFAST_MEMORY__EMBEDDING__API_KEY" "secret" $root.Values.memoryService.embeddingKeySecret "key" "api-key") -}}
{{- end -}}
{{- dict "files" $files | toYaml -}}
{{- end -}}

{{- /* Variables that name the mounted files. Argument: the list of holdfast.secretFiles. */ -}}
{{- define "holdfast.secretEnv" -}}
{{- range . }}
- name: {{ .variable }}_FILE
  value: /run/holdfast/{{ .key }}
{{- end }}
{{- end -}}

{{- /* One volume with exactly these keys. A pod waits until all of them exist. */ -}}
{{- define "holdfast.secretVolume" -}}
{{- $bySecret := dict -}}
{{- range . -}}
{{- $_ := set $bySecret .secret (append (get $bySecret .secret | default list) .key) -}}
{{- end -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
{{- range $secret, $keys := $bySecret }}
      - secret:
          name: {{ $secret }}
          items:
{{- range $keys }}
            - {key: {{ . }}, path: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* What a client of the Kubernetes API finds in its pod: a token, and the cluster's authority. */ -}}
{{- define "holdfast.accountVolume" -}}
- name: account
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
      - downwardAPI:
          items:
            - path: namespace
              fieldRef: {fieldPath: metadata.namespace}
{{- end -}}

{{- define "holdfast.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "holdfast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* The first lines of the spec of every pod that runs Holdfast. Arguments: root, account. */ -}}
{{- define "holdfast.podStart" -}}
serviceAccountName: {{ include "holdfast.fullname" .root }}-{{ .account }}
automountServiceAccountToken: false
# Kubernetes would add variables like HOLDFAST_GATEWAY_PORT, which look like misspelt settings.
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
securityContext:
{{ include "holdfast.podSecurity" 10001 | indent 2 }}
{{- end -}}

{{- /* Where pods run. Argument: values of a service or backend. */ -}}
{{- define "holdfast.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{- /* A value as TOML. Numbers of values are floats here, and TOML's integers must not be. */ -}}
{{- define "holdfast.toml" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true -}}
{{- range $key, $value := . -}}
{{- if not $first }}, {{ end }} {{ $key }} = {{ include "holdfast.toml" $value }}
{{- $first = false -}}
{{- end }} }
{{- else if kindIs "slice" . -}}
[
{{- range $at, $value := . -}}
{{- if $at }}, {{ end }}{{ include "holdfast.toml" $value }}
{{- end -}}
]
{{- else if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else if kindIs "string" . -}}
{{ . | toRawJson }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- define "holdfast.configFile" -}}
{{- range $table, $settings := .Values.config }}
[{{ $table }}]
{{- range $name, $value := $settings }}
{{ $name }} = {{ include "holdfast.toml" $value }}
{{- end }}
{{ end }}
{{- end -}}

{{- /* Host and port of the OTLP collector, if there is one. */ -}}
{{- define "holdfast.otlpPort" -}}
{{- with dig "telemetry" "otlp_endpoint" "" .Values.config -}}
{{- $host := (urlParse .).host -}}
{{- if contains ":" $host }}{{ regexFind "[0-9]+$" $host }}{{ else if hasPrefix "https" . }}443{{ else }}80{{ end -}}
{{- end -}}
{{- end -}}
