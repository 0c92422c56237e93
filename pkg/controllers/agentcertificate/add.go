package agentcertificate

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mainspring-rt/mainspring/pkg/servingcert"
)

// Add has the leader sign. It watches the requests of one signer: the manager's own cache would read those of kubelets,
// too. The signer's field Requests is set here.
func Add(mgr manager.Manager, s Signer) error {
	own, err := cluster.New(mgr.GetConfig(), func(c *cluster.Options) {
		c.Scheme, c.Logger = mgr.GetScheme(), mgr.GetLogger()
		c.Cache.ByObject = map[client.Object]cache.ByObject{
			&certificatesv1.CertificateSigningRequest{}: {Field: fields.OneTermEqualSelector("spec.signerName", servingcert.SignerName)},
		}
	})
	if err != nil {
		return fmt.Errorf("building the cache of certificate requests: %w", err)
	}
	if err := mgr.Add(own); err != nil {
		return fmt.Errorf("adding the cache of certificate requests: %w", err)
	}
	s.Requests = own.GetCache()
	changed := source.Kind(own.GetCache(), &certificatesv1.CertificateSigningRequest{}, &handler.TypedEnqueueRequestForObject[*certificatesv1.CertificateSigningRequest]{})
	if err := ctrl.NewControllerManagedBy(mgr).Named("agentcertificate").WatchesRawSource(changed).Complete(&s); err != nil {
		return fmt.Errorf("adding controller agentcertificate: %w", err)
	}
	return nil
}
