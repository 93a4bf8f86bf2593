package ebpf

import (
	"fmt"
	"testing"

	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/internal/nfttable/batches"
	"edgeway/proxiers/plan"
)

func TestBatchesOfAnySize(t *testing.T) {
	for chunk, steps := range map[int]int{30: 40, 10_000: 4} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			batches.Test(t, chunk, steps, func(*plan.Plan) nfttable.Schema { return schema() })
		})
	}
}
