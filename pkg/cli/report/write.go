package report

import (
	_ "embed"
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

// WriteFile writes a page to dir/index.html, making dir when it is missing, and gives the file's path.
func WriteFile(dir string, p Page) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making report folder: %w", err)
	}
	path := filepath.Join(dir, "index.html")
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
