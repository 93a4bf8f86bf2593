// Package plantest creates plans for the proxier tests.
package plantest
