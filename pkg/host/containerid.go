package host

import (
	"fmt"
	"slices"
	"strings"
)

// The runtimes whose containers are found, as they begin Kubernetes' container IDs.
const (
	Containerd = "containerd"
	CRIO       = "cri-o"
	Docker     = "docker"
)

// idLength of a container ID: SHA-256 in hexadecimal, with every runtime.
const idLength = 64

// ParseContainerID splits a container ID of a pod's status, "containerd://<64 hex digits>", into its
// runtime and the ID. An empty ID, that of a runtime which is not known, and one of another form are errors.
func ParseContainerID(s string) (runtime, id string, err error) {
	runtime, id, found := strings.Cut(s, "://")
	if !found || !slices.Contains([]string{Containerd, CRIO, Docker}, runtime) {
		return "", "", fmt.Errorf("container ID %q; want %s://, %s:// or %s:// and %d hexadecimal digits", s, Containerd, CRIO, Docker, idLength)
	}
	if !validID(id) {
		return "", "", fmt.Errorf("container ID %q; want %d hexadecimal digits after %s://", s, idLength, runtime)
	}
	return runtime, id, nil
}

func validID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}

// maxUID is beyond the 36 characters of a UUID and the 32 of a static pod's hash.
const maxUID = 64

// validUID accepts what Kubernetes gives as a pod's UID; it becomes part of a path.
func validUID(uid string) bool {
	if uid == "" || len(uid) > maxUID || uid[0] == '-' || uid[len(uid)-1] == '-' {
		return false
	}
	return strings.Trim(uid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}
