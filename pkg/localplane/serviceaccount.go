package localplane

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// tokenLife is how long the token of KubeconfigFor is valid.
const tokenLife = 24 * time.Hour

// KubeconfigFor writes a kubeconfig with a token of the ServiceAccount, valid for a day, and
// returns its path. The ServiceAccount must exist.
func (p *Plane) KubeconfigFor(ctx context.Context, namespace, serviceAccount string) (string, error) {
	token, err := p.TokenFor(ctx, namespace, serviceAccount)
	if err != nil {
		return "", err
	}
	path := p.dir.kubeconfig("serviceaccount-" + namespace + "-" + serviceAccount)
	err = p.credentials.write(path, serviceAccount, &clientcmdapi.AuthInfo{Token: token})
	return path, err
}

// KubeconfigOnNode writes a kubeconfig with a token of the ServiceAccount that is bound to the Node, as the tokens are that its kubelet hands to
// pods, valid for a day, and returns its path. Both must exist.
func (p *Plane) KubeconfigOnNode(ctx context.Context, namespace, serviceAccount, nodeName string) (string, error) {
	node, err := p.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading Node %s: %w", nodeName, err)
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	token, err := p.requestToken(ctx, namespace, serviceAccount, authenticationv1.TokenRequestSpec{BoundObjectRef: bound})
	if err != nil {
		return "", err
	}
	path := p.dir.kubeconfig("serviceaccount-" + namespace + "-" + serviceAccount + "-on-" + nodeName)
	err = p.credentials.write(path, serviceAccount, &clientcmdapi.AuthInfo{Token: token})
	return path, err
}

// TokenFor requests a token of the ServiceAccount, valid for a day, for the audiences; without any it is for the API server.
func (p *Plane) TokenFor(ctx context.Context, namespace, serviceAccount string, audiences ...string) (string, error) {
	return p.requestToken(ctx, namespace, serviceAccount, authenticationv1.TokenRequestSpec{Audiences: audiences})
}

func (p *Plane) requestToken(ctx context.Context, namespace, serviceAccount string, spec authenticationv1.TokenRequestSpec) (string, error) {
	spec.ExpirationSeconds = ptr.To(int64(tokenLife / time.Second))
	request := &authenticationv1.TokenRequest{Spec: spec}
	token, err := p.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
	}
	return token.Status.Token, nil
}
