package checkpoint

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
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

// FuzzTake: however much another agent sends, no more is kept than the archive has, and not one byte more is taken for success.
func FuzzTake(f *testing.F) {
	f.Add([]byte("archive"), uint8(7), []byte("arc"))
	f.Add([]byte("archive"), uint8(6), []byte(nil))
	f.Add([]byte("archive"), uint8(8), []byte("a"))
	f.Add([]byte(nil), uint8(0), []byte(nil))
	path := filepath.Join(f.TempDir(), "archive.tar")
	f.Fuzz(func(t *testing.T, body []byte, size uint8, have []byte) {
		have = have[:min(len(have), int(size))] // attempt removes a longer one
		if err := os.WriteFile(path, have, 0o600); err != nil {
			t.Fatal(err)
		}
		told := int64(len(have))
		one := fetch{path: path, bytes: int64(size), progress: func(n int64) { told = n }}
		err := one.take(bytes.NewReader(body), os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, int64(len(have)), func() {})
		held, fault := os.ReadFile(path)
		if fault != nil {
			t.Fatal(fault)
		}
		whole := bytes.Join([][]byte{have, body}, nil)
		if want := whole[:min(len(whole), int(size))]; !bytes.Equal(held, want) || told != int64(len(want)) {
			t.Fatalf("%d bytes and then %q of %d: %q is held, %d are told", len(have), body, size, held, told)
		}
		if tooMuch := len(whole) > int(size); tooMuch != errors.Is(err, ErrTooLarge) || !tooMuch && err != nil {
			t.Fatalf("%d bytes and then %q of %d: %v", len(have), body, size, err)
		}
	})
}

// FuzzRemoveArchives: only what the kubelet names after a container and a time is removed as that container's.
func FuzzRemoveArchives(f *testing.F) {
	for _, seed := range []string{"2026-01-02T03:04:05Z.tar", "2026-01-02T03:04:05+01:00.tar", "x-2026-01-02T03:04:05Z.tar", "2026-01-02T03:04:05Z.tar.old", ".tar", ""} {
		f.Add("app", seed)
		f.Add("side-app", seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, container, rest string) {
		name := "checkpoint-p_ns-" + container + "-" + rest
		path := filepath.Join(dir, name)
		if strings.ContainsAny(name, "/\x00") || len(name) > 255 {
			return
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(path) }()
		if err := removeArchives(dir, Pod{Namespace: "ns", Name: "p"}, "app", time.Time{}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(path)
		when := strings.TrimSuffix(strings.TrimPrefix(name, "checkpoint-p_ns-app-"), ".tar")
		if _, wrong := time.Parse(time.RFC3339, when); errors.Is(err, fs.ErrNotExist) != (wrong == nil) {
			t.Fatalf("%s: %v", name, err)
		}
	})
}

// FuzzCRIUVersion: what CRIU says of itself comes into a status that the API server takes.
func FuzzCRIUVersion(f *testing.F) {
	for _, seed := range []string{"Version: 4.1\nGitID: v4.1\n", "Version: " + strings.Repeat("9", 100), "Version: " + strings.Repeat("\u00e4", 40), "Version: \xff", "x\nVersion: 3\n", "Version:", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		version := criuVersionOf(text)
		if len(version) > criuLimit || !utf8.ValidString(version) || strings.ContainsAny(version, " \n") || version != "" && !bytes.Contains(text, []byte("Version: ")) {
			t.Fatalf("%q is version %q", text, version)
		}
	})
}
