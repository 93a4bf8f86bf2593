package conformance

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// paceVariable of the environment says how many times slower than usual this machine is; it is set in
// emulated ones. Times that decide about an outcome are stretched by it: how long a drop is watched, and
// how soon session affinity ends. Random walks are shorter, and clients that ask all the time ask less often; all
// else that is compared stays the same.
const paceVariable = "CONFORMANCE_PACE"

// paced stretches a time.
func paced(d time.Duration) time.Duration { return time.Duration(pace()) * d }

// rest is the time between two questions of one client of many, so that they leave a processor to the backend.
func rest() time.Duration { return 5*time.Millisecond + time.Duration(pace()-1)*100*time.Millisecond }

// fewer shortens a random walk of n steps.
func fewer(n, least int) int { return max(least, n/pace()) }

func pace() int {
	text, set := os.LookupEnv(paceVariable)
	if !set {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("%s=%s: want a whole number from 1", paceVariable, text))
	}
	return n
}
