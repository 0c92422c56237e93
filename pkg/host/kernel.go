package host

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// KernelConfig are the options that the kernel was built with, by name with CONFIG_: "y", "m", a number, a
// text without its quotes, or "n" for one that is not set.
type KernelConfig map[string]string

// On says that an option is built in.
func (c KernelConfig) On(option string) bool { return c[option] == "y" }

// KernelRelease is what uname -r prints.
func (h Host) KernelRelease() (string, error) {
	return readString(h.Proc("sys", "kernel", "osrelease"))
}

// KernelVersion is what uname -v prints, such as "#1 SMP PREEMPT_RT ...".
func (h Host) KernelVersion() (string, error) {
	return readString(h.Proc("sys", "kernel", "version"))
}

// Cmdline are the kernel's boot parameters, in order.
func (h Host) Cmdline() ([]string, error) {
	text, err := readString(h.Proc("cmdline"))
	return strings.Fields(text), err
}

// KernelConfig reads the kernel's options and says which file had them: /proc/config.gz, or a file that
// distributions install. The error wraps ErrUnsupported when there is none.
func (h Host) KernelConfig() (KernelConfig, string, error) {
	release, err := h.KernelRelease()
	if err != nil {
		return nil, "", fmt.Errorf("reading kernel configuration: %w", err)
	}
	files := []string{
		h.Proc("config.gz"), h.Path("boot", "config-"+release), h.Path("lib", "modules", release, "config"),
		h.Path("usr", "lib", "modules", release, "config"), h.Path("usr", "lib", "kernel", "config-"+release),
	}
	for _, file := range files {
		text, err := readConfig(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading kernel configuration %s: %w", file, err)
		}
		return ParseKernelConfig(text), file, nil
	}
	return nil, "", fmt.Errorf("reading kernel configuration: %w: none of %s", ErrUnsupported, strings.Join(files, ", "))
}

func readConfig(file string) (string, error) {
	if !strings.HasSuffix(file, ".gz") {
		return readFile(file)
	}
	packed, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = packed.Close() }()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(unpacked, maxFile))
	return string(data), err
}

// ParseKernelConfig reads the format of a kernel's .config; lines of another form are passed over.
func ParseKernelConfig(text string) KernelConfig {
	config := KernelConfig{}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if name, unset := strings.CutSuffix(strings.TrimPrefix(line, "# "), " is not set"); unset && strings.HasPrefix(name, "CONFIG_") {
			config[name] = "n"
			continue
		}
		if name, value, set := strings.Cut(line, "="); set && strings.HasPrefix(name, "CONFIG_") {
			config[name] = strings.Trim(value, `"`)
		}
	}
	return config
}

// parseSchedFeatures reads "GENTLE_FAIR_SLEEPERS NO_HRTICK ...".
func parseSchedFeatures(text string) map[string]bool {
	features := map[string]bool{}
	for name := range strings.FieldsSeq(text) {
		name, off := strings.CutPrefix(name, "NO_")
		features[name] = !off
	}
	return features
}

// HasBTF says that the kernel's type information is there, which programs are relocated with.
func (h Host) HasBTF() bool {
	_, err := os.Stat(h.Sys("kernel", "btf", "vmlinux"))
	return err == nil
}

// RTGroupSched says that the kernel gives real-time bandwidth to groups, so that a group without a budget
// can run no real-time task. It is seen in the v1 hierarchy of controller cpu; otherwise it is read from the
// options and boot parameters, and the error wraps ErrUnsupported when those cannot be read.
func (h Host) RTGroupSched() (bool, error) {
	if c, err := h.Cgroups(); err == nil && !c.InUnified("cpu") && c.Has("cpu") {
		dir, err := c.Dir("cpu", "/")
		if err != nil {
			return false, err
		}
		_, err = os.Stat(dir + "/cpu.rt_runtime_us")
		return err == nil, nil
	}
	config, _, err := h.KernelConfig()
	if err != nil {
		return false, err
	}
	if !config.On("CONFIG_RT_GROUP_SCHED") {
		return false, nil
	}
	preset, switchable := config["CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED"]
	if !switchable { // an older kernel, to which the boot parameter says nothing
		return true, nil
	}
	return h.rtGroupsAtBoot(preset != "y")
}

// rtGroupsAtBoot follows the boot parameter rt_group_sched=; the last one counts.
func (h Host) rtGroupsAtBoot(otherwise bool) (bool, error) {
	parameters, err := h.Cmdline()
	if err != nil {
		return false, fmt.Errorf("reading boot parameters: %w", err)
	}
	for _, p := range parameters {
		if value, found := strings.CutPrefix(p, "rt_group_sched="); found {
			otherwise = value == "1" || value == "y" || value == "on"
		}
	}
	return otherwise, nil
}
