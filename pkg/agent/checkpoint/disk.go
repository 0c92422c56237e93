package checkpoint

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mistakes of archives.
var (
	// ErrTooLarge means that an archive is larger than is allowed.
	ErrTooLarge = errors.New("the archive is too large")
	// ErrQuota means that archives would take more of the disk than they may.
	ErrQuota = errors.New("archives may take no more of the disk")
	// ErrCorrupt means that an archive is not what its digest says, or no archive of a container.
	ErrCorrupt = errors.New("the archive is corrupt")
)

// Limits of what archives take of the disk, in bytes.
type Limits struct {
	// Archive is the largest; Quota all of the node's together; Free is what must stay free on the disk, and FreePercent the same as a share of it: the
	// larger counts. Where less is free than the kubelet's threshold it evicts pods.
	Archive, Quota, Free int64
	FreePercent          int
}

// free is what must stay free on a disk of that size.
func (l Limits) free(disk int64) int64 { return max(l.Free, disk/100*int64(l.FreePercent)) }

// The runtime writes the state several times over until it is an archive, or a snapshot: so many times its size must be
// free. (containerd 2.3: CRIU's images, their blob, the directory that is packed, and the archive.)
const (
	copiesOut = 4
	copiesIn  = 3
)

// own lets no other user read an archive, and returns its size and digest. It follows no link.
func own(path string, most int64) (int64, string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, "", fmt.Errorf("opening the archive: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, "", fmt.Errorf("opening the archive: %w", err)
	}
	if !info.Mode().IsRegular() {
		return 0, "", fmt.Errorf("%w: it is no regular file", ErrCorrupt)
	}
	if err := file.Chmod(0o600); err != nil {
		return 0, "", fmt.Errorf("closing the archive to others: %w", err)
	}
	if most > 0 && info.Size() > most {
		return 0, "", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, info.Size(), most)
	}
	hash := sha256.New()
	n, err := io.Copy(hash, file)
	if err != nil {
		return 0, "", fmt.Errorf("reading the archive: %w", err)
	}
	return n, "sha256:" + hex.EncodeToString(hash.Sum(nil)), nil
}

// maxConfig bounds the file of an archive that says what it was made of.
const maxConfig = 1 << 20

// bases are the names of the image that the container was made of, as the archive tells (checkpointctl's config.dump).
func bases(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the archive: %w", err)
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: it has no config.dump", ErrCorrupt)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if strings.TrimPrefix(header.Name, "./") != "config.dump" {
			continue
		}
		var config struct {
			RootfsImageName string `json:"rootfsImageName"`
			RootfsImageRef  string `json:"rootfsImageRef"`
		}
		if err := json.NewDecoder(io.LimitReader(r, maxConfig)).Decode(&config); err != nil {
			return nil, fmt.Errorf("%w: its config.dump: %w", ErrCorrupt, err)
		}
		return []string{config.RootfsImageRef, config.RootfsImageName}, nil
	}
}

// removeArchives removes what the kubelet has written of a pod's container since a certain time, and before another if there is one: also what it had not
// told of when the agent died.
func removeArchives(dir string, pod Pod, container string, since, before time.Time) error {
	prefix := fmt.Sprintf("checkpoint-%s_%s-%s-", pod.Name, pod.Namespace, container)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing archives: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		rest, ours := strings.CutPrefix(e.Name(), prefix)
		_, when := time.Parse(time.RFC3339, strings.TrimSuffix(rest, ".tar"))
		if err != nil || !ours || when != nil || info.ModTime().Before(since) || !before.IsZero() && !info.ModTime().Before(before) {
			continue // another container's name may begin so
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing an archive: %w", err))
		}
	}
	return errors.Join(errs...)
}
