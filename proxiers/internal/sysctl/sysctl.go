// Package sysctl reads and writes numbers in /proc/sys.
package sysctl

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Int reads a number.
func Int(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// Set writes a number. If the file already contains the number, Set writes nothing, because the file may be read-only.
func Set(path string, value int) error {
	if now, err := Int(path); err == nil && now == value {
		return nil
	}
	return os.WriteFile(path, []byte(strconv.Itoa(value)), 0)
}
