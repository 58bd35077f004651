{{- define "terrace-node.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "terrace-node.selector" -}}
app.kubernetes.io/name: terrace-node
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "terrace-node.labels" -}}
{{ include "terrace-node.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "terrace-node.address" -}}
{{ .Values.listen.host }}:{{ .Values.listen.port }}
{{- end -}}

{{- define "terrace-node.secret-file" -}}
/etc/terrace/secret/{{ .Values.secret.key }}
{{- end -}}

{{/*
Whether the node serves, asked from inside with its own secret: the kubelet has none, and a node that wants one answers
nobody else.
*/}}
{{- define "terrace-node.probe" -}}
{{- $loopback := or (hasPrefix "127." .Values.listen.host) (eq .Values.listen.host "[::1]") (eq .Values.listen.host "localhost") -}}
{{- $wildcard := dict "0.0.0.0" "127.0.0.1" "[::]" "[::1]" -}}
{{- if and (not $loopback) (not .Values.secret.name) -}}
{{- fail "listen.host is beyond loopback, where a node needs a secret: secret.name" -}}
{{- end -}}
exec:
  command:
    - terrace
    - status
    - --node={{ get $wildcard .Values.listen.host | default .Values.listen.host }}:{{ .Values.listen.port }}
    {{- if .Values.secret.name }}
    - --secret-file={{ include "terrace-node.secret-file" . }}
    {{- end }}
timeoutSeconds: 5
{{- end -}}
