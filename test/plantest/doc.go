// Package plantest creates plans for the tests of the proxiers.
package plantest
