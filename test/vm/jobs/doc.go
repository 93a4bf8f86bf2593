// Package jobs holds the tests that run in virtual machines; "scripts/test vm" runs them. Package vm says how to write
// one. Tests call t.Parallel: machines run beside each other. What is named Nightly "scripts/test nightly" runs.
package jobs
