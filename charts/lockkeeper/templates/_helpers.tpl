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

{{- define "lockkeeper.tickMillis" -}}
{{- $tick := .Values.zookeeper.tickTime -}}
{{- if hasSuffix "ms" $tick }}{{ trimSuffix "ms" $tick }}{{ else if hasSuffix "m" $tick }}{{ trimSuffix "m" $tick | int | mul 60000 }}{{ else }}{{ trimSuffix "s" $tick | int | mul 1000 }}{{ end }}
{{- end }}
