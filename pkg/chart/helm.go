package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeVersion is the Kubernetes version that charts are rendered for, where no cluster is asked.
const kubeVersion = "1.36.0"

// timeout bounds one call of the helm program.
const timeout = 2 * time.Minute

// Release is one installation of a chart.
type Release struct {
	// Name of the release, for example mainspring.
	Name string
	// Namespace it is installed in; created where it does not exist.
	Namespace string
	// Chart is the chart's directory.
	Chart string
	// Values override those of the chart's values.yaml; nil overrides none.
	Values map[string]any
}

// Helm calls the helm program, without the settings, plugins and caches of the user who runs it.
type Helm struct {
	// Program is the path of the helm program.
	Program string
	// Kubeconfig is the cluster to install into; Template needs none.
	Kubeconfig string
}

// Template renders a release without a cluster, tests and hooks included. The error carries what
// helm printed.
func (h Helm) Template(ctx context.Context, r Release) (Manifests, error) {
	out, err := h.run(ctx, r.Values, "template", r.Name, r.Chart, "--namespace", r.Namespace, "--kube-version", kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("rendering chart %s: %w", r.Chart, err)
	}
	return parse(out)
}

// Lint returns what helm lint says about the chart; the error is set where it finds a fault, and a
// warning is one.
func (h Helm) Lint(ctx context.Context, r Release) (string, error) {
	out, err := h.run(ctx, r.Values, "lint", r.Chart, "--strict", "--kube-version", kubeVersion)
	if err != nil {
		return "", fmt.Errorf("linting chart %s: %w", r.Chart, err)
	}
	return string(out), nil
}

// Install installs the release, or upgrades it, and returns what helm printed, notes included. It
// waits for no pod: a control plane without kubelets runs none.
func (h Helm) Install(ctx context.Context, r Release) (string, error) {
	out, err := h.run(ctx, r.Values, "upgrade", "--install", r.Name, r.Chart, "--namespace", r.Namespace, "--create-namespace")
	if err != nil {
		return "", fmt.Errorf("installing chart %s: %w", r.Chart, err)
	}
	return string(out), nil
}

// Uninstall removes the release.
func (h Helm) Uninstall(ctx context.Context, r Release) error {
	if _, err := h.run(ctx, nil, "uninstall", r.Name, "--namespace", r.Namespace); err != nil {
		return fmt.Errorf("uninstalling release %s: %w", r.Name, err)
	}
	return nil
}

func (h Helm) run(ctx context.Context, values map[string]any, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "mainspring-helm-")
	if err != nil {
		return nil, fmt.Errorf("creating a home for helm: %w", err)
	}
	defer os.RemoveAll(dir)
	if values != nil {
		file, err := writeValues(dir, values)
		if err != nil {
			return nil, err
		}
		args = append(args, "--values", file)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Program, args...)
	cmd.Env = h.environment(dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		// lint tells its findings on stdout.
		return nil, errors.Join(err, errors.New(strings.TrimSpace(stderr.String()+"\n"+stdout.String())))
	}
	return stdout.Bytes(), nil
}

func (h Helm) environment(dir string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HELM_") && !strings.HasPrefix(e, "KUBECONFIG=") {
			env = append(env, e)
		}
	}
	return append(env,
		"HELM_CACHE_HOME="+filepath.Join(dir, "cache"),
		"HELM_CONFIG_HOME="+filepath.Join(dir, "config"),
		"HELM_DATA_HOME="+filepath.Join(dir, "data"),
		"KUBECONFIG="+h.Kubeconfig,
	)
}

func writeValues(dir string, values map[string]any) (string, error) {
	data, err := yaml.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("encoding values: %w", err)
	}
	file := filepath.Join(dir, "values.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", fmt.Errorf("writing values: %w", err)
	}
	return file, nil
}
