package lean_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/lean"
)

const smaps = `00400000-01f2d000 r-xp 00000000 fe:00 123 /usr/bin/agent
Size:              27828 kB
Rss:               10000 kB
Anonymous:             0 kB
01f2d000-03f11000 r--p 01b2d000 fe:00 123 /usr/bin/agent
Rss:               10000 kB
Anonymous:             0 kB
03f11000-03fd4000 rw-p 03b11000 fe:00 123 /usr/bin/agent
Anonymous:             0 kB
04000000-04001000 r--p 00000000 fe:00 123 /usr/bin/agent
Anonymous:             4 kB
05000000-05001000 r-xp 00000000 fe:00 124 /lib/other
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:          4096 kB
zz-05001000 r-xp 00000000 fe:00 123 /usr/bin/agent
Anonymous:             0 kB
05001000-05000000 r-xp 00000000 fe:00 123 /usr/bin/agent
Anonymous:             0 kB
7ffd0000-7ffd1000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
`

// What was written, relocated or belongs to others is never given back.
func TestOnlyCleanPagesOfTheProgramAreGivenBack(t *testing.T) {
	t.Parallel()
	got := lean.CleanMappings(smaps, "/usr/bin/agent")
	if len(got) != 2 || got[0] != (lean.Mapping{0x400000, 0x1f2d000, true}) || got[1] != (lean.Mapping{0x1f2d000, 0x3f11000, false}) {
		t.Errorf("%+v", got)
	}
	for _, code := range []bool{false, true} {
		if err := lean.Trim(code); err != nil { // of this test's own program, which goes on
			t.Error(err)
		}
	}
}

func FuzzCleanMappings(f *testing.F) {
	f.Add(smaps, "/usr/bin/agent")
	f.Fuzz(func(t *testing.T, text, file string) {
		for _, m := range lean.CleanMappings(text, file) {
			if m.End <= m.Start {
				t.Fatalf("%+v", m)
			}
		}
	})
}
