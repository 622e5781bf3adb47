package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"j17"
	"j17/internal/core/command"
)

// export is one run of "data export".
type export struct {
	env                            *env
	output, of, typ, after, format string
	generation                     string
	appends, asJSON                bool
}

func dataExportCommand(e *env) *cobra.Command {
	x := &export{env: e}
	cmd := &cobra.Command{
		Use: "export", Short: "Download all events of an environment", Args: noArgs,
		Long: `Download all events of an environment, one a line in the order in which they were stored, to standard output or to a file that
does not exist yet. Each line has the hash of its aggregate's chain, and an export of all of them ends with a signed checkpoint: 'j17
audit verify' checks both. With --append the file may be there: what is stored after its last event is added, and a checkpoint of it
all. So an export that was broken off goes on where it was, and the next one fetches what is new. A file from another environment is
left as it is, and so is one with events of aggregates that were erased since (exit code 4): export to another file, and delete it.

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
	f.StringVar(&x.format, "format", "", "ndjson, json for one document, or cloudevents for a CloudEvent a line (default ndjson)")
	f.StringVar(&x.generation, "generation", "", "stored, or newest: events as they are read, which nothing proves and no import takes (default stored)")
	f.BoolVar(&x.asJSON, "json", false, "the same as --format json")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := x.check(); err != nil {
			return err
		}

		// Where it comes from.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "export")
		if err != nil {
			return err
		}
		return byType(x.run(cmd.Context(), o, append([]string{"api"}, path...)))
	}
	return cmd
}

// check checks the flags.
func (x *export) check() error {
	if err := oneOf("--of", x.of, "", "events", "aggregates"); err != nil {
		return err
	}
	if err := oneOf("--format", x.format, "", "ndjson", "json", "cloudevents"); err != nil {
		return err
	}
	switch {
	case x.asJSON && x.format != "" && x.format != "json":
		return usageError{errors.New("--json is the format json: leave it or --format out")}
	case x.asJSON:
		x.format = "json"
	case x.format == "json":
		x.asJSON = true
	}
	if err := oneOf("--generation", x.generation, "", "stored", "newest"); err != nil {
		return err
	}
	switch {
	case x.generation == "newest" && x.of == "aggregates":
		return usageError{errors.New("--generation is about events: leave --of aggregates out")}
	case !x.appends:
		return nil
	case x.generation == "newest":
		return usageError{errors.New("--append goes on with an export of events as they are stored: leave --generation newest out")}
	case x.output == "":
		return usageError{errors.New("--append needs -o FILE: the file that is gone on with")}
	case x.of == "aggregates" || x.asJSON || x.format == "cloudevents":
		return usageError{errors.New("--append is for lines of events: leave --of aggregates, --json and --format out")}
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

// add adds to a file what was stored after its last event. Whole events that have arrived are kept even if it fails
// later.
func (x *export) add(ctx context.Context, o *operating, path []string) (err error) {
	f, err := os.OpenFile(x.output, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // a download like any other
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", fileName(x.output), pathless(err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	last, end, err := x.last(f)
	if err != nil {
		return fmt.Errorf("cannot go on with %s: %w", fileName(x.output), pathless(err))
	}
	if last != nil {
		if err := x.notErased(ctx, o, f, end); err != nil {
			return err
		}
	}

	// The last event is requested again, to check that the file is from this environment.
	lines := x.counted()
	seam := &seam{file: f, end: end, lines: lines}
	if last != nil {
		seam.last, x.after = last, before(last.position)
	}
	err = x.download(ctx, o, path, seam)
	if err == nil && !seam.joined {
		err = seam.join(nil)
	}
	if errors.Is(err, errOtherSource) {
		return fmt.Errorf("cannot go on with %s: %w: name the environment and the type that the file is from, or another file", fileName(x.output), err)
	}
	if err != nil && lines.n > 0 {
		x.env.note("%s arrived whole. Run the same command again to go on from there.\n", j17.Count(lines.n, "event"))
	}
	return x.conclude(lines, err)
}

// exported is what is known of an event by its line.
type exported struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	position j17.StreamID
}

// readExported reads a line of an export.
func readExported(line []byte) (*exported, error) {
	var e exported
	err := json.Unmarshal(line, &e)
	if err == nil {
		e.position, err = j17.ParseStreamID(e.StreamID)
	}
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// before returns the stream id right before another one, "" where there is none.
func before(id j17.StreamID) string {
	switch {
	case id.Seq > 0:
		id.Seq--
	case id.Ms > 0:
		id.Ms, id.Seq = id.Ms-1, math.MaxUint32
	default:
		return ""
	}
	return id.String()
}

var errOtherSource = errors.New("the environment does not have its last event")

// seam adds to a file what follows its last event.
type seam struct {
	file *os.File
	// end is where the last whole event of the file ends.
	end int64
	// last is that event, nil where there is none.
	last *exported
	// first is what has arrived of the first line.
	first  []byte
	joined bool
	lines  *lineTally
}

// Write waits for the line of the last event before it writes the others.
func (s *seam) Write(p []byte) (int, error) {
	rest := p
	if !s.joined && s.last != nil {
		end := bytes.IndexByte(p, '\n')
		if s.first = append(s.first, p[:end+1]...); end < 0 {
			s.first = append(s.first, p...)
			return len(p), nil
		}
		rest = p[end+1:]
	}
	if !s.joined {
		if err := s.join(s.first); err != nil {
			return 0, err
		}
	}
	if _, err := s.file.Write(rest); err != nil {
		return 0, err
	}
	_, _ = s.lines.Write(rest) // it only counts
	return len(p), nil
}

// join compares the first line with the last one of the file, and cuts off what follows that in the file: a run that
// was stopped may have left half an event. An event may have been erased since.
func (s *seam) join(first []byte) error {
	if s.last != nil {
		e, err := readExported(first)
		if err != nil || e.StreamID != s.last.StreamID || e.Key != s.last.Key {
			return errOtherSource
		}
	}
	s.joined = true
	if err := s.file.Truncate(s.end); err != nil {
		return pathless(err)
	}
	_, err := s.file.Seek(s.end, io.SeekStart)
	return pathless(err)
}

// last returns the last whole event of a file and where it ends, nil where there is none.
func (x *export) last(f *os.File) (*exported, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("it is no file that can be gone on with")
	}

	// The file is read backward until there is a whole line, and one before the checkpoint that the file may end with.
	var tail []byte
	start := info.Size()
	for start > 0 && bytes.Count(tail, []byte{'\n'}) < 3 {
		if len(tail) > 3*command.MaxFileText {
			break
		}
		block := make([]byte, min(start, int64(max(len(tail), 1<<16))))
		start -= int64(len(block))
		if _, err := f.ReadAt(block, start); err != nil {
			return nil, 0, err
		}
		tail = slices.Concat(block, tail)
	}

	// What follows the last event is written again.
	for end := bytes.LastIndexByte(tail, '\n'); ; {
		if end < 0 {
			if start == 0 && (len(tail) == 0 || bytes.HasPrefix(tail, []byte(`{"stream_id":"`))) {
				return nil, 0, nil
			}
			return nil, 0, errors.New("it has no event of an export: name another file")
		}
		begin := bytes.LastIndexByte(tail[:end], '\n') + 1
		if bytes.HasPrefix(tail[begin:end], []byte(checkpointLine)) {
			tail, end = tail[:begin], begin-1
			continue
		}
		e, err := readExported(tail[begin:end])
		if err != nil {
			return nil, 0, errors.New("its last line is no event of an export: name another file")
		}
		return e, start + int64(end) + 1, nil
	}
}

