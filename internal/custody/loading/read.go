package loading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
)

// maxErrors bounds the findings that are reported for one file.
const maxErrors = 20

// pastEvent is one event of a file, the index-th from 0.
type pastEvent struct {
	index int
	line  int
	// element reports that the file is an array.
	element bool
	// size is how many bytes the event has in the file.
	size int
	// file is the event in the file, without data and metadata after they were examined.
	file command.FileEvent
	// Examined is the result of its examination, nil if the event itself has a fault.
	*decider.Examined
	// raw is the canonical bytes of an event that keeps its position, layout the places of their parts; positioned
	// reports that it has a position.
	raw        []byte
	layout     j17.Layout
	positioned bool
	// fault is the fault of the event, and whole the event in the file, to find the places of faults.
	fault error
	whole value.Value
}

// Limits of a batch.
const (
	batchEvents = 256
	batchBytes  = 256 << 10
)

// batch is a run of consecutive events of a file.
type batch struct {
	texts  []command.FileText
	events []pastEvent
	// err is why the file cannot be read beyond them.
	err   error
	ready chan struct{}
}

// each reads a file and calls do with its events, in their order, a batch at a time. As many workers as there are
// processors parse and examine batches while others are read and passed on; the read-ahead is bounded.
func (c *recorder) each(ctx context.Context, in *command.FileReader, do func([]pastEvent) error) error {
	ctx, stop := context.WithCancel(ctx)
	workers := runtime.GOMAXPROCS(0)
	todo, order := make(chan *batch), make(chan *batch, 2*workers)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()

	// One worker for each processor examines batches.
	for range workers {
		all.Go(func() {
			for b := range todo {
				c.readAll(ctx, b)
				close(b.ready)
			}
		})
	}

	// A goroutine reads ahead, and keeps the order.
	all.Go(func() {
		defer close(order)
		defer close(todo)
		for b, more := nextBatch(in); ; b, more = nextBatch(in) {
			select {
			case order <- b:
			case <-ctx.Done():
				return
			}
			select {
			case todo <- b:
			case <-ctx.Done():
				return
			}
			if !more {
				return
			}
		}
	})

	// The caller gets them in the order of the file.
	for b := range order {
		select {
		case <-b.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := do(b.events); err != nil {
			return err
		}
		if b.err != nil {
			return b.err
		}
	}
	return ctx.Err()
}

// nextBatch reads the texts of some events. It reports whether there may be more. A panic ends the file with an error.
func nextBatch(in *command.FileReader) (b *batch, more bool) {
	b = &batch{ready: make(chan struct{})}
	err := panics.Caught(func() error {
		more = b.fill(in)
		return nil
	})
	if err != nil {
		b.texts, b.events, b.err = nil, nil, err
	}
	return b, more
}

// fill is nextBatch for a new batch.
func (b *batch) fill(in *command.FileReader) (more bool) {
	for size := 0; len(b.texts) < batchEvents && size < batchBytes; {
		text, err := in.Next()
		broken, ok := errors.AsType[*command.FileError](err)
		switch {
		case err == nil:
			b.texts, size = append(b.texts, text), size+len(text.Text)
			continue
		case ok:
			e := j17.Errorf(j17.CodeInvalidJSON, "Line %d: %s", broken.Line, broken.Message)
			e.Errors = []j17.FieldError{{Message: broken.Message, Code: e.Code, Line: broken.Line}}
			b.err = e
		case !errors.Is(err, io.EOF):
			b.err = err
		}
		b.events = make([]pastEvent, len(b.texts))
		return false
	}
	b.events = make([]pastEvent, len(b.texts))
	return true
}

// readAll parses and examines the events of a batch. A panic ends the file with an error rather than the process.
func (c *recorder) readAll(ctx context.Context, b *batch) {
	err := panics.Caught(func() error {
		for i := range b.texts {
			c.read(ctx, &b.texts[i], &b.events[i])
		}
		return nil
	})
	if err != nil {
		b.events, b.err = nil, fmt.Errorf("the examination of events has ended with a %w", err)
	}
}

// read parses and examines an event of the file.
func (c *recorder) read(ctx context.Context, text *command.FileText, ev *pastEvent) {
	ev.index, ev.line, ev.element, ev.size = text.Number-1, text.Line, text.Element, len(text.Text)
	v, err := value.ParseString(text.Text)
	if err != nil {
		ev.fault = j17.Errorf(j17.CodeInvalidJSON, "The event is not valid JSON: %v", err)
		if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
			ev.fault = j17.Errorf(j17.CodeInvalidJSON, "The event is not valid JSON: %s", syntax.Message)
		}
		return
	}
	file, faults := command.ReadFileEvent(v)
	if ev.positioned = file.Stored; len(faults) > 0 {
		ev.fault, ev.whole = faults[0], v
		return
	}
	x, err := c.examine(ctx, &file)
	if err != nil {
		ev.fault, ev.whole = err, v
		return
	}
	ev.file, ev.Examined = file, x
	if c.finish != nil {
		if ev.fault = c.finish(text.Text, ev); ev.fault != nil {
			ev.whole = v
		}
	}
	if !c.keeps {
		// Their encoded forms are kept.
		ev.file.Data, ev.file.Metadata, ev.Events[0].Data = value.Value{}, value.Value{}, value.Value{}
	}
}

