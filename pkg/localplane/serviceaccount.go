package localplane

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// TokenFor requests a token of the ServiceAccount, valid for a day, for the audiences; without any it is for the API server.
func (p *Plane) TokenFor(ctx context.Context, namespace, serviceAccount string, audiences ...string) (string, error) {
	seconds := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: audiences}}
	token, err := p.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
	}
	return token.Status.Token, nil
}
