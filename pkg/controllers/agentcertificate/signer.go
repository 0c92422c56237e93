// Package agentcertificate signs the serving certificates of node agents, by the authority of the webhooks' Secret.
package agentcertificate

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/servingcert"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

const (
	// timeout bounds one reconciliation.
	timeout = 30 * time.Second
	// authorityRetry is how soon a request is tried again that waits for an authority.
	authorityRetry = time.Minute
	// conflictRetry is how soon a request is looked at again after a conflict with another writer.
	conflictRetry = time.Second
	// validity of an agent's certificate, which the agent renews every day. Nothing revokes one: a stolen one ends soon.
	validity = 7 * 24 * time.Hour
)

// Reasons of conditions of requests.
const (
	ReasonOwnNode = "RequestOfOwnNode"
	ReasonRefused = "RequestRefused"
)

// Signer approves and signs the requests of agents, and denies all others of its signer. Approval and certificate are
// two writes: who starts between them finds the request approved, and signs it.
type Signer struct {
	// Requests are from a cache, Secrets from the API itself.
	Requests, Secrets client.Reader
	Client            client.Client
	Agents            servingcert.Agents
	// Secret has the authority.
	Secret    types.NamespacedName
	Authority certs.Authority
	Clock     clock.PassiveClock
}

// Reconcile decides one request.
func (s *Signer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := s.Requests.Get(ctx, req.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(csr.Status.Certificate) > 0 || has(csr, certificatesv1.CertificateDenied) || has(csr, certificatesv1.CertificateFailed) {
		return reconcile.Result{}, nil
	}
	csr = csr.DeepCopy()
	request, refused := s.Agents.Judge(csr)
	if refused != nil {
		return s.refuse(ctx, csr, refused)
	}
	certificate, wait, err := s.sign(ctx, csr.Name, request)
	if err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if !has(csr, certificatesv1.CertificateApproved) {
		s.add(csr, certificatesv1.CertificateApproved, ReasonOwnNode, "the controller approves requests of agents for names of their own nodes")
		if err := s.Client.SubResource("approval").Update(ctx, csr); err != nil {
			return written(err, "approving CertificateSigningRequest "+csr.Name)
		}
	}
	csr.Status.Certificate = certificate
	if err := s.Client.Status().Update(ctx, csr); err != nil {
		return written(err, "writing the certificate of CertificateSigningRequest "+csr.Name)
	}
	log.FromContext(ctx).Info("Signed the serving certificate of a node agent", "CertificateSigningRequest", csr.Name, "names", request.DNSNames)
	return reconcile.Result{}, nil
}

// sign returns the certificate for a request or, while there is no authority that may sign, how long the request waits.
func (s *Signer) sign(ctx context.Context, name string, request *x509.CertificateRequest) ([]byte, time.Duration, error) {
	secret := &corev1.Secret{}
	if err := s.Secrets.Get(ctx, s.Secret, secret); client.IgnoreNotFound(err) != nil {
		return nil, 0, fmt.Errorf("getting the Secret of the certificate authority: %w", err)
	}
	certificate, err := s.Authority.Sign(secret.Data, request, validity, s.Clock.Now())
	if err != nil { // nothing is wrong with the request: the Secret is gone, or its authority is too new
		log.FromContext(ctx).Info("A certificate request waits for the authority", "CertificateSigningRequest", name, "Secret", s.Secret, "why", err.Error())
		return nil, authorityRetry, nil
	}
	return certificate, 0, nil
}

// refuse denies a request or, where an administrator has approved it, marks it as failed: only requests of agents are signed.
func (s *Signer) refuse(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, why error) (reconcile.Result, error) {
	var writer client.SubResourceWriter = s.Client.SubResource("approval")
	kind, message := certificatesv1.CertificateDenied, fmt.Sprintf("%.1000s", why.Error())
	if has(csr, certificatesv1.CertificateApproved) {
		writer, kind = s.Client.Status(), certificatesv1.CertificateFailed
	}
	s.add(csr, kind, ReasonRefused, message)
	if err := writer.Update(ctx, csr); err != nil {
		return written(err, "refusing CertificateSigningRequest "+csr.Name)
	}
	log.FromContext(ctx).Info("Refused a certificate request", "CertificateSigningRequest", csr.Name, "user", csr.Spec.Username, "why", message)
	return reconcile.Result{}, nil
}

// written judges a write that has failed: a request that is gone needs none, and one that has changed is looked at again.
func written(err error, what string) (reconcile.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("%s: %w", what, err)
	}
}

func (s *Signer) add(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, reason, message string) {
	now := metav1.NewTime(s.Clock.Now())
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now,
	})
}

func has(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	for _, c := range csr.Status.Conditions {
		if c.Type == kind {
			return true
		}
	}
	return false
}
