package checkpoint

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRecord: a record is believed only where it is that of its file, so that nothing else is written or removed for it.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","uid":"u-1","role":"source","paused":{"app":"c"},"archives":[{"container":"app","bytes":1}]}`,
		`{"uid":"../../x","role":"source"}`, `{"uid":"u-1","role":"target"}`, `{"uid":"u-2","role":"source"}`, "null", "{}", "[]", "", `{"uid":`,
	} {
		f.Add([]byte(seed))
	}
	r := records{dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(r.path("u-1", Source), data, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := r.all()
		for _, one := range all {
			if err != nil || one.UID != "u-1" || one.Role != Source {
				t.Fatalf("%q: %+v, %v", data, one, err)
			}
		}
		if held, err := r.load("u-1", Source); (err == nil) != (len(all) == 1) || err == nil && held == nil {
			t.Fatalf("%q: %+v, %v; in the list are %d", data, held, err, len(all))
		}
	})
}

// FuzzBases: archives come from other nodes. One that can be read names two images.
func FuzzBases(f *testing.F) {
	var whole bytes.Buffer
	w := tar.NewWriter(&whole)
	const config = `{"rootfsImageName":"a:1","rootfsImageRef":"a@sha256:1"}`
	for _, name := range []string{"spec.dump", "./config.dump"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(config))}); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte(config)); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:700])
	f.Add([]byte{})
	path := filepath.Join(f.TempDir(), "archive.tar")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if names, err := bases(path); (err == nil) != (len(names) == 2) || err == nil && !strings.Contains(string(data), "config.dump") {
			t.Fatalf("%q: %q, %v", data, names, err)
		}
	})
}
