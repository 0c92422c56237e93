package ebpf_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// goName is the field of Go for a member of C: window_start is WindowStart.
func goName(member string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(strings.Trim(member, "_"), "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return strings.NewReplacer("Cpu", "CPU").Replace(name.String())
}

// TestLayout compares the structures that programs and user space share, member by member.
func TestLayout(t *testing.T) {
	spec, err := loadDecide()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{
		"slot_config": ebpf.Config{}, "slot_state": ebpf.State{}, "event": ebpf.Event{}, "tracked": ebpf.Tracked{},
		"runqueue": ebpf.Histogram{},
	} {
		t.Run(name, func(t *testing.T) {
			var c *btf.Struct
			if err := spec.Types.TypeByName(name, &c); err != nil {
				t.Fatal(err)
			}
			compare(t, c, reflect.TypeOf(value))
		})
	}
}

func compare(t *testing.T, c *btf.Struct, g reflect.Type) {
	t.Helper()
	if int(c.Size) != int(g.Size()) || len(c.Members) != g.NumField() {
		t.Errorf("%d bytes and %d members in C, %d and %d in Go", c.Size, len(c.Members), g.Size(), g.NumField())
		return
	}
	for i, member := range c.Members {
		field := g.Field(i)
		size, err := btf.Sizeof(member.Type)
		if err != nil {
			t.Fatal(err)
		}
		if int(member.Offset.Bytes()) != int(field.Offset) || size != int(field.Type.Size()) {
			t.Errorf("%s: at %d with %d bytes in C, at %d with %d in Go", member.Name, member.Offset.Bytes(), size, field.Offset, field.Type.Size())
		}
		if field.Name != "_" && goName(member.Name) != field.Name {
			t.Errorf("%s in C is at the place of %s in Go", member.Name, field.Name)
		}
	}
}

// TestConstants compares the enumerations.
func TestConstants(t *testing.T) {
	spec, err := loadDecide()
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]map[string]uint64{
		"source": {"SOURCE_OWN": ebpf.SourceOwn, "SOURCE_RT_GROUP": ebpf.SourceRTGroup, "SOURCE_DEADLINE": ebpf.SourceDeadline},
		"flags": {
			"FLAG_LIVE": ebpf.FlagLive, "FLAG_ALARM": ebpf.FlagAlarm, "FLAG_RAISED": ebpf.FlagRaised,
			"FLAG_ENFORCE": ebpf.FlagEnforce, "FLAG_JOBS": ebpf.FlagJobs,
		},
		"kind": {
			"KIND_ALARM": ebpf.KindAlarm, "KIND_END": ebpf.KindEnd, "KIND_WINDOW": ebpf.KindWindow,
			"KIND_CLEAN": ebpf.KindClean, "KIND_THROTTLED": ebpf.KindThrottled, "KIND_AGAIN": ebpf.KindAgain,
		},
	} {
		var c *btf.Enum
		if err := spec.Types.TypeByName(name, &c); err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, v := range c.Values {
			got[v.Name] = v.Value
		}
		if !reflect.DeepEqual(got, values) {
			t.Errorf("enum %s is %v in C, %v in Go", name, got, values)
		}
	}
	if spec.Maps["configs"].MaxEntries != ebpf.MaxSlots || spec.Maps["lost"].MaxEntries != ebpf.MaxCores {
		t.Errorf("maps of %d slots and %d cores; want %d and %d", spec.Maps["configs"].MaxEntries, spec.Maps["lost"].MaxEntries, ebpf.MaxSlots, ebpf.MaxCores)
	}
}
