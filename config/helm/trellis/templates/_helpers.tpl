{{/* What all have in common; they are called after the release. */}}

{{- define "trellis.labels" -}}
app.kubernetes.io/name: trellis
app.kubernetes.io/part-of: trellis
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .role }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "trellis.selector" -}}
app.kubernetes.io/name: trellis
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .role }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "trellis.account" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{/* The pods of a role: {root, role, values}. */}}
{{- define "trellis.pods" -}}
metadata:
  labels:
    {{- include "trellis.labels" . | nindent 4 }}
  annotations:
    checksum/config: {{ .root.Values.config | sha256sum }}
    {{- if eq .role "worker" }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "8420"
    prometheus.io/path: /metrics
    {{- end }}
    {{- with .values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "trellis.account" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "trellis.selector" $ | nindent 10 }}
    {{- end }}
  containers:
    - name: trellis
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [{{ .role | quote }}]
      env:
        - name: TRELLIS_CONFIG
          value: /etc/trellis/config/trellis.toml
      {{- if eq .role "worker" }}
      envFrom:
        - secretRef:
            name: {{ .root.Values.secrets.env }}
            optional: true
      {{- end }}
      ports:
        - name: http
          containerPort: 8420
      startupProbe:
        httpGet:
          path: /livez
          port: http
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet:
          path: /livez
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: http
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/trellis/config
          readOnly: true
        - name: files
          mountPath: /etc/trellis/files
          readOnly: true
  volumes:
    - name: config
      configMap:
        name: {{ .root.Release.Name }}
    - name: files
      secret:
        secretName: {{ .root.Values.secrets.files }}
        defaultMode: 0440
{{- end }}

{{/* The deployment of a role and how many of its pods may be gone: {root, role, values, replicas}. */}}
{{- define "trellis.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .role }}
  labels:
    {{- include "trellis.labels" . | nindent 4 }}
spec:
  {{- with .replicas }}
  replicas: {{ . }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "trellis.selector" . | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  minReadySeconds: 5
  template:
    {{- include "trellis.pods" . | nindent 4 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .role }}
  labels:
    {{- include "trellis.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "trellis.selector" . | nindent 6 }}
{{- end }}
