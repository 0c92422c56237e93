package simulated

import (
	"encoding/base32"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// providerPrefix is that of Karpenter's kwok provider.
const providerPrefix = "kwok://"

const suffixLength = 5

// maxLabel is the longest label value; the hostname label carries the Node's name.
const maxLabel = 63

var suffixAlphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// nodeName is the name of the Node of a NodeClaim's machine. It contains the NodeClaim's name, so
// that either is found from the other, and a hash of its UID, so that a later NodeClaim of the same
// name is another machine.
func nodeName(name string, uid types.UID) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // a hash never fails to write
	return name + "-" + suffixAlphabet.EncodeToString(h.Sum(nil))[:suffixLength]
}

// providerID is the identity of a NodeClaim's machine.
func providerID(claim *karpv1.NodeClaim) string {
	return providerPrefix + nodeName(claim.Name, claim.UID)
}

// nodeOf is the Node name in a provider ID, and whether it is one of ours or of Karpenter's kwok
// provider.
func nodeOf(id string) (string, bool) {
	return strings.CutPrefix(id, providerPrefix)
}

// claimOf is the NodeClaim name in a Node name that nodeName made.
func claimOf(node string) string {
	if len(node) <= suffixLength {
		return ""
	}
	return strings.TrimSuffix(node[:len(node)-suffixLength], "-")
}

// hostname is the Node's name cut to the length of a label value; the end tells machines apart.
func hostname(node string) string {
	if len(node) <= maxLabel {
		return node
	}
	return strings.TrimLeft(node[len(node)-maxLabel:], "-.")
}
