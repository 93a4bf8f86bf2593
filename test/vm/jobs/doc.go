// Package jobs contains the tests that run in virtual machines. "scripts/test vm" runs these tests, and "scripts/test
// nightly" runs the tests with Nightly in their names. Package vm describes how to write a test. Tests call
// t.Parallel, because the machines run in parallel.
package jobs
