package lastknown

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"

	"edgeway/proxiers/contain"
)

// batchSize is the minimum size of a batch in bytes, except for the last batch.
const batchSize = 256 << 10

// batch is a group of consecutive snapshot lines. Each batch has its own goroutine, because decoding all lines on one
// CPU would take a third of the time of a restart.
type batch struct {
	lines   []byte
	records []record
	decoded chan error
}

func (b *batch) decode() error {
	for line := range bytes.Lines(b.lines) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("decode line: %w", err)
		}
		b.records = append(b.records, r)
	}
	return nil
}

// batches decodes lines, and passes the records to add in order.
type batches struct {
	add     func(*record)
	filling []byte
	running []*batch
}

// maxRunning limits the memory on hosts with many CPUs. More CPUs would hardly shorten a load.
const maxRunning = 4

// push adds a line. If enough batches are running, push waits for the oldest one.
func (q *batches) push(line []byte) error {
	if q.filling == nil {
		q.filling = make([]byte, 0, batchSize+batchSize/8)
	}
	q.filling = append(append(q.filling, line...), '\n')
	if len(q.filling) < batchSize {
		return nil
	}
	q.start()
	if len(q.running) <= min(runtime.GOMAXPROCS(0), maxRunning) {
		return nil
	}
	return q.wait()
}

// finish waits for all batches.
func (q *batches) finish() error {
	q.start()
	for len(q.running) > 0 {
		if err := q.wait(); err != nil {
			return err
		}
	}
	return nil
}

func (q *batches) start() {
	b := &batch{lines: q.filling, decoded: make(chan error, 1)}
	q.filling, q.running = nil, append(q.running, b)
	go func() { b.decoded <- contain.Call(b.decode) }()
}

// wait waits for the oldest batch.
func (q *batches) wait() error {
	b := q.running[0]
	q.running[0] = nil // free the batch's memory
	q.running = q.running[1:]
	if err := <-b.decoded; err != nil {
		return err
	}
	for i := range b.records {
		q.add(&b.records[i])
	}
	return nil
}
