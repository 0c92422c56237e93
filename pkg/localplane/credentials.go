package localplane

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Users of the plane, each with a bearer token and a kubeconfig. The API server looks a token up in a map; it verifies the chain of a client
// certificate again with each request, which was a twentieth of its CPU time under the load of the end-to-end suites.
const (
	adminUser             = "mainspring-admin"
	controllerManagerUser = "system:kube-controller-manager"
	schedulerUser         = "system:kube-scheduler"
	kwokUser              = "kwok-controller"
	apiServerUser         = "kube-apiserver"

	mastersGroup = "system:masters"
)

// credentials are what a plane's components and users prove themselves with.
type credentials struct {
	cluster *authority
	tokens  map[string]string // by user name
	server  string            // URL of the API server
}

// newCredentials writes the plane's keys and returns what kubeconfigs are made of. etcd has its
// own authority: no certificate of the cluster opens it.
func newCredentials(f files, server string, now time.Time) (*credentials, error) {
	cluster, err := newAuthority("mainspring-cluster", now)
	if err != nil {
		return nil, err
	}
	etcd, err := newAuthority("mainspring-etcd", now)
	if err != nil {
		return nil, err
	}
	if err := writeServing(f, cluster, etcd); err != nil {
		return nil, err
	}
	c := &credentials{cluster: cluster, server: server, tokens: map[string]string{}}
	for _, user := range []string{adminUser, controllerManagerUser, schedulerUser, kwokUser} {
		c.tokens[user] = rand.Text()
	}
	return c, c.writeTokens(f.pki(tokensFile))
}

// tokensFile is what the API server knows the users' tokens by.
const tokensFile = "tokens.csv"

// writeTokens writes a line for each user: token, name, UID and groups (kube-apiserver's option --token-auth-file).
func (c *credentials) writeTokens(path string) error {
	var lines strings.Builder
	for _, user := range slices.Sorted(maps.Keys(c.tokens)) {
		line := c.tokens[user] + "," + user + "," + user
		if user == adminUser {
			line += "," + mastersGroup
		}
		lines.WriteString(line + "\n")
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		return fmt.Errorf("writing the users' tokens: %w", err)
	}
	return nil
}

// writeServing writes the authorities, the serving certificates, the API server's client
// certificates and the token keys.
func writeServing(f files, cluster, etcd *authority) error {
	clusterKey, err := encodeKey(cluster.key)
	if err != nil {
		return err
	}
	tokens, err := newTokenKeys()
	if err != nil {
		return err
	}
	serving, err := cluster.server("localplane")
	if err != nil {
		return err
	}
	member, err := etcd.server("etcd")
	if err != nil {
		return err
	}
	etcdClient, err := etcd.client(apiServerUser)
	if err != nil {
		return err
	}
	kubeletClient, err := cluster.client(apiServerUser, mastersGroup)
	if err != nil {
		return err
	}
	for name, p := range map[string]pair{
		"ca": {cluster.pem, clusterKey}, "serving": serving, "etcd": member,
		"etcd-client": etcdClient, "kubelet-client": kubeletClient, "tokens": tokens,
	} {
		if err := p.write(f.pki(name+".crt"), f.pki(name+".key")); err != nil {
			return err
		}
	}
	if err := os.WriteFile(f.pki("etcd-ca.crt"), etcd.pem, 0o600); err != nil {
		return fmt.Errorf("writing etcd's authority: %w", err)
	}
	return nil
}

// restConfig is the configuration of a client that acts as user.
func (c *credentials) restConfig(user string) *rest.Config {
	return &rest.Config{Host: c.server, BearerToken: c.tokens[user], TLSClientConfig: rest.TLSClientConfig{CAData: c.cluster.pem}}
}

// writeUser writes a kubeconfig with the token of user.
func (c *credentials) writeUser(path, user string) error {
	return c.write(path, user, &clientcmdapi.AuthInfo{Token: c.tokens[user]})
}

// write writes a kubeconfig that only its owner reads.
func (c *credentials) write(path, user string, auth *clientcmdapi.AuthInfo) error {
	const name = "mainspring"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthorityData: c.cluster.pem}
	config.AuthInfos[user] = auth
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s: %w", user, err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return nil
}
