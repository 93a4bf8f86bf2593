// Package plantest makes plans for the tests of the proxiers.
package plantest
