package conformance

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// paceVariable of the environment says how many times slower than usual this machine is; it is set in
// emulated ones. Times that decide about an outcome are stretched by it: how long a drop is watched, and
// how soon session affinity ends. What is compared stays the same.
const paceVariable = "CONFORMANCE_PACE"

// paced stretches a time.
func paced(d time.Duration) time.Duration {
	text, set := os.LookupEnv(paceVariable)
	if !set {
		return d
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("%s=%s: want a whole number from 1", paceVariable, text))
	}
	return time.Duration(n) * d
}
