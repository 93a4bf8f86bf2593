// Package jobs contains the tests that start virtual machines. "scripts/test vm" runs the tests without Nightly in
// their names, and "scripts/test nightly" runs all tests. The documentation of package vm explains how to write a test.
// Tests call t.Parallel to run their virtual machines in parallel.
package jobs
