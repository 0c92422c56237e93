package driver

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// recordVersion of what is on disk.
const recordVersion = 1

// Record is a prepared claim.
type Record struct {
	// Version of the record's form; 1.
	Version   int       `json:"version"`
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// PodClaim is what the pods call the claim; empty for one that was not made from a template.
	PodClaim string `json:"podClaim,omitempty"`
	// Pods that the claim was reserved for when it was prepared.
	Pods []types.UID `json:"pods"`
	// Shares of cores that the claim was given, at least one.
	Shares []Share `json:"shares"`
}

// Share is a part of a core.
type Share struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	Core    int    `json:"core"`
	// ShareID tells the shares of one device apart; nil where the device is not shared.
	ShareID *types.UID `json:"shareID,omitempty"`
	// PPM of the core; 0 when the claim names none, which is the whole core.
	PPM int64 `json:"ppm,omitempty"`
}

// Cores of the claim, ascending, each once.
func (r Record) Cores() []int {
	out := make([]int, len(r.Shares))
	for i, s := range r.Shares {
		out[i] = s.Core
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// validate says why a record that was read cannot be believed.
func (r Record) validate() error {
	switch {
	case r.Version != recordVersion:
		return fmt.Errorf("version %d; want %d", r.Version, recordVersion)
	case !validUID(r.UID):
		return fmt.Errorf("uid %q; want letters, digits and dashes", r.UID)
	case r.Name == "" || r.Namespace == "":
		return errors.New("namespace or name is empty")
	case len(r.Shares) == 0:
		return errors.New("it has no shares")
	}
	for i, s := range r.Shares {
		if err := s.validate(); err != nil {
			return fmt.Errorf("shares[%d]: %w", i, err)
		}
	}
	return nil
}

// validate refuses what would not add up: shares of more than there is may come out as none together.
func (s Share) validate() error {
	if core, ok := coreNumber(s.Device); !ok || core != s.Core {
		return fmt.Errorf("device %q is core %d; want core-<number>, and that core", s.Device, s.Core)
	}
	if s.PPM < 0 || rt.PPM(s.PPM) > rt.OneCore {
		return fmt.Errorf("device %s: ppm %d; want 0 to %d", s.Device, s.PPM, rt.OneCore)
	}
	return nil
}

// maxUID is far beyond the 36 characters of the API server's.
const maxUID = 128

// validUID keeps out what would lead a file name out of its directory.
func validUID(uid types.UID) bool {
	for _, c := range uid {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return len(uid) > 0 && len(uid) <= maxUID
}
