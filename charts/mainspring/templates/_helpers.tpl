{{/* The chart's name, shortened to what a label may hold. */}}
{{- define "mainspring.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects. */}}
{{- define "mainspring.fullname" -}}
{{- $name := include "mainspring.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the controller's pods; they cannot change in the life of a release. */}}
{{- define "mainspring.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mainspring.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* The labels of every object. */}}
{{- define "mainspring.labels" -}}
{{ include "mainspring.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "mainspring.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "mainspring.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name must name an existing ServiceAccount where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The reference of an image; takes the root and the image's values. */}}
{{- define "mainspring.imageOf" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The name of the webhooks' Service, Secret and roles. */}}
{{- define "mainspring.webhookName" -}}
{{- printf "%s-webhook" (include "mainspring.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* What API servers call the webhooks. */}}
{{- define "mainspring.webhookDNSName" -}}
{{- printf "%s.%s.svc" (include "mainspring.webhookName" .) .Release.Namespace -}}
{{- end -}}

{{/* Whether the agents of simulated nodes run. */}}
{{- define "mainspring.hasHollow" -}}
{{- if and .Values.hollow.enabled (eq .Values.cloudProvider.name "simulated") -}}true{{- end -}}
{{- end -}}

{{/* Whether the certificate of POST /overrun is given. */}}
{{- define "mainspring.hasOverrunSecret" -}}
{{- if and .Values.overrun.enabled .Values.overrun.certificateSecret -}}true{{- end -}}
{{- end -}}

{{/* The name of the node agents' objects. */}}
{{- define "mainspring.agentName" -}}
{{- printf "%s-agent" (include "mainspring.fullname" . | trunc 57 | trimSuffix "-") -}}
{{- end -}}

{{/* What selects the node agents' pods. */}}
{{- define "mainspring.agentSelectorLabels" -}}
app.kubernetes.io/name: {{ include "mainspring.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "mainspring.leaderElectionNamespace" -}}
{{- default .Release.Namespace .Values.leaderElection.namespace -}}
{{- end -}}

{{/* Whether the ConfigMap of the simulated cloud has anything in it. */}}
{{- define "mainspring.hasCatalogue" -}}
{{- if or .Values.cloudProvider.catalogue .Values.cloudProvider.instanceTypes -}}true{{- end -}}
{{- end -}}

{{/* The Secrets that measuring nodes and telling of migrations need: the name of the volume, and the Secret's. */}}
{{- define "mainspring.migrationSecrets" -}}
{{- $migration := .Values.settings.migration -}}
{{- range $name, $secret := dict "influx-ca" $migration.influx.caSecret "prometheus-ca" $migration.usage.prometheus.caSecret "prometheus-token" $migration.usage.prometheus.tokenSecret -}}
{{- if $secret -}}
{{ $name }}: {{ $secret | quote }}
{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether the controller has anything mounted. */}}
{{- define "mainspring.hasClientCA" -}}
{{- if and .Values.webhook.enabled .Values.webhook.clientCAConfigMap -}}true{{- end -}}
{{- end -}}

{{- define "mainspring.hasVolumes" -}}
{{- if or (include "mainspring.hasCatalogue" .) .Values.metrics.certificateSecret (include "mainspring.hasOverrunSecret" .) .Values.cloudProvider.inventory.programs (include "mainspring.hasClientCA" .) (include "mainspring.migrationSecrets" .) -}}true{{- end -}}
{{- end -}}

{{/* The feature gates as the flag takes them, each named: what a release runs with never depends on a default in the binary. */}}
{{- define "mainspring.featureGates" -}}
{{- $gates := list -}}
{{- range $name, $enabled := .Values.settings.featureGates -}}
{{- $gates = append $gates (printf "%s=%t" (printf "%s%s" (substr 0 1 $name | upper) (substr 1 -1 $name)) $enabled) -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}

{{/* The controller's command line. */}}
{{- define "mainspring.args" -}}
{{- if eq (int .Values.metrics.port) (int .Values.healthProbe.port) }}
{{- fail (printf "metrics.port and healthProbe.port are both %d; they must differ" (int .Values.metrics.port)) }}
{{- end -}}
{{- if and .Values.webhook.enabled (has (int .Values.webhook.port) (list (int .Values.metrics.port) (int .Values.healthProbe.port))) }}
{{- fail (printf "webhook.port is %d, which is metrics.port or healthProbe.port; it must differ" (int .Values.webhook.port)) }}
{{- end -}}
{{- $settings := .Values.settings -}}
{{- $args := list
  (printf "--cloud-provider=%s" .Values.cloudProvider.name)
  (printf "--simulated-repair-toleration=%s" .Values.cloudProvider.simulated.repairToleration)
  (printf "--inventory-secret-namespace=%s" .Release.Namespace)
  (printf "--inventory-labels=%s" (join "," .Values.cloudProvider.inventory.labels))
  (printf "--inventory-power-timeout=%s" .Values.cloudProvider.inventory.powerTimeout)
  (printf "--inventory-quarantine=%s" .Values.cloudProvider.inventory.quarantine)
  (printf "--inventory-repair-toleration=%s" .Values.cloudProvider.inventory.repairToleration)
  (printf "--log-level=%s" $settings.logLevel)
  (printf "--log-output-paths=%s" $settings.logOutputPaths)
  (printf "--log-error-output-paths=%s" $settings.logErrorOutputPaths)
  (printf "--batch-max-duration=%s" $settings.batchMaxDuration)
  (printf "--batch-idle-duration=%s" $settings.batchIdleDuration)
  (printf "--preference-policy=%s" $settings.preferencePolicy)
  (printf "--min-values-policy=%s" $settings.minValuesPolicy)
  (printf "--kube-client-qps=%d" (int $settings.kubeClientQPS))
  (printf "--kube-client-burst=%d" (int $settings.kubeClientBurst))
  (printf "--ignore-dra-requests=%t" $settings.ignoreDRARequests)
  (printf "--legacy-node-repair=%t" $settings.legacyNodeRepair)
  (printf "--disable-controller-warmup=%t" $settings.disableControllerWarmup)
  (printf "--disable-cluster-state-observability=%t" $settings.disableClusterStateObservability)
  (printf "--enable-profiling=%t" $settings.enableProfiling)
  (printf "--feature-gates=%s" (include "mainspring.featureGates" .))
  (printf "--metrics-port=%d" (int .Values.metrics.port))
  (printf "--health-probe-port=%d" (int .Values.healthProbe.port))
  (printf "--rt-budget-granularity=%s" $settings.realtime.budgetGranularity)
  (printf "--rt-preemption-delay=%s" $settings.realtime.preemptionDelay)
  (printf "--rt-agent-timeout=%s" $settings.realtime.agentTimeout)
  (printf "--rt-pressure-overruns=%d" (int $settings.realtime.pressure.overruns))
  (printf "--rt-pressure-window=%s" $settings.realtime.pressure.window)
  (printf "--rt-pressure-delay=%s" $settings.realtime.pressure.delay)
  (printf "--rt-pressure-settle=%s" $settings.realtime.pressure.settle)
  (printf "--rt-pressure-patience=%s" $settings.realtime.pressure.patience)
  (printf "--rt-pressure-node-timeout=%s" $settings.realtime.pressure.nodeTimeout)
  (printf "--rt-pressure-calm=%s" $settings.realtime.pressure.calm)
  (printf "--rt-pressure-recovery-interval=%s" $settings.realtime.pressure.recoveryInterval)
  (printf "--rt-calibration-timeout=%s" (ternary $settings.realtime.calibrationTimeout "0s" (or .Values.agent.enabled (eq (include "mainspring.hasHollow" .) "true"))))
  (printf "--repack=%t" $settings.repack.enabled)
  (printf "--repack-min-savings-per-move=%v" $settings.repack.minSavingsPerMove)
  (printf "--queue-node-limit=%d" (int $settings.queue.nodeLimit))
  (printf "--queue-namespace-limit=%d" (int $settings.queue.namespaceLimit))
  (printf "--queue-cluster-limit=%d" (int $settings.queue.clusterLimit))
  (printf "--queue-age-step=%s" $settings.queue.ageStep)
  (printf "--migration-namespaces=%s" (join "," $settings.migration.namespaces))
  (printf "--enable-checkpointing=%t" $settings.migration.checkpointing)
  (printf "--policy-engine=%s" $settings.migration.policyEngine.use)
  (printf "--resource-pressure=%s" $settings.migration.resourcePressure.mode)
  (printf "--migration-check-interval=%s" $settings.migration.resourcePressure.interval)
  (printf "--resource-pressure-threshold=%d" (int $settings.migration.resourcePressure.threshold))
  (printf "--resource-pressure-samples=%d" (int $settings.migration.resourcePressure.samples))
  (printf "--resource-pressure-pods-per-node=%d" (int $settings.migration.resourcePressure.podsPerNode))
  (printf "--resource-pressure-workload-cooldown=%s" $settings.migration.resourcePressure.workloadCooldown)
  (printf "--resource-pressure-pair-cooldown=%s" $settings.migration.resourcePressure.pairCooldown)
  (printf "--usage-source=%s" $settings.migration.usage.source)
  (printf "--usage-timeout=%s" $settings.migration.usage.timeout)
  (printf "--influx-org=%s" $settings.migration.influx.org)
  (printf "--influx-bucket=%s" $settings.migration.influx.bucket)
  (printf "--influx-write=%s" $settings.migration.influx.write)
  (printf "--webhook-port=%d" (ternary (int .Values.webhook.port) 0 .Values.webhook.enabled))
  (printf "--disable-leader-election=%t" (not .Values.leaderElection.enabled))
  (printf "--leader-election-name=%s" .Values.leaderElection.name)
  (printf "--leader-election-namespace=%s" (include "mainspring.leaderElectionNamespace" .))
-}}
{{- if .Values.webhook.enabled -}}
{{- $args = concat $args (list
  (printf "--webhook-namespace=%s" .Release.Namespace)
  (printf "--webhook-cert-secret=%s" (include "mainspring.webhookName" .))
  (printf "--webhook-cert-rotation=%t" (not .Values.webhook.certManager.enabled))
  (printf "--webhook-cert-validity=%s" .Values.webhook.certificateValidity)
  (printf "--webhook-eviction-deadline=%s" .Values.webhook.evictionDeadline)
  (printf "--webhook-dns-names=%s" (include "mainspring.webhookDNSName" .))
  (printf "--webhook-configurations=%s" (include "mainspring.fullname" .))) -}}
{{- if include "mainspring.signsAgents" . -}}
{{- $args = append $args (printf "--agent-certificates=%s/%s" .Release.Namespace (include "mainspring.agentName" .)) -}}
{{- end -}}
{{- if include "mainspring.hasClientCA" . -}}
{{- $args = append $args "--webhook-client-ca-file=/etc/mainspring/webhook-client-ca/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if .Values.overrun.enabled -}}
{{- if has (int .Values.overrun.port) (list (int .Values.metrics.port) (int .Values.healthProbe.port) (int .Values.webhook.port)) }}
{{- fail (printf "overrun.port is %d, which is another port of the controller; it must differ" (int .Values.overrun.port)) }}
{{- end -}}
{{- $args = concat $args (list
  (printf "--overrun-port=%d" (int .Values.overrun.port))
  (printf "--overrun-dns-names=%s.%s.svc" (include "mainspring.fullname" .) .Release.Namespace)) -}}
{{- if .Values.overrun.certificateSecret -}}
{{- $args = append $args "--overrun-cert-dir=/etc/mainspring/overrun" -}}
{{- end -}}
{{- end -}}
{{- range $flag, $value := dict
  "policy-engine-url" $settings.migration.policyEngine.url
  "analysis-engine-url" $settings.migration.analysisEngineURL
  "influx-url" $settings.migration.influx.url
  "usage-prometheus-url" $settings.migration.usage.prometheus.url
  "usage-prometheus-cpu-query" $settings.migration.usage.prometheus.cpuQuery
  "usage-prometheus-memory-query" $settings.migration.usage.prometheus.memoryQuery
  "usage-influx-cpu-query" $settings.migration.usage.influx.cpuQuery
  "usage-influx-memory-query" $settings.migration.usage.influx.memoryQuery
  "influx-ca-file" (ternary "/etc/mainspring/influx-ca/ca.crt" "" (ne $settings.migration.influx.caSecret ""))
  "usage-prometheus-ca-file" (ternary "/etc/mainspring/prometheus-ca/ca.crt" "" (ne $settings.migration.usage.prometheus.caSecret ""))
  "usage-prometheus-token-file" (ternary "/etc/mainspring/prometheus-token/token" "" (ne $settings.migration.usage.prometheus.tokenSecret "")) -}}
{{- if $value -}}
{{- $args = append $args (printf "--%s=%s" $flag $value) -}}
{{- end -}}
{{- end -}}
{{- if $settings.schedulerConfig -}}
{{- $args = append $args (printf "--scheduler-config=%s" $settings.schedulerConfig) -}}
{{- end -}}
{{- if .Values.cloudProvider.catalogue -}}
{{- $args = append $args "--catalogue-file=/etc/mainspring/catalogue/catalogue.yaml" -}}
{{- end -}}
{{- if .Values.cloudProvider.instanceTypes -}}
{{- $args = append $args "--instance-types-file-path=/etc/mainspring/catalogue/instance-types.json" -}}
{{- end -}}
{{- if .Values.cloudProvider.inventory.programs -}}
{{- $args = append $args "--inventory-exec-directory=/etc/mainspring/programs" -}}
{{- end -}}
{{- if .Values.metrics.certificateSecret -}}
{{- $args = append $args "--metrics-cert-dir=/etc/mainspring/metrics" -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Whether the controller signs the serving certificates of node agents: it has an authority, and agents have no certificate of the user's. */}}
{{- define "mainspring.signsAgents" -}}
{{- if and .Values.agent.enabled (not .Values.agent.certificateSecret) .Values.webhook.enabled (not .Values.webhook.certManager.enabled) -}}true{{- end -}}
{{- end -}}

{{/* How Prometheus verifies the controller: as values say, or by the authority of the webhooks' certificate. */}}
{{- define "mainspring.metricsTLSConfig" -}}
{{- if .Values.serviceMonitor.tlsConfig -}}
{{- toYaml .Values.serviceMonitor.tlsConfig -}}
{{- else if .Values.metrics.certificateSecret -}}
{{- fail "serviceMonitor.tlsConfig is empty; with metrics.certificateSecret give the ca and the serverName of that certificate" -}}
{{- else if not .Values.webhook.enabled -}}
{{- fail "serviceMonitor.tlsConfig is empty, and without webhooks the controller's certificate has no authority: give metrics.certificateSecret, and in tlsConfig its ca and serverName; or insecureSkipVerify: true" -}}
{{- else -}}
ca: {secret: {name: {{ include "mainspring.webhookName" . }}, key: ca.crt}}
serverName: {{ include "mainspring.webhookDNSName" . }}
{{- end -}}
{{- end -}}

{{/* The spread constraints, with the selector of our pods where none is given. */}}
{{- define "mainspring.topologySpreadConstraints" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "mainspring.selectorLabels" . | fromYaml)) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (merge (deepCopy .) $selector) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}

{{/*
A Role in the namespace of Leases of nodes, bound to a ServiceAccount. Takes the root, the names of both, labels, verbs and why.
*/}}
{{- define "mainspring.nodeLeases" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: kube-node-lease
  labels:
    {{- .labels | nindent 4 }}
rules:
  # {{ .why }}
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: {{ .verbs | toJson }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: kube-node-lease
  labels:
    {{- .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
