{{- define "lockkeeper.fullname" -}}
{{- if contains "lockkeeper" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-lockkeeper" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "lockkeeper.selector" -}}
app.kubernetes.io/name: lockkeeper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lockkeeper.labels" -}}
{{ include "lockkeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* REPOSITORY@DIGEST or REPOSITORY:TAG of an image. Call with (dict "image" … "root" $). */ -}}
{{- define "lockkeeper.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "lockkeeper.authSecret" -}}
{{ .Values.zookeeper.authSecret | default (printf "%s-operator-auth" (include "lockkeeper.fullname" .)) }}
{{- end }}

{{- define "lockkeeper.webhookSecret" -}}
{{- if eq .Values.webhook.certificates "secret" }}{{ required "webhook.certificates is secret: set webhook.secretName" .Values.webhook.secretName }}{{ else }}{{ include "lockkeeper.fullname" . }}-webhook{{ end }}
{{- end }}

{{- define "lockkeeper.serverHosts" -}}
{{- $name := printf "%s-zookeeper" (include "lockkeeper.fullname" .) -}}
{{- $hosts := list -}}
{{- range $i := until (int .Values.zookeeper.server.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s.%s.svc" $name $i $name $.Release.Namespace) -}}
{{- end -}}
{{ $hosts | toJson }}
{{- end }}

{{- define "lockkeeper.connect" -}}
{{- if .Values.zookeeper.connect }}{{ .Values.zookeeper.connect }}
{{- else if .Values.zookeeper.server.enabled -}}
{{- $servers := list -}}
{{- range include "lockkeeper.serverHosts" . | fromJsonArray }}{{ $servers = append $servers (printf "%s:2181" .) }}{{ end -}}
{{ join "," $servers }}
{{- else }}{{ fail "no ensemble: set zookeeper.connect to its connect string, or zookeeper.server.enabled to true to try Lockkeeper out" }}{{ end }}
{{- end }}

{{- /* Values that would protect nothing by themselves are refused. */ -}}
{{- define "lockkeeper.checkPairs" -}}
{{- $zookeeper := .Values.zookeeper -}}
{{- $strings := list (include "lockkeeper.connect" .) $zookeeper.podConnect | join "," -}}
{{- $speaksTls := contains "tcp+tls://" $strings -}}
{{- if and $speaksTls (not $zookeeper.tlsSecret) }}
{{- fail "zookeeper.connect or zookeeper.podConnect has servers with TLS (tcp+tls://): set zookeeper.tlsSecret to the Secret with the authorities that sign their certificates" }}
{{- end }}
{{- if and $zookeeper.tlsSecret (not $speaksTls) }}
{{- fail "zookeeper.tlsSecret is set, and no server of zookeeper.connect or zookeeper.podConnect speaks TLS: name servers as tcp+tls://HOST:PORT (the chart's own server speaks none)" }}
{{- end }}
{{- if and $zookeeper.tlsClientCertificate (not $zookeeper.tlsSecret) }}
{{- fail "zookeeper.tlsClientCertificate is set: set zookeeper.tlsSecret to the Secret with that certificate" }}
{{- end }}
{{- if and $zookeeper.podTlsSecret (not $zookeeper.tlsSecret) }}
{{- fail "zookeeper.podTlsSecret is set: set zookeeper.tlsSecret too, and name the servers as tcp+tls://HOST:PORT" }}
{{- end }}
{{- if and .Values.webhook.clients.names (not .Values.webhook.clients.ca) }}
{{- fail "webhook.clients.names is set: set webhook.clients.ca to the authorities that sign the certificates with these names" }}
{{- end }}
{{- end }}

{{- /* A duration of the values in milliseconds. */ -}}
{{- define "lockkeeper.millis" -}}
{{- if hasSuffix "ms" . }}{{ trimSuffix "ms" . | int }}{{ else if hasSuffix "m" . }}{{ trimSuffix "m" . | int | mul 60000 }}{{ else }}{{ trimSuffix "s" . | int | mul 1000 }}{{ end }}
{{- end }}

{{- /* Between the limits of spec.zookeeper.tickTime of a lock. */ -}}
{{- define "lockkeeper.tickMillis" -}}
{{- $tick := .Values.zookeeper.tickTime -}}
{{- $millis := include "lockkeeper.millis" $tick | int -}}
{{- if or (lt (int $millis) 100) (gt (int $millis) 60000) }}
{{- fail (printf "zookeeper.tickTime is %s: the tickTime of the ensemble must be between 100ms and 1m, such as 2s or 2500ms" $tick) }}
{{- end -}}
{{ $millis }}
{{- end }}

{{- /* What operator and pods count with. With the chart's own server it is 2s at least, so that no pod counts with less when the server
gets a tick of up to 2s again (the policy in zookeeper.yaml). */ -}}
{{- define "lockkeeper.tickTime" -}}
{{- $millis := include "lockkeeper.tickMillis" . | int -}}
{{- if and .Values.zookeeper.server.enabled (lt $millis 2000) }}2s{{ else }}{{ .Values.zookeeper.tickTime }}{{ end }}
{{- end }}

{{- /* The API server refuses a pod when the webhook's timeout is over: the look-up of a command has to end before. The operator may
need 1s each for the lock, the ID of its ensemble, and the workload of the pod. */ -}}
{{- define "lockkeeper.registryTimeout" -}}
{{- $longest := sub .Values.webhook.timeoutSeconds 3 | mul 1000 -}}
{{- $millis := include "lockkeeper.millis" .Values.registry.timeout | int -}}
{{- if or (lt $millis 100) (gt $millis (int $longest)) }}
{{- fail (printf "registry.timeout is %s: it must be between 100ms and 3s less than webhook.timeoutSeconds (%d), in which the operator also asks others" .Values.registry.timeout (int .Values.webhook.timeoutSeconds)) }}
{{- end -}}
{{ .Values.registry.timeout }}
{{- end }}

{{- /* The programs are built for Linux: a cluster may have other nodes too. */}}
{{- define "lockkeeper.nodeSelector" -}}
{{- merge (dict) .Values.nodeSelector (dict "kubernetes.io/os" "linux") | toYaml }}
{{- end }}
