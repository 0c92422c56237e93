package frontdoor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/frontdoor"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
	"github.com/mainspring-rt/mainspring/pkg/webhooks/certs"
)

// A process that starts does not read without end what something has made of its files.
func TestAKeptCertificateThatIsTooLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, certs.KeyCA))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Truncate(1<<40), file.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = frontdoor.NewCertificate(frontdoor.CertificateOptions{Keep: dir, DNSNames: []string{"localhost"}, Clock: clock.RealClock{}, Log: logr.Discard()})
	if !errors.Is(err, keptfile.ErrTooLong) {
		t.Errorf("a file of a terabyte is answered with %v", err)
	}
}