// download writes the answer of the route to out.
func (x *export) download(ctx context.Context, o *operating, path []string, out io.Writer) (err error) {
	q := url.Values{}
	for name, v := range map[string]string{"of": x.of, "type": x.typ, "after": x.after} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if x.format != "" {
		q.Set("format", x.format)
	}
	if x.generation != "" {
		q.Set("generation", x.generation)
	}
	if x.appends && x.typ == "" {
		q.Set("checkpoint", "true")
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

// counted returns a counter of lines, which a terminal shows.
func (x *export) counted() *lineTally {
	lines := &lineTally{}
	if x.output != "" && terminal(x.env.err) {
		lines.bar = x.env.bar(-1, "lines")
	}
	return lines
}

// conclude reports how much has arrived.
func (x *export) conclude(lines *lineTally, err error) error {
	if lines.bar != nil {
		_ = lines.bar.Finish() // it is decoration
	}
	if err == nil && x.output != "" && !x.asJSON {
		what := "in"
		if x.appends {
			what = "added to"
		}
		x.env.note("%s %s %s.\n", j17.Count(lines.n, "line"), what, fileName(x.output))
	}
	return err
}

// lineTally counts the lines that are written to it, but not the checkpoint that an export ends with.
type lineTally struct {
	n   int
	bar *progressbar.ProgressBar
	// head is how the line begins that has not ended yet.
	head []byte
}

// checkpointLine is how a checkpoint begins.
const checkpointLine = `{"checkpoint":"`

// Write counts.
func (l *lineTally) Write(p []byte) (int, error) {
	n := 0
	for rest, more := p, true; more; {
		var part []byte
		part, rest, more = bytes.Cut(rest, []byte{'\n'})
		l.head = append(l.head, part[:min(len(part), len(checkpointLine)-len(l.head))]...)
		if !more {
			break
		}
		if string(l.head) != checkpointLine {
			n++
		}
		l.head = l.head[:0]
	}
	l.n += n
	if l.bar != nil {
		_ = l.bar.Add(n) // it is decoration
	}
	return len(p), nil
}
