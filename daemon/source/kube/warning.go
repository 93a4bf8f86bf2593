package kube

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"edgeway/daemon/files"
)

// Warning is something about a kubeconfig that an operator should change. The kubeconfig is used nevertheless.
type Warning struct {
	Message string
	// Fix is a command.
	Fix string
	// Expired reports whether the API server accepts the credential no more.
	Expired bool
}

// Warnings returns what is dangerous about a kubeconfig, and what expires soon. The error says why a daemon could not
// use the kubeconfig.
func Warnings(kubeconfig string, allowExec bool) ([]Warning, error) {
	a, err := loadKubeconfig(kubeconfig, allowExec)
	if err != nil {
		return a.insecure, err
	}
	return append(a.insecure, expiryWarnings(a.expiries, kubeconfig, time.Now())...), nil
}

func joined(warnings []Warning) string {
	var messages []string
	for _, w := range warnings {
		messages = append(messages, w.Message)
	}
	return strings.Join(messages, "; ")
}

// fixableError is an error of a kubeconfig, and its fix.
type fixableError struct {
	error
	fix string
}

func (e *fixableError) Unwrap() error { return e.error }

func fixable(fix string, err error) error { return &fixableError{err, fix} }

// Advice returns the fix of an error of a kubeconfig, or "" if the error says it.
func Advice(err error) string {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return files.Advice(failed.Path, failed.Err)
	}
	if f, ok := errors.AsType[*fixableError](err); ok {
		return f.fix
	}
	return ""
}
