package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func dataCommand(e *env) *cobra.Command {
	return group("data", "Files of events, stored as history or fetched as a whole", dataImportCommand(e), dataColdStartCommand(e), dataInjectCommand(e), dataExportCommand(e))
}

// load is one of the routes that take a file of events.
type load struct {
	env   *env
	route string
	// history reports that the events are stored as they were. resumes reports that a file that was cut short goes on
	// where it was: the server recognises it by its content, so that it can be sent again at any time.
	history, resumes bool
	yes, asJSON      bool
	// generation is that of events that say none and have no stream id: a number, newest, or "" for none.
	generation string
}

// loaded is what the server has done with a file.
type loaded struct {
	wire.Imported
	Implied int `json:"implied"`
}

// dataFiles says what the file looks like, for the help of the commands that send one.
const dataFiles = `FILE is what 'j17 data export' has written, or has one event a line, or one JSON array of them; - is standard input.`

func dataImportCommand(e *env) *cobra.Command {
	l := &load{env: e, route: "import", history: true, resumes: true}
	return l.command(&cobra.Command{
		Use: "import FILE", Short: "Store events that have happened before, as they were",
		Long: `Store events that have happened before, here or in another system, as they were: with their times, their actors and the names of
their aggregates. Nothing reacts to them. To write events that happen now, use 'j17 events send'.

` + dataFiles + `

The whole file is checked first, and nothing of a file with faults is stored. Up to 10,000 events and 16 MiB are stored all at once. A
larger file that was cut short goes on where it was when the same file is imported again: the server knows it by its content, and
stores no event of it twice.

It needs an operator who may operate the instance (see j17 login). Exit code 3: events are not valid.`,
		Example: "  j17 data import events.jsonl --env staging\n  j17 data export --env prod | j17 data import - --env staging",
	})
}

func dataColdStartCommand(e *env) *cobra.Command {
	l := &load{env: e, route: "cold_start", history: true}
	return l.command(&cobra.Command{
		Use: "cold-start FILE", Short: "Import into an environment that has no events yet",
		Long: `Fill an environment that has no events yet: the first load of an application that moves here. All of the file is stored, or nothing,
many times faster than by an import and however large it is.

What 'j17 data export' has written keeps its positions, bytes, chains and names, and the chains are checked: roots and proofs are those
of where it comes from. Events without a stream_id get positions of their own.

Exit code 4: there are events already.

` + dataFiles,
		Example: "  j17 data cold-start history.jsonl --env prod",
	})
}

func dataInjectCommand(e *env) *cobra.Command {
	l := &load{env: e, route: "inject"}
	return l.command(&cobra.Command{
		Use: "inject FILE --env ENVIRONMENT", Short: "Write test data into staging or test",
		Long: `Write events of test data into staging or test, as if each had been posted: they happen now, everything reacts to them, and those
without an actor get one. The whole file is checked first. The same file again is written again. --env names the environment where
nothing else does, since that would be prod otherwise, into which no test data is written.

` + dataFiles + `

It needs an operator who may operate the instance (see j17 login). Exit code 3: events are not valid.`,
		Example: "  j17 data inject seed.jsonl --env test",
	})
}

// command completes the command of a load.
func (l *load) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = exactly("FILE"), eventFileNames

	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	environmentFlag(cmd, r)
	if l.history {
		cmd.Flags().StringVar(&l.generation, "generation", "", "the `generation` of events without a stream_id that say none: its number, or newest")
		cmd.Flags().BoolVar(&l.yes, "yes", false, "do not ask before history is stored in prod")
	}
	jsonFlag(cmd, &l.asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		// Test data for prod, where they would go without --env, are refused before anything is read or asked.
		if err := l.fits(r); err != nil {
			return err
		}
		if n, err := strconv.Atoi(l.generation); l.generation != "" && l.generation != "newest" && (err != nil ||
			n < 1) {
			return usageError{fmt.Errorf("--generation takes the number of a generation, or newest, not %q", l.generation)}
		}
		content, done, err := l.open(args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()

		// Where it goes. History in prod is for good.
		o, err := operate(l.env, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), l.route)
		if err != nil {
			return err
		}
		if l.history && o.about.environment == j17.Prod && !l.yes && terminal(l.env.in) {
			if err := l.env.confirm(cmd.Context(), false, fmt.Sprintf("Store the events of %s as history in %s? That cannot be taken back.", fileName(args[0]), o.where())); err != nil {
				return err
			}
		}

		return l.send(cmd.Context(), o, path, args[0], content)
	}
	return cmd
}

// fits refuses test data for prod.
func (l *load) fits(r *remote) error {
	if l.history {
		return nil
	}
	s, err := l.env.connection(r)
	if err != nil {
		return err
	}
	env, err := s.environment()
	if err == nil && (env == "" || env == j17.Prod) {
		err = usageError{errors.New("test data goes into staging and test only: name one of them, such as --env test. Events that have happened are stored with 'j17 data import'")}
	}
	return err
}

