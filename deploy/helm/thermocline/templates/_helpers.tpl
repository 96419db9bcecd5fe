{{- define "thermocline.name" -}}
{{- printf "%s" .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "thermocline.selector" -}}
app.kubernetes.io/name: thermocline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "thermocline.labels" -}}
{{ include "thermocline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "thermocline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
