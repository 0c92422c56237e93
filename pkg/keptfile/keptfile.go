// Package keptfile reads the files that a process has kept for the one after it.
package keptfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrTooLong is for a file that no process of ours has written.
var ErrTooLong = errors.New("it is too long")

// Read returns what a file holds, at most so many bytes of it: one that is longer is an ErrTooLong, and is not read to its end. Whoever
// starts must not run out of memory by what something else has made of its file.
func Read(path string, most int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if len(data) > most {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrTooLong, path, most)
	}
	return data, nil
}
