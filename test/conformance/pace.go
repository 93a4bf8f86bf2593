package conformance

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// paceVariable is the name of an environment variable that specifies how many times slower this machine is than a
// typical machine. The test/vm jobs for emulated machines set this variable. The factor extends the times that affect a
// test's result: the wait for a dropped packet, and the session affinity timeout. The factor also shortens random walks
// and lowers the request rate of clients that send requests continuously. The suite still runs every test.
const paceVariable = "CONFORMANCE_PACE"

func paced(d time.Duration) time.Duration { return time.Duration(pace()) * d }

// requestPause returns the pause between two requests from a client. The pause leaves CPU time for the backend.
func requestPause() time.Duration {
	return 5*time.Millisecond + time.Duration(pace()-1)*100*time.Millisecond
}

// scaleDown returns n divided by the pace, or least if least is larger.
func scaleDown(n, least int) int { return max(least, n/pace()) }

func pace() int {
	text, set := os.LookupEnv(paceVariable)
	if !set {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("%s=%s: the value must be an integer of at least 1", paceVariable, text))
	}
	return n
}
