package localplane

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Users of the plane, each with a client certificate and a kubeconfig.
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
	users   map[string]pair // by user name
	server  string          // URL of the API server
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
	c := &credentials{cluster: cluster, server: server, users: map[string]pair{}}
	for user, groups := range map[string][]string{
		adminUser:             {mastersGroup},
		controllerManagerUser: nil,
		schedulerUser:         nil,
		kwokUser:              nil,
	} {
		if c.users[user], err = cluster.client(user, groups...); err != nil {
			return nil, err
		}
	}
	return c, nil
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
	return &rest.Config{
		Host: c.server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.cluster.pem, CertData: c.users[user].cert, KeyData: c.users[user].key,
		},
	}
}

// writeUser writes a kubeconfig with the certificate of user.
func (c *credentials) writeUser(path, user string) error {
	p := c.users[user]
	return c.write(path, user, &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key})
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
