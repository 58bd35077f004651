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

{{/*
Whether the node serves: standard gRPC health on its control port. The kubelet asks at the pod's address, where a node
that listens on loopback is not; there the node is asked from inside.
*/}}
{{- define "terrace-node.probe" -}}
{{- if or (hasPrefix "127." .Values.listen.host) (eq .Values.listen.host "[::1]") (eq .Values.listen.host "localhost") -}}
exec:
  command: ["terrace", "status", "--node", {{ include "terrace-node.address" . | quote }}]
timeoutSeconds: 5
{{- else -}}
grpc:
  port: {{ .Values.listen.port }}
timeoutSeconds: 5
{{- end -}}
{{- end -}}
