package discover

import (
	"errors"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Groups finds the group of a container on this machine; host.Host does. The error is host.ErrNotFound,
// wrapped, while there is none.
type Groups interface {
	ContainerGroup(podUID, containerID string) (string, error)
}

// Found is a container with its group.
type Found struct {
	Container
	// Cgroup is the group's path below the root of each hierarchy; empty while there is none.
	Cgroup string
	// Err is why the group could not be looked for; a group that is not there yet is no error.
	Err error
}

// maxSightings bounds what the runtime may have told ahead of the API.
const maxSightings = 4096

// sighting is a container that the runtime has told of and the API not yet. before is what the API
// said at that time: the sighting is news until it says something else.
type sighting struct {
	id, before string
	asked      bool
}

// Finder remembers the groups that it found, so that each is searched for once. It is safe for
// concurrent use.
type Finder struct {
	groups   Groups
	onChange func()

	mu      sync.Mutex
	known   map[string]string // groups by container ID
	sighted map[Key]sighting
}

// NewFinder calls onChange, which must not block, when the runtime has told of a container.
func NewFinder(groups Groups, onChange func()) *Finder {
	return &Finder{groups: groups, onChange: onChange, known: map[string]string{}, sighted: map[Key]sighting{}}
}

// Created says that the runtime has made a container, before the kubelet reports it. The ID is without the
// name of the runtime. Its group is looked for like any other, so that none is governed which is not there.
func (f *Finder) Created(pod types.UID, container, containerID, _ string) {
	f.mu.Lock()
	if len(f.sighted) < maxSightings {
		f.sighted[Key{pod, container}] = sighting{id: containerID}
	}
	f.mu.Unlock()
	f.onChange()
}

// Find finds the groups of containers, and forgets those that are not among them. complete is false while
// one that runs has no group yet: ask again soon.
func (f *Finder) Find(containers map[Key]Container) (found map[Key]Found, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, complete = make(map[Key]Found, len(containers)), true
	known := make(map[string]string, len(f.known))
	for key, c := range containers {
		one := f.find(key, c)
		if one.Cgroup != "" {
			known[one.ID] = one.Cgroup
		}
		if one.ID != "" && one.Cgroup == "" && one.Err == nil {
			complete = false
		}
		found[key] = one
	}
	f.known = known
	f.forget(containers)
	return found, complete
}

// forget drops sightings of pods that are gone, once there are many: a pod that is not known yet may come.
func (f *Finder) forget(containers map[Key]Container) {
	if len(f.sighted) < maxSightings/2 {
		return
	}
	for key := range f.sighted {
		if _, there := containers[key]; !there {
			delete(f.sighted, key)
		}
	}
}

// find takes the runtime's word where it is newer than the API's.
func (f *Finder) find(key Key, c Container) Found {
	seen, sighted := f.sighted[key]
	if !sighted {
		return f.search(c)
	}
	if !seen.asked {
		seen.asked, seen.before = true, c.ID
		f.sighted[key] = seen
	}
	if c.ID != seen.before || strings.HasSuffix(c.ID, "://"+seen.id) {
		delete(f.sighted, key) // the API knows as much
		return f.search(c)
	}
	c.ID = seen.id
	delete(f.known, seen.id) // nobody else tells when it ends
	return f.search(c)
}

func (f *Finder) search(c Container) Found {
	if c.ID == "" {
		return Found{Container: c}
	}
	if group, ok := f.known[c.ID]; ok {
		return Found{Container: c, Cgroup: group}
	}
	group, err := f.groups.ContainerGroup(c.GroupUID, c.ID)
	if errors.Is(err, host.ErrNotFound) {
		return Found{Container: c}
	}
	return Found{Container: c, Cgroup: group, Err: err}
}
