// Package jobs holds the tests that run in virtual machines; "scripts/test vm" runs them. Package vm says how
// to write one. Tests call t.Parallel: two machines run at a time.
package jobs
