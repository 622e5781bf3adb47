package loading

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/decider"
)

// TestAPanicEndsTheFile has a check of one event of many panic: the file is read no further, and whoever reads it gets
// to know why.
func TestAPanicEndsTheFile(t *testing.T) {
	t.Parallel()
	const events, faulty = 2000, 700
	var examined atomic.Int64
	c := &recorder{examine: func(context.Context, *command.FileEvent) (*decider.Examined, error) {
		if examined.Add(1) == faulty {
			panic("a fault")
		}
		return nil, j17.Errorf(j17.CodeInvalidField, "it is not what this is about")
	}}
	handed := 0
	file := strings.Repeat(`{"key":"order:1","type":"was_made","data":{}}`+"\n", events)
	err := c.each(t.Context(), command.NewFileReader(strings.NewReader(file)), func(events []pastEvent) error {
		handed += len(events)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "a fault") || handed >= events || handed%batchEvents != 0 {
		t.Errorf("%d events were handed on, %v", handed, err)
	}
}

// panicking is a file that cannot be read behind its first bytes, for a fault of the program.
type panicking struct{ text string }

// Read reads the first bytes.
func (p *panicking) Read(b []byte) (n int, err error) {
	if p.text == "" {
		panic("a fault")
	}
	n = copy(b, p.text)
	p.text = p.text[n:]
	return n, nil
}

// TestAPanicEndsTheReading has the reading of a file panic, on a goroutine of its own.
func TestAPanicEndsTheReading(t *testing.T) {
	t.Parallel()
	c := &recorder{examine: func(context.Context, *command.FileEvent) (*decider.Examined, error) {
		return nil, j17.Errorf(j17.CodeInvalidField, "it is not what this is about")
	}}
	file := &panicking{strings.Repeat(`{"key":"order:1","type":"was_made","data":{}}`+"\n", 2000)}
	err := c.each(t.Context(), command.NewFileReader(file), func([]pastEvent) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "a fault") {
		t.Errorf("whoever reads it is told %v", err)
	}
}
