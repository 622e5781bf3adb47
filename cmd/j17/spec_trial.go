package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/rivo/uniseg"
	"golang.org/x/term"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/lang/diag"
)

// awaitTrial carries out a request during which stored events may be tried, and shows on a terminal how far that is.
// path is where the server tells it.
func (o *operating) awaitTrial(ctx context.Context, path []string, do func() error) error {
	if !terminal(o.env.err) {
		return do()
	}
	working, stop := context.WithCancel(ctx)
	var err error
	var doing sync.WaitGroup
	doing.Go(func() {
		defer stop()
		err = do()
	})
	o.watchTrial(working, path)
	doing.Wait()
	return err
}

// watchTrial shows how far a trial is, from when it runs until the context ends. Who may not see that sees none.
func (o *operating) watchTrial(ctx context.Context, path []string) {
	watch := &buildWatch{}
	defer func() { watch.end() }()
	for build := (&wire.Build{}); ; {
		if watch.pause(ctx, build.Done, build.Total) != nil {
			return
		}
		var now wire.RunningTrial
		if err := o.call(ctx, http.MethodGet, path, nil, nil, &now); err != nil {
			return
		}
		if build = now.Build; build == nil {
			build = &wire.Build{}
		} else if watch.bar == nil {
			watch = watchBuild(o.env, tryingEvents)
		}
	}
}

// tryingEvents is what a trial is called while it runs.
const tryingEvents = "trying stored events"

// findings are what is said of a spec: at places, and of stored events.
type findings struct {
	placed []diag.Diagnostic
	events []j17.FieldError
}

// findings places what the server says about a spec in the file. Of stored events that fail for the same reason at the
// same place, that is said once.
func (q *deployRequest) findings(from []j17.FieldError, severity diag.Severity) (all findings) {
	type reason struct{ pointer, message string }
	told := map[reason]bool{}
	for i := range from {
		f := &from[i]
		if f.FailedEvent != nil {
			all.events = append(all.events, *f)
			why := reason{f.Pointer, f.Message}
			if told[why] {
				continue
			}
			told[why] = true
		}
		d := diag.Diagnostic{Severity: severity, Pointer: diag.Pointer(f.Pointer), Message: f.Message, Hint: f.Hint}
		d.Line, d.Column = q.position(f)
		all.placed = append(all.placed, d)
	}
	return all
}

// position is where in the file a finding is, or in the text that the server has.
func (q *deployRequest) position(f *j17.FieldError) (line, column int) {
	if !json.Valid(q.source) {
		return f.Line, f.Column
	}
	place, _ := value.Locate(string(q.source), f.Pointer)
	return value.Position(string(q.source), place.Key)
}

// show shows findings: those with places, and then a table of the stored events that fail. failed is how many fail, 0
// if that is not known.
func (q *deployRequest) show(e *env, found findings, failed uint64) error {
	if q.name != "" {
		if _, err := io.WriteString(e.err, diag.Render(q.name, q.source, found.placed)); err != nil {
			return err
		}
	} else {
		for _, f := range found.placed {
			e.note("%s: %s\n", plain(string(f.Pointer)), plain(f.Message))
		}
	}
	if len(found.events) == 0 {
		return nil
	}

	t := tabwriter.NewWriter(e.err, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "aggregate\tposition\ttype\tgeneration\tcause\tplace\tin the data")
	for i := range found.events {
		f := &found.events[i]
		place := f.Pointer
		if line, column := q.position(f); q.name != "" {
			place = fmt.Sprintf("%s:%d:%d", q.name, line, column)
		}
		cells := []string{f.Key, f.StreamID, f.Type, strconv.Itoa(f.Generation), f.Cause, place}
		for i := range cells {
			cells[i] = plain(cells[i])
		}
		_, _ = fmt.Fprintln(t, strings.TrimRight(strings.Join(append(cells, f.Path), "\t"), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if n := uint64(len(found.events)); failed > n {
		e.note("and %d more; --failures %d lists them\n", failed-n, min(failed, maxFailures))
	}
	return nil
}

// listedFailures is how many failed events a server lists if it is not told, and maxFailures how many at most.
const (
	listedFailures = 100
	maxFailures    = 10_000
)

// describeTried says what was tried, and shows the examples if they are asked for: before and after side by side where
// width columns are enough for that, else one below the other.
func describeTried(b *strings.Builder, t *wire.SpecTrial, examples bool, width int) {
	if t == nil {
		return
	}
	fmt.Fprintf(b, "%s tried: ", j17.Count(t.Events, "stored event"))
	if t.Failed == 0 {
		b.WriteString("all can be read under the new spec\n")
	} else {
		fmt.Fprintf(b, "%d cannot be read under the new spec\n", t.Failed)
	}
	if !examples {
		return
	}
	for i := range t.Examples {
		x := &t.Examples[i]
		fmt.Fprintf(b, "\n%s %s, generation %d, %s\n", plain(x.Key), plain(x.Type), x.Generation, plain(x.StreamID))
		describeExample(b, x, width)
	}
	if len(t.Examples) > 0 {
		b.WriteByte('\n')
	}
}

func describeExample(b *strings.Builder, x *wire.TrialExample, width int) {
	after := x.After
	if after == "" {
		after = "cannot be read"
	}
	left, right := jsonLines(x.Before), jsonLines(after)
	const gap = 2
	leftWidth := widest(left)
	if leftWidth+widest(right)+3*gap > width {
		fmt.Fprintf(b, "  before  %s\n  after   %s\n", plain(x.Before), plain(after))
		return
	}
	for i := range max(len(left), len(right)) {
		var l, r string
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		pad := strings.Repeat(" ", leftWidth-uniseg.StringWidth(l)+2*gap)
		b.WriteString(strings.TrimRight("  "+l+pad+r, " ") + "\n")
	}
}

// jsonLines are the lines of a JSON text, or the text itself where it is none, as one that was cut.
func jsonLines(text string) []string {
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(text), "", "  ") != nil {
		return []string{plain(text)}
	}
	lines := strings.Split(indented.String(), "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return lines
}

func widest(lines []string) (width int) {
	for _, line := range lines {
		width = max(width, uniseg.StringWidth(line))
	}
	return width
}

// columns is how many columns a terminal has, 0 for what is none.
func columns(w io.Writer) int {
	f, ok := streamOf(w).(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
