// Package charts carries what the charts install and a cluster without them needs as well: the
// CustomResourceDefinitions of chart mainspring-crds (those of Karpenter, of its kwok provider and
// Mainspring's own), the DeviceClass of real-time cores and the admission webhooks.
package charts

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed mainspring-crds/files/*.yaml mainspring/files/webhooks.yaml mainspring/files/deviceclass.yaml mainspring/files/heirs.yaml
var files embed.FS

// CRDs returns the definitions as YAML, in the order of their file names.
func CRDs() ([][]byte, error) {
	names, err := fs.Glob(files, "mainspring-crds/files/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing embedded CRDs: %w", err)
	}
	all := make([][]byte, 0, len(names))
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading embedded CRD: %w", err)
		}
		all = append(all, data)
	}
	return all, nil
}

// DeviceClass returns the class of the cores that take real-time work.
func DeviceClass() (*resourcev1.DeviceClass, error) {
	class := &resourcev1.DeviceClass{}
	if err := decode("mainspring/files/deviceclass.yaml", class); err != nil {
		return nil, err
	}
	return class, nil
}

func decode(name string, into any) error {
	data, err := files.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading embedded manifest: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("decoding embedded manifest %s: %w", name, err)
	}
	return nil
}

// Heirs returns what keeps owners from making a pod anew whose state is on its way.
func Heirs() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding, error) {
	const name = "mainspring/files/heirs.yaml"
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("reading embedded manifest: %w", err)
	}
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	first, second, _ := bytes.Cut(data, []byte("\n---\n"))
	if err := errors.Join(yaml.UnmarshalStrict(first, policy), yaml.UnmarshalStrict(second, binding)); err != nil {
		return nil, nil, fmt.Errorf("decoding embedded manifest %s: %w", name, err)
	}
	return policy, binding, nil
}

// WebhookConfigurations are all configurations of admission webhooks that Mainspring has.
type WebhookConfigurations struct {
	Mutating   []*admissionv1.MutatingWebhookConfiguration
	Validating []*admissionv1.ValidatingWebhookConfiguration
}

// Webhooks returns the configurations for a controller that runs outside the cluster: url, for example
// https://127.0.0.1:9443, is where the API server reaches its webhooks. The CA bundles and the paths are left out,
// the controller fills them in.
func Webhooks(url string) (*WebhookConfigurations, error) {
	data, err := files.ReadFile("mainspring/files/webhooks.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading embedded manifest: %w", err)
	}
	all := &WebhookConfigurations{}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		if err := all.add(document); err != nil {
			return nil, fmt.Errorf("decoding embedded webhooks: %w", err)
		}
	}
	for _, c := range all.Mutating {
		for i := range c.Webhooks {
			reachAt(&c.Webhooks[i].ClientConfig, url)
		}
	}
	for _, c := range all.Validating {
		for i := range c.Webhooks {
			reachAt(&c.Webhooks[i].ClientConfig, url)
		}
	}
	return all, nil
}

func (c *WebhookConfigurations) add(document []byte) error {
	u := unstructured.Unstructured{}
	if err := yaml.Unmarshal(document, &u.Object); err != nil {
		return err
	}
	if u.GetKind() == "MutatingWebhookConfiguration" {
		m := &admissionv1.MutatingWebhookConfiguration{}
		c.Mutating = append(c.Mutating, m)
		return yaml.UnmarshalStrict(document, m)
	}
	v := &admissionv1.ValidatingWebhookConfiguration{}
	c.Validating = append(c.Validating, v)
	return yaml.UnmarshalStrict(document, v)
}

// reachAt replaces the Service by an address.
func reachAt(config *admissionv1.WebhookClientConfig, url string) {
	config.URL, config.Service = &url, nil
}
