package stack

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
)

// systemNamespace is where Mainspring keeps what is its own. Pods in it are never governed.
const systemNamespace = "mainspring-system"

// install applies what the charts would: CRDs, the DeviceClass of real-time cores, the admission webhooks, which the
// controller will serve on the port.
func (s *Stack) install(ctx context.Context, webhookPort int) error {
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	if err := s.plane.ApplyCRDs(ctx, crds...); err != nil {
		return fmt.Errorf("installing CRDs: %w", err)
	}
	objects, err := installed(webhookPort)
	if err != nil {
		return err
	}
	c, err := client.New(s.plane.RESTConfig(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	for _, object := range objects {
		// One that is there is the controller's by now: its certificates and rules stay.
		if err := c.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("installing %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// installed are the objects beside the CRDs, in order.
func installed(webhookPort int) ([]client.Object, error) {
	class, err := charts.DeviceClass()
	if err != nil {
		return nil, err
	}
	webhooks, err := charts.Webhooks(fmt.Sprintf("https://%s:%d", webhookHost, webhookPort))
	if err != nil {
		return nil, err
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}, class}
	for _, c := range webhooks.Mutating {
		objects = append(objects, c)
	}
	for _, c := range webhooks.Validating {
		objects = append(objects, c)
	}
	return objects, nil
}
