package localnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// sysctls are those that a kubelet, or a plugin of the network, sets.
var sysctls = []string{
	"net/ipv4/ip_forward",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// outside are directories beyond its own that a kubelet or containerd uses whatever it is told.
var outside = []string{"/var/lib/kubelet", "/var/log/containers", "/run/containerd"}

// containerLogs is where a kubelet links to the logs of containers.
const containerLogs = "/var/log/containers"

// addressRange is where nodes take their addresses from: no kubelet may have one of 127.0.0.0/8.
const addressRange = "10.99.0."

const loopback = "lo"

// survey notes how the machine is, before a node of that directory changes it.
func (m machine) survey(dir string) (record, error) {
	before, err := sysctlsBefore(dir)
	if err != nil {
		return record{}, err
	}
	r := record{Group: "/" + filepath.Base(dir), Sysctls: map[string]string{}}
	if r.Address, err = freeAddress(); err != nil {
		return record{}, err
	}
	for _, name := range sysctls {
		value, err := os.ReadFile(m.sysctl(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return record{}, fmt.Errorf("reading sysctl %s: %w", name, err)
		}
		r.Sysctls[name] = cmp.Or(before[name], strings.TrimSpace(string(value)))
	}
	for _, path := range outside {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			r.Created = append(r.Created, path)
		}
	}
	return r, nil
}

// sysctlsBefore are the values from before the first node that lives: what a further one reads, a kubelet has set.
func sysctlsBefore(dir string) (map[string]string, error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempPattern+"*"))
	if err != nil {
		return nil, fmt.Errorf("listing the directories of nodes: %w", err)
	}
	for _, other := range dirs {
		if other == dir || !lives(other) {
			continue
		}
		r, err := readRecord(other)
		if err != nil {
			return nil, err
		}
		if len(r.Sysctls) > 0 {
			return r.Sysctls, nil
		}
	}
	return nil, nil
}

// machine is the one that the node runs on.
type machine struct{ host.Host }

func (m machine) sysctl(name string) string { return m.Proc("sys", filepath.FromSlash(name)) }

// restoreSysctls writes back what was there, and reads that it is.
func (m machine) restoreSysctls(were map[string]string) error {
	var errs []error
	for name, value := range were {
		now, err := os.ReadFile(m.sysctl(name))
		if err == nil && strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(m.sysctl(name), []byte(value), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("restoring sysctl %s to %s: %w", name, value, err))
		}
	}
	return errors.Join(errs...)
}

// freeAddress is the first address of the range that the loopback device has not.
func freeAddress() (string, error) {
	taken, err := loopbackAddresses()
	if err != nil {
		return "", err
	}
	for n := 1; n < 255; n++ {
		if address := fmt.Sprint(addressRange, n); !slices.Contains(taken, address) {
			return address, nil
		}
	}
	return "", fmt.Errorf("finding an address for the node: device %s has all of %s1 to %[2]s254", loopback, addressRange)
}

func loopbackAddresses() ([]string, error) {
	device, err := net.InterfaceByName(loopback)
	if err != nil {
		return nil, fmt.Errorf("finding the loopback device: %w", err)
	}
	networks, err := device.Addrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of device %s: %w", loopback, err)
	}
	var all []string
	for _, n := range networks {
		if ip, ok := n.(*net.IPNet); ok {
			all = append(all, ip.IP.String())
		}
	}
	return all, nil
}

func addAddress(ctx context.Context, address string) error {
	return ipCommand(ctx, "addr", "add", address+"/32", "dev", loopback)
}

// removeAddress takes an address of ours from the loopback device, where it still is.
func removeAddress(ctx context.Context, address string) error {
	taken, err := loopbackAddresses()
	if err != nil || !strings.HasPrefix(address, addressRange) || !slices.Contains(taken, address) {
		return err
	}
	return ipCommand(ctx, "addr", "del", address+"/32", "dev", loopback)
}

func ipCommand(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("calling ip %s (of package iproute2): %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
