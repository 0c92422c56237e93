package chart

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Invocation is how a kubelet would run a container of the chart.
type Invocation struct {
	// Args are the arguments, without the program.
	Args []string
	// Env is the environment, NAME=value.
	Env []string
	// Namespace and ServiceAccount are whom it runs as.
	Namespace, ServiceAccount string
}

// Names of the containers that the chart's Deployments run.
const (
	controllerContainer = "controller"
	hollowContainer     = "hollow"
)

// ControllerInvocation reads from the chart's Deployment of the controller how it is run. It is an
// error where a process outside a pod could not be run the same way: with volumes, or with a value
// that only a kubelet knows.
func ControllerInvocation(m Manifests) (Invocation, error) {
	return invocationOf(m, controllerContainer)
}

// HollowInvocation is ControllerInvocation for the agents of simulated nodes.
func HollowInvocation(m Manifests) (Invocation, error) { return invocationOf(m, hollowContainer) }

// invocationOf reads how the one container of that name is run.
func invocationOf(m Manifests, container string) (Invocation, error) {
	deployment, err := deploymentOf(m, container)
	if err != nil {
		return Invocation{}, err
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		return Invocation{}, fmt.Errorf("the pod of the %s has %d containers and %d init containers, not one",
			container, len(pod.Containers), len(pod.InitContainers))
	}
	if len(pod.Volumes) != 0 {
		return Invocation{}, fmt.Errorf("the pod of the %s mounts volume %q, which a process outside a pod does not have", container, pod.Volumes[0].Name)
	}
	env, err := environment(&pod.Containers[0], deployment.Namespace)
	if err != nil {
		return Invocation{}, err
	}
	return Invocation{
		Args:           pod.Containers[0].Args,
		Env:            env,
		Namespace:      deployment.Namespace,
		ServiceAccount: pod.ServiceAccountName,
	}, nil
}

// deploymentOf returns the one Deployment with a container of that name.
func deploymentOf(m Manifests, container string) (*appsv1.Deployment, error) {
	var found []*appsv1.Deployment
	for _, manifest := range m.OfKind("Deployment") {
		deployment, err := Decode[appsv1.Deployment](Manifests{manifest}, "Deployment", manifest.GetName())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == container }) {
			found = append(found, deployment)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("the chart renders %d Deployments with a container %q, not one", len(found), container)
	}
	return found[0], nil
}

func environment(container *corev1.Container, namespace string) ([]string, error) {
	if len(container.EnvFrom) != 0 {
		return nil, fmt.Errorf("container %q takes its environment from other objects", container.Name)
	}
	env := make([]string, 0, len(container.Env))
	for _, variable := range container.Env {
		value, err := environmentValue(variable, container, namespace)
		if err != nil {
			return nil, fmt.Errorf("resolving environment variable %s: %w", variable.Name, err)
		}
		env = append(env, variable.Name+"="+value)
	}
	return env, nil
}

func environmentValue(variable corev1.EnvVar, container *corev1.Container, namespace string) (string, error) {
	source := variable.ValueFrom
	switch {
	case source == nil:
		return variable.Value, nil
	case source.FieldRef != nil && source.FieldRef.FieldPath == "metadata.namespace":
		return namespace, nil
	case source.ResourceFieldRef != nil:
		return resourceValue(source.ResourceFieldRef, container.Resources)
	default:
		return "", errors.New("its source is known to a kubelet only")
	}
}

// resourceValue divides as a kubelet does: in thousandths, and rounded up.
func resourceValue(ref *corev1.ResourceFieldSelector, resources corev1.ResourceRequirements) (string, error) {
	list, name, _ := strings.Cut(ref.Resource, ".")
	quantity, ok := map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests}[list][corev1.ResourceName(name)]
	if !ok {
		return "", fmt.Errorf("the container has no %s", ref.Resource)
	}
	divisor := ref.Divisor.MilliValue()
	if divisor == 0 {
		divisor = 1000
	}
	return strconv.FormatInt((quantity.MilliValue()+divisor-1)/divisor, 10), nil
}
