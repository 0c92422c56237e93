package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
)

//go:embed page.html
var source string

var page = template.Must(template.New("page").Parse(source))

// Write writes a page.
func Write(w io.Writer, p Page) error {
	for _, s := range p.Sections {
		for _, t := range s.Tables {
			if err := t.check(); err != nil {
				return fmt.Errorf("section %q: %w", s.Title, err)
			}
		}
	}
	if err := page.Execute(w, p); err != nil {
		return fmt.Errorf("writing page %q: %w", p.Title, err)
	}
	return nil
}

func (t Table) check() error {
	for i, row := range t.Rows {
		if len(row) != len(t.Head) {
			return fmt.Errorf("table %q: row %d has %d cells, want %d", t.Caption, i+1, len(row), len(t.Head))
		}
	}
	return nil
}

// IndexFile is the name of a report in its folder.
const IndexFile = "index.html"

// Writable makes the folder of --report and checks that these files can be written there, so that a run does not find out
// at its end that it cannot.
func Writable(dir string, files ...string) error {
	fail := func(err error) error {
		return fmt.Errorf("--report %q: %w; want a directory that can be written", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fail(err)
	}
	for _, name := range files {
		existing, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		existing.Close()
	}
	return nil
}

// WriteFile writes a page to dir/index.html, making dir when it is missing, and gives the file's path.
func WriteFile(dir string, p Page) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making report folder: %w", err)
	}
	path := filepath.Join(dir, IndexFile)
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("making report: %w", err)
	}
	if err := Write(f, p); err != nil {
		f.Close()
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("writing report: %w", err)
	}
	return path, nil
}
