package lastknown

import (
	"bufio"
	"errors"
	"io"
)

// lines reads a file line by line in bounded memory.
type lines struct {
	in   *bufio.Reader
	long []byte // holds a line that does not fit into in
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 64<<10)} }

var errNoEnd = errors.New("the end is missing")

// next gives the next line with its newline, valid until the next call; io.EOF after the last one.
func (l *lines) next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	l.long = l.long[:0]
	for {
		l.long = append(l.long, line...)
		switch {
		case len(l.long) > maxLine:
			return nil, errLine
		case err == nil:
			return l.long, nil
		case errors.Is(err, io.EOF) && len(l.long) > 0:
			return nil, errNoEnd
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		line, err = l.in.ReadSlice('\n')
	}
}
