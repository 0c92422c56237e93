// Package access has tests wait until the API server applies the roles and bindings that they have made.
//
// Its RBAC authorizer reads them through informers. In the moment after a binding is written, a request that it allows
// may still be forbidden.
package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const (
	interval = 20 * time.Millisecond
	patience = 2 * time.Minute
)

// Await waits until the subject may do what the rule says, in a namespace or, without one, in the cluster. Config is
// that of an administrator. It asks for one request that the rule allows: the authorizer sees a whole rule or none of
// it. The error names that request.
func Await(ctx context.Context, config *rest.Config, namespace string, subject rbacv1.Subject, rule rbacv1.PolicyRule) error {
	c, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client of SubjectAccessReviews: %w", err)
	}
	want, err := requestOf(namespace, subject, rule)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		review, err := c.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: want}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("asking the API server: %w", err)
		}
		return review.Status.Allowed, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s %s may %v: %w", subject.Kind, subject.Name, rule, err)
	}
	return nil
}

// requestOf is the subject's request for the first of the rule's verbs and of its resources or paths.
func requestOf(namespace string, subject rbacv1.Subject, rule rbacv1.PolicyRule) (authorizationv1.SubjectAccessReviewSpec, error) {
	var request authorizationv1.SubjectAccessReviewSpec
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		request.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	case rbacv1.UserKind:
		request.User = subject.Name
	case rbacv1.GroupKind:
		request.Groups = []string{subject.Name}
	default:
		return request, fmt.Errorf("subject %s: kind %q is none of ServiceAccount, User and Group", subject.Name, subject.Kind)
	}
	switch {
	case len(rule.Verbs) > 0 && len(rule.NonResourceURLs) > 0:
		request.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]}
	case len(rule.Verbs) > 0 && len(rule.APIGroups) > 0 && len(rule.Resources) > 0:
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		request.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		}
	default:
		return request, fmt.Errorf("the rule %v allows nothing", rule)
	}
	return request, nil
}
