package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// What a container finds in its environment.
const (
	// EnvCores lists the cores of the container's claim, as in "2" or "2,5". The controller may have it run on
	// another one later: the truth is in the status of its McKube.
	EnvCores = "MAINSPRING_CORES"
	// EnvClaim is the claim, namespace/name.
	EnvClaim = "MAINSPRING_CLAIM"
)

// The Container Device Interface (CNCF tag-runtime, version 0.5.0): each claim is a device of this kind.
const (
	cdiVersion = "0.5.0"
	cdiKind    = v1alpha1.DriverCPU + "/claim"
	cdiPrefix  = v1alpha1.DriverCPU + "-claim_"
	cdiSuffix  = ".json"
)

type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Name  string   `json:"name"`
	Edits cdiEdits `json:"containerEdits"`
}

type cdiEdits struct {
	Env []string `json:"env"`
}

// cdiID names the device of a claim. The UID is in it, so that a runtime which remembers an earlier claim of
// the name does not take it for this one.
func cdiID(uid types.UID) string { return cdiKind + "=" + string(uid) }

// ClaimOfDevice is the claim of a CDI device's full name; ok is false when the device is not ours.
func ClaimOfDevice(name string) (uid types.UID, ok bool) {
	text, ok := strings.CutPrefix(name, cdiKind+"=")
	return types.UID(text), ok
}

// specOf is what the runtime edits in the containers that use the claim.
func specOf(r Record) cdiSpec {
	cores := make([]string, 0, len(r.Shares))
	for _, core := range r.Cores() {
		cores = append(cores, strconv.Itoa(core))
	}
	return cdiSpec{Version: cdiVersion, Kind: cdiKind, Devices: []cdiDevice{{
		Name: string(r.UID),
		Edits: cdiEdits{Env: []string{
			EnvCores + "=" + strings.Join(cores, ","),
			EnvClaim + "=" + r.Namespace + "/" + r.Name,
		}},
	}}}
}

// cdiFolder is where the runtime looks for specifications.
type cdiFolder struct{ dir string }

func openCDI(dir string) (cdiFolder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cdiFolder{}, fmt.Errorf("making the folder of CDI specifications: %w", err)
	}
	return cdiFolder{dir}, nil
}

func (c cdiFolder) path(uid types.UID) string {
	return filepath.Join(c.dir, cdiPrefix+string(uid)+cdiSuffix)
}

func (c cdiFolder) save(r Record) error {
	data, err := json.MarshalIndent(specOf(r), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the CDI specification of claim %s: %w", r.UID, err)
	}
	data = append(data, '\n')
	if there, err := keptfile.Read(c.path(r.UID), maxFile); err == nil && bytes.Equal(there, data) {
		return nil
	}
	return writeWhole(c.path(r.UID), data, 0o644)
}

func (c cdiFolder) remove(uid types.UID) error {
	if err := os.Remove(c.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a CDI specification: %w", err)
	}
	return nil
}

// restore makes the folder hold what the records say, and no other file of ours, but for those of lost claims:
// a container that uses one and restarts would be refused by the runtime, and the kubelet prepares a claim
// again only when it makes the whole pod anew. It returns the names of the lost ones that have a file.
func (c cdiFolder) restore(records map[types.UID]Record, lost []types.UID) (map[types.UID]types.NamespacedName, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("listing CDI specifications: %w", err)
	}
	names := map[types.UID]types.NamespacedName{}
	var faults []error
	for _, e := range entries {
		faults = append(faults, removeTemp(c.dir, e.Name()))
		name, isOurs := strings.CutPrefix(e.Name(), cdiPrefix)
		uid := types.UID(strings.TrimSuffix(name, cdiSuffix))
		if _, known := records[uid]; known || !isOurs {
			continue
		}
		claim, readable := c.claimOf(uid)
		if readable && slices.Contains(lost, uid) {
			names[uid] = claim
			continue
		}
		faults = append(faults, c.remove(uid))
	}
	for _, r := range records {
		faults = append(faults, c.save(r))
	}
	return names, errors.Join(faults...)
}

// claimOf is the name of the claim whose specification is there.
func (c cdiFolder) claimOf(uid types.UID) (types.NamespacedName, bool) {
	var spec cdiSpec
	data, err := keptfile.Read(c.path(uid), maxFile)
	if err != nil || json.Unmarshal(data, &spec) != nil || len(spec.Devices) != 1 {
		return types.NamespacedName{}, false
	}
	for _, variable := range spec.Devices[0].Edits.Env {
		if claim, ok := strings.CutPrefix(variable, EnvClaim+"="); ok {
			namespace, name, ok := strings.Cut(claim, "/")
			return types.NamespacedName{Namespace: namespace, Name: name}, ok && namespace != "" && name != ""
		}
	}
	return types.NamespacedName{}, false
}
