package kubelet

import "testing"

// FuzzAnswers: whatever the kubelet answers, an archive has a name, and a reason one short line.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{`{"items":["/var/lib/kubelet/checkpoints/a.tar"]}`, `{"items":[]}`, `{"items":["",""]}`, "null", "pod does not exist\n", ""} {
		f.Add(200, []byte(seed))
		f.Add(404, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, code int, text []byte) {
		if archive, err := archiveOf(text); (err == nil) != (archive != "") {
			t.Fatalf("%q: %q, %v", text, archive, err)
		}
		if err := judge(code, text); err == nil && code != 404 || len(firstLine(text)) > 512 {
			t.Fatalf("%d %q: %v", code, text, err)
		}
	})
}
