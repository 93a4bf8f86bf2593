package kube

import (
	"errors"
	"io/fs"

	"edgeway/daemon/files"
)

type fixableError struct {
	error
	fix string
}

func (e *fixableError) Unwrap() error { return e.error }

func fixable(fix string, err error) error { return &fixableError{err, fix} }

// Advice returns the fix for an error in a kubeconfig, or "" if the error message itself contains the fix.
func Advice(err error) string {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return files.Advice(failed.Path, failed.Err)
	}
	if f, ok := errors.AsType[*fixableError](err); ok {
		return f.fix
	}
	return ""
}