// fault records the fault of an event and reports whether there are enough.
func (c *recorder) fault(ev *pastEvent, err error) bool {
	if e, ok := errors.AsType[*j17.Error](err); ok {
		f := *e
		f.Errors = ev.places(e)
		f.Message = "Line " + strconv.Itoa(ev.line) + ": " + strings.TrimSuffix(e.Message, ".")
		err = &f
	}
	c.faults = append(c.faults, j17.InEvent(err, ev.index))
	return len(c.faults) >= maxErrors
}

// places lists the findings of an error about an event, with the event's place in the file.
func (ev *pastEvent) places(e *j17.Error) []j17.FieldError {
	all := slices.Clone(e.Errors)
	if len(all) == 0 {
		all = []j17.FieldError{{Message: e.Message, Path: e.Path}}
		if e.Path != "" {
			all[0].Pointer = "/" + strings.ReplaceAll(e.Path, ".", "/") // paths of the checks lead to members only
		}
	}
	for i := range all {
		f := &all[i]
		f.Code = e.Code
		if f.Path == "" {
			f.Path = command.PathIn(ev.whole, diag.Pointer(f.Pointer))
		}
		f.Pointer = "/" + strconv.Itoa(ev.index) + f.Pointer
		if ev.element {
			f.Index = &ev.index
		} else {
			f.Line = ev.line
		}
	}
	return all
}

// refusal is the error of a file with faults: the first one, with all of them in its list.
func (c *recorder) refusal() error {
	if len(c.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(c.faults, func(a, b error) int { return cmp.Compare(indexOf(a), indexOf(b)) })
	first, ok := errors.AsType[*j17.Error](c.faults[0])
	if !ok {
		return c.faults[0]
	}
	whole := *first
	whole.Errors = nil
	whole.Message += ". Nothing was stored."
	if len(c.faults) > 1 || len(first.Errors) > 1 {
		whole.Message = fmt.Sprintf("%s. %s more faults are listed. Nothing was stored.", first.Message, atLeast(len(c.faults)))
	}
	for _, fault := range c.faults {
		f, ok := errors.AsType[*j17.Error](fault)
		if !ok || len(whole.Errors) >= maxErrors {
			break
		}
		whole.Errors = append(whole.Errors, f.Errors...)
	}
	return &whole
}

// indexOf returns the event of its file that an error is about.
func indexOf(err error) int {
	if e, ok := errors.AsType[*j17.Error](err); ok && e.EventIndex != nil {
		return *e.EventIndex
	}
	return -1
}

// atLeast counts the faults after the first one.
func atLeast(n int) string {
	if n >= maxErrors {
		return "At least " + strconv.Itoa(n-1)
	}
	return strconv.Itoa(n - 1)
}
