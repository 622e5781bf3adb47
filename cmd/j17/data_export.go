package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"j17"
	"j17/internal/eventfile"
)

// export is one run of "data export".
type export struct {
	env                    *env
	output, of, typ, after string
	appends, asJSON        bool
}

func (e *env) dataExport() *cobra.Command {
	x := &export{env: e}
	cmd := &cobra.Command{
		Use: "export", Short: "Download all events of an environment", Args: noArgs,
		Long: `Download all events of an environment, one a line in the order in which they were stored, to standard output or to a file that
does not exist yet. With --append the file may be there: what is stored after its last event is added. So an export that was broken
off goes on where it was, and the next one fetches what is new.

It needs an operator who may read the events (see j17 login). 'j17 data import' stores them in another environment as they are.`,
		Example: "  j17 data export -o events.jsonl --append --env prod\n  j17 data export --of aggregates --type order",
	}

	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	environmentFlag(cmd, r)
	f := cmd.Flags()
	f.StringVarP(&x.output, "output", "o", "", "`file` to write")
	f.BoolVar(&x.appends, "append", false, "go on after the last event that the file of -o has")
	f.StringVar(&x.of, "of", "", "events, or aggregates: the present state of each (default events)")
	f.StringVar(&x.typ, "type", "", "one aggregate `type` only")
	f.StringVar(&x.after, "after", "", "`stream id`: only events after it")
	f.BoolVar(&x.asJSON, "json", false, "one JSON document in the place of lines")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := x.check(); err != nil {
			return err
		}

		// Where it comes from.
		o, err := e.operate(cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "export")
		if err != nil {
			return err
		}
		return x.run(cmd.Context(), o, append([]string{"api"}, path...))
	}
	return cmd
}

// check checks the flags.
func (x *export) check() error {
	if err := oneOf("--of", x.of, "", "events", "aggregates"); err != nil {
		return err
	}
	switch {
	case !x.appends:
		return nil
	case x.output == "":
		return usageError{errors.New("--append needs -o FILE: the file that is gone on with")}
	case x.of == "aggregates" || x.asJSON:
		return usageError{errors.New("--append is for lines of events: leave --of aggregates and --json out")}
	case x.after != "":
		return usageError{errors.New("--append and --after exclude each other: the file says what comes next")}
	default:
		return nil
	}
}

// run downloads what was asked for.
func (x *export) run(ctx context.Context, o *operating, path []string) error {
	if x.appends {
		return x.add(ctx, o, path)
	}
	lines := x.counted()
	err := x.env.save(x.output, func(out io.Writer) error {
		err := x.download(ctx, o, path, io.MultiWriter(out, lines))
		if err == nil && x.asJSON {
			_, err = io.WriteString(out, "\n")
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s is there already: name another file, or go on with this one with --append", fileName(x.output))
	}
	return x.conclude(lines, err)
}

// add adds to a file what was stored after its last event. Whole events that have arrived stay, whatever comes then.
func (x *export) add(ctx context.Context, o *operating, path []string) (err error) {
	f, err := os.OpenFile(x.output, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // a download like any other
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", fileName(x.output), pathless(err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end, err := x.last(f)
	if err == nil {
		err = f.Truncate(end) // half an event is what a run that was stopped may leave
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("cannot go on with %s: %w", fileName(x.output), pathless(err))
	}

	lines := x.counted()
	if err = x.download(ctx, o, path, io.MultiWriter(f, lines)); err != nil && lines.n > 0 {
		x.env.note("%s arrived whole. Run the same command again to go on from there.\n", count(lines.n, "event"))
	}
	return x.conclude(lines, err)
}

// last sets after to the position of the last whole event of a file, and returns where it ends.
func (x *export) last(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("it is no file that can be gone on with")
	}

	// The file is read backward until it has a whole line.
	var tail []byte
	start := info.Size()
	for start > 0 && bytes.Count(tail, []byte{'\n'}) < 2 {
		if len(tail) > 2*eventfile.MaxText {
			break
		}
		block := make([]byte, min(start, int64(max(len(tail), 1<<16))))
		start -= int64(len(block))
		if _, err := f.ReadAt(block, start); err != nil {
			return 0, err
		}
		tail = slices.Concat(block, tail)
	}
	end := bytes.LastIndexByte(tail, '\n')
	if end < 0 {
		if start == 0 && (len(tail) == 0 || bytes.HasPrefix(tail, []byte(`{"stream_id":"`))) {
			return 0, nil
		}
		return 0, errors.New("it has no event of an export: name another file")
	}

	var event struct {
		StreamID string `json:"stream_id"`
	}
	if err := json.Unmarshal(tail[bytes.LastIndexByte(tail[:end], '\n')+1:end], &event); err == nil {
		_, err = j17.ParseStreamID(event.StreamID)
		x.after = event.StreamID
		if err == nil {
			return start + int64(end) + 1, nil
		}
	}
	return 0, errors.New("its last line is no event of an export: name another file")
}

// download writes the answer of the route to out.
func (x *export) download(ctx context.Context, o *operating, path []string, out io.Writer) (err error) {
	q := url.Values{}
	for name, v := range map[string]string{"of": x.of, "type": x.typ, "after": x.after} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if x.asJSON {
		q.Set("format", "json")
	}
	body, _, err := o.Download(ctx, path, q)
	if err != nil {
		return o.explained(ctx, err)
	}
	defer func() { err = interrupted(ctx, errors.Join(err, body.Close())) }()
	if _, err = io.Copy(out, body); errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the server broke the export off: it is not whole. Try again")
	}
	return err
}

// counted counts lines, on a terminal where they can be seen.
func (x *export) counted() *lineTally {
	lines := &lineTally{}
	if x.output != "" && terminal(x.env.err) {
		lines.bar = x.env.bar(-1, "lines")
	}
	return lines
}

// conclude tells how much has arrived.
func (x *export) conclude(lines *lineTally, err error) error {
	if lines.bar != nil {
		_ = lines.bar.Finish() // it is decoration
	}
	if err == nil && x.output != "" && !x.asJSON {
		what := "in"
		if x.appends {
			what = "added to"
		}
		x.env.note("%s %s %s.\n", count(lines.n, "line"), what, fileName(x.output))
	}
	return err
}

// lineTally counts the lines that are written to it.
type lineTally struct {
	n   int
	bar *progressbar.ProgressBar
}

// Write counts.
func (l *lineTally) Write(p []byte) (int, error) {
	n := bytes.Count(p, []byte{'\n'})
	l.n += n
	if l.bar != nil {
		_ = l.bar.Add(n) // it is decoration
	}
	return len(p), nil
}