// eventFileNames completes a file of events.
func eventFileNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"jsonl", "ndjson", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// open returns the content of a file, and a function to call once it is no longer needed. Input that can be read only
// once, such as standard input, is copied to a temporary file: a request may have to be sent twice.
func (l *load) open(name string) (*client.Content, func() error, error) {
	e, in := l.env, l.env.in

	// A file that can be read again is sent as it is.
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return nil, nil, unreadable(name, err)
		}
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() {
			content, err := contentOf(f, info.Size(), name)
			if err != nil {
				return nil, nil, errors.Join(err, f.Close())
			}
			return content, f.Close, nil
		}
		if err == nil && info.IsDir() {
			return nil, nil, errors.Join(fmt.Errorf("cannot read %s: is a directory", fileName(name)), f.Close())
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, nil, unreadable(name, err)
		}
		in = &lateFile{name: name}
	}

	// Anything else is copied first, up to what may be sent.
	kept, err := os.CreateTemp("", "j17-*.jsonl")
	if err != nil {
		return nil, nil, fmt.Errorf("there is no place to keep the events until they are sent: %w", err)
	}
	done := func() error { return errors.Join(kept.Close(), os.Remove(kept.Name())) }
	most := int64(maxEventFile)
	if !l.resumes && l.history {
		most = math.MaxInt64 - 1 // the server reads it as it comes
	}
	size, err := io.Copy(kept, io.LimitReader(e.interruptible(in), most+1))
	if err == nil && size > most {
		err = tooLarge{fmt.Errorf("%s is too large: it has more than %d MiB. Cut it into several files of whole events", fileName(name), maxEventFile>>20)}
	} else if err != nil {
		err = unreadable(name, err)
	}
	var content *client.Content
	if err == nil {
		content, err = contentOf(kept, size, name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return content, done, nil
}

// contentOf is a file as the body of a request.
func contentOf(f io.ReaderAt, size int64, name string) (*client.Content, error) {
	if name == "-" {
		name = "standard input"
	}
	if err := notUTF16(f, name); err != nil {
		return nil, err
	}
	content := &client.Content{From: f, Size: size, Type: "application/x-ndjson"}
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, unreadable(name, err)
	}
	if bytes.HasPrefix(bytes.TrimLeft(head[:n], "\uFEFF \t\r\n"), []byte{'['}) {
		content.Type = "application/json"
	}
	if size == 0 {
		return nil, eventError{fmt.Errorf("%s is empty: there are no events in it", fileName(name))}
	}
	return content, nil
}

// send sends a file and prints the outcome.
func (l *load) send(ctx context.Context, o *operating, path []string, name string, content *client.Content) error {
	// The file is sent once, or again after a lost connection where that does no harm.
	e := l.env
	if terminal(e.err) && !l.asJSON {
		bar := e.bar(int(content.Size), "bytes sent")
		content.Sent = func(bytes int64) {
			_ = bar.Set64(bytes) // it is decoration
			if bytes == content.Size {
				e.note("All is sent. The server checks and stores it.\n")
			}
		}
	}
	query := url.Values{}
	if l.generation != "" {
		query.Set("generation", l.generation)
	}
	var raw json.RawMessage
	err := o.change(ctx, true, func() error {
		err := o.Call(ctx, client.Request{
			Method: http.MethodPost, Path: append([]string{"api"}, path...), Query: query, Body: content,
			Repeatable: l.resumes, NothingIfBusy: l.whole(),
		}, &raw)
		l.tell(name, err)
		return err
	})
	if err != nil {
		return refusedEvent(err)
	}

	var got loaded
	if err := json.Unmarshal(raw, &got); err != nil {
		return fmt.Errorf("the events are stored, but the server's answer cannot be read: %w", err)
	}
	e.reportChange("%s stored", countWere(got.Stored+got.Known))

	switch {
	case l.asJSON:
		return e.printAnswer(raw)
	case l.history:
		_, err = fmt.Fprintf(e.out, "%s of %s: %d stored, %d stored before\n", j17.Count(got.Events, "event"), j17.Count(got.Streams, "aggregate"), got.Stored, got.Known)
	default:
		_, err = fmt.Fprintf(
			e.out, "%s: %d stored; implied %s\n", j17.Count(got.Events, "event"), got.Stored,
			j17.Count(got.Implied, "event"),
		)
	}
	return err
}

// whole reports whether a load stores all of the file or nothing: nothing, where an error says that it is not stored.
func (l *load) whole() bool { return l.history && !l.resumes }

// tell lists what a refusal finds wrong in the file, and says how to go on with a load that was broken off.
func (l *load) tell(name string, err error) {
	if err == nil {
		return
	}
	e, refused := l.env, (*client.Error)(nil)
	if !errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError {
		switch {
		case refused != nil && refused.Problem.Code == j17.CodeBusy && l.whole():
			// Where the server was too busy, nothing was stored.
		case l.whole():
			e.note("It is not known whether the file is stored: either all of it is, or nothing. Run the same command again: exit code 4 says that it is.\n")
		case l.history:
			e.note("It is not known how much of the file is stored. Run the same command again: it goes on where it was, and stores nothing twice.\n")
		default:
			e.note("It is not known how much of the file is written. What is written is not recognised: leave it out before you send the rest.\n")
		}
		return
	}
	if e.machine || len(refused.Problem.Errors) == 0 {
		return
	}
	for _, f := range refused.Problem.Errors {
		place := fileName(name)
		switch {
		case f.Line > 0:
			place = fmt.Sprintf("%s:%d", place, f.Line)
		case f.Index != nil:
			place = fmt.Sprintf("%s: event %d", place, *f.Index+1)
		}
		if f.Path != "" {
			place += ": " + f.Path
		}
		e.note("%s: %s\n", place, strings.TrimSuffix(f.Message, "."))
	}
	refused.Problem.Errors = nil // shown
}
