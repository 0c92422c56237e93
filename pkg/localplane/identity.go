package localplane

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// NodeIdentity holds the paths of what a kubelet joins the plane with.
type NodeIdentity struct {
	// Kubeconfig acts as the node: what the Node authorizer lets it.
	Kubeconfig string
	// CA is the authority by which the kubelet knows its callers.
	CA string
	// Cert and Key are what it serves with.
	Cert, Key string
}

// NodeIdentity issues the identity of a node, which is reached at the address.
func (p *Plane) NodeIdentity(name string, address net.IP) (NodeIdentity, error) {
	user := nodeUserPrefix + name
	id := NodeIdentity{
		Kubeconfig: p.dir.kubeconfig("node-" + name), CA: p.dir.pki("ca.crt"),
		Cert: p.dir.pki("node-" + name + ".crt"), Key: p.dir.pki("node-" + name + ".key"),
	}
	serving, err := p.credentials.cluster.serverAt(user, name, address)
	if err != nil {
		return NodeIdentity{}, err
	}
	if err := serving.write(id.Cert, id.Key); err != nil {
		return NodeIdentity{}, err
	}
	client, err := p.credentials.cluster.client(user, nodesGroup)
	if err != nil {
		return NodeIdentity{}, err
	}
	auth := &clientcmdapi.AuthInfo{ClientCertificateData: client.cert, ClientKeyData: client.key}
	if err := p.credentials.write(id.Kubeconfig, user, auth); err != nil {
		return NodeIdentity{}, fmt.Errorf("writing the identity of node %s: %w", name, err)
	}
	return id, nil
}

// serverAt issues a certificate for what listens at one address and name.
func (a *authority) serverAt(user, host string, address net.IP) (pair, error) {
	return a.issue(pkix.Name{CommonName: user, Organization: []string{nodesGroup}}, func(t *x509.Certificate) {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		t.IPAddresses = []net.IP{address}
		t.DNSNames = []string{host}
	})
}
