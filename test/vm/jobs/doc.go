// Package jobs contains the tests that start virtual machines. "scripts/test vm" runs these tests, and "scripts/test
// nightly" also runs the tests with Nightly in their names. Package vm describes how to write a test. Tests call
// t.Parallel, so that the machines run in parallel.
package jobs
