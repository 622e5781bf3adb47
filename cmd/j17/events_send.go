package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"j17"
	"j17/internal/edge/client"
	"j17/internal/edge/client/send"
)

const (
	maxBatch       = 10_000
	maxConcurrency = 256
	// barInterval is how often the progress bar is drawn at most.
	barInterval = 100 * time.Millisecond
)

// sending is one run of "events send".
type sending struct {
	env                *env
	batch, concurrency int
	file, name         string
	// errorsFile is where refused events go, errors that file once there is one.
	errorsFile      string
	errors          *os.File
	continueOnError bool
	json            bool
	bar             *progressbar.ProgressBar
}

func eventsSendCommand(e *env) *cobra.Command {
	s := &sending{env: e}
	cmd := &cobra.Command{
		Use:   "send FILE",
		Short: "Write the events of a file, now",
		Long: `Write the events of a file, or of standard input for -, as if each had just happened: everything reacts to them. To store events
that have happened before, with their times, use 'j17 data import'. The file has one event a line, or is one JSON array of them:

  {"key":"TYPE:ID","type":"EVENT_TYPE","data":{...},"metadata":{"actor":{"type":"...","id":"..."}}}

A run that was stopped, by whatever, goes on where it was when the same command is run again, and stores no event twice: what
was acknowledged stands in FILE.j17-send until all is sent, and every request carries an idempotency key, which the server
knows for 24 hours. For standard input there are only the keys.

Events get the present time. Those of one aggregate are stored in the order of the file.

Exit code 3: events were refused.`,
		Example: `  j17 events send events.jsonl --env staging
  your-program | j17 events send - --env staging`,
		Args: exactly("FILE"),
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&s.batch, "batch", 0, "how many consecutive events of an aggregate are sent at once (default 500; for standard input 1)")
	f.IntVar(&s.concurrency, "concurrency", 8, "how many requests are under way at once; 1 keeps the order of the whole file")
	f.BoolVar(&s.continueOnError, "continue-on-error", false, "leave out events that are refused, and list them in the file of --errors")
	f.StringVar(&s.errorsFile, "errors", "", "`file` of refused events, with --continue-on-error (default FILE.errors.jsonl)")
	f.StringVar(&s.name, "name", "", "`name` that tells this input from others with the same content")
	f.BoolVar(&s.json, "json", false, "print the summary as JSON")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.file = args[0]
		if err := s.check(f.Changed("batch")); err != nil {
			return err
		}
		c, err := e.connectToWrite(r)
		if err != nil {
			return err
		}

		// From here on events may have been stored, even if the command fails.
		e.startChange()
		return s.run(cmd.Context(), c)
	}
	return cmd
}

// oldWordCommand is a command under the name that it had before.
func oldWordCommand(e *env, name, hint string, cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.Use, cmd.Hidden = name, true

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.note("%s\n", hint)
		return run(cmd, args)
	}
	return cmd
}

// journals are the places where the progress of the file may be kept.
func (s *sending) journals() []string {
	state := s.env.getenv("XDG_STATE_HOME")
	if home := s.env.getenv("HOME"); state == "" && home != "" {
		state = filepath.Join(home, ".local", "state")
	}
	if state != "" {
		state = filepath.Join(state, "j17")
	}
	return send.JournalNames(s.file, state)
}

// check checks the flags.
func (s *sending) check(batchGiven bool) error {
	switch {
	case s.batch < 0, s.batch > maxBatch, s.batch == 0 && batchGiven:
		return usageError{fmt.Errorf("--batch must be from 1 to %d", maxBatch)}
	case s.concurrency < 1 || s.concurrency > maxConcurrency:
		return usageError{fmt.Errorf("--concurrency must be from 1 to %d", maxConcurrency)}
	case s.errorsFile != "" && !s.continueOnError:
		return usageError{errors.New("--errors needs --continue-on-error")}
	case s.continueOnError && s.errorsFile == "" && s.file == "-":
		return usageError{errors.New("--continue-on-error needs --errors FILE when the events come from standard input")}
	case s.errorsFile == "":
		s.errorsFile = s.file + ".errors.jsonl"
	}
	if !s.continueOnError {
		return nil
	}
	for _, taken := range append(s.journals(), s.file) {
		if s.env.sameFile(s.errorsFile, taken) {
			return usageError{fmt.Errorf("--errors cannot be %s, which is read: name another file", fileName(s.errorsFile))}
		}
	}
	return nil
}

// run sends the events and prints what became of them.
func (s *sending) run(ctx context.Context, c *client.Client) (err error) {
	e := s.env
	o := send.Options{
		Client: c, Title: fileName(s.file), Name: s.name, Journals: s.journals(), Batch: s.batch,
		Concurrency: s.concurrency, Note: e.note,
	}
	if s.continueOnError {
		o.Refuse = s.refuse
	}
	if terminal(e.err) && !s.json {
		o.Begin = func(events int) { s.bar = e.bar(events, "events") }
		o.Advance = func(events int) { _ = s.bar.Add(events) } // it is decoration
	}

	// A file can be sent again after a stop; standard input cannot.
	var sum send.Summary
	if s.file == "-" {
		o.Title = "standard input"
		sum, err = send.Stream(ctx, e.interruptible(e.in), o)
	} else {
		var f *os.File
		if f, err = s.open(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		sum, err = send.File(ctx, f, o)
	}

	if s.bar != nil {
		_ = s.bar.Finish() // it is decoration
	}
	if s.errors != nil {
		err = errors.Join(err, s.errors.Close())
	}
	return s.conclude(ctx, sum, err)
}

// bar shows progress, out of total steps, -1 where the total is not known.
func (e *env) bar(total int, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions(total, progressbar.OptionSetWriter(e.terminalErr()), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(barInterval),
		progressbar.OptionSetDescription(what), progressbar.OptionClearOnFinish())
}

// open opens the file, which has to be one that can be read twice.
func (s *sending) open() (*os.File, error) {
	info, err := os.Stat(s.file)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a pipe or a device, and a file that is sent is read twice. Use - to send what standard input has", fileName(s.file))
	}
	if err != nil {
		return nil, unreadable(s.file, err)
	}
	f, err := os.Open(s.file)
	if err != nil {
		return nil, unreadable(s.file, err)
	}
	if err := notUTF16(f, s.file); err != nil {
		s.env.note("Nothing was sent.\n")
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// refuse writes a refused event to the file of errors.
func (s *sending) refuse(row send.Refused) error {
	if s.errors == nil {
		f, err := os.OpenFile(s.errorsFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("the file of errors %s cannot be made: %w. Name another one with --errors", fileName(s.errorsFile), pathless(err))
		}
		s.errors = f
	}
	if err := json.NewEncoder(s.errors).Encode(row); err != nil {
		return fmt.Errorf("the file of errors %s cannot be written: %w. Make room, or name another one with --errors", fileName(s.errorsFile), pathless(err))
	}
	return nil
}

// conclude prints the summary and, where not all was sent, how to go on.
func (s *sending) conclude(ctx context.Context, sum send.Summary, err error) error {
	e := s.env
	stopped, begun := errors.AsType[*send.StoppedError](err)
	if err != nil && !begun {
		return interrupted(ctx, err)
	}
	if err == nil && sum.Refused > 0 {
		err = j17.Errorf(j17.CodeSchemaViolation, "%s refused and left out; see %s. Correct them in %s and run the same command again: it sends only what is not stored yet",
			countWere(sum.Refused), s.errorsFile, s.file)
	}
	if err == nil {
		e.reportChange("all events are stored")
	} else {
		e.reportChange("%s stored", countWere(sum.Stored+sum.Known))
	}
	_ = s.summary(sum, err == nil) // the failure is reported when the program ends
	if begun {
		e.note("Not all events are sent; known to be stored: %s. %s\n", j17.Count(sum.Stored+sum.Known, "event"), stopped.Next)
	}
	return interrupted(ctx, err)
}

func countWere(n int) string {
	if n == 1 {
		return "1 event was"
	}
	return fmt.Sprintf("%d events were", n)
}

func (s *sending) summary(sum send.Summary, complete bool) error {
	if s.json {
		row := struct {
			Complete bool   `json:"complete"`
			Events   int    `json:"events"`
			Stored   int    `json:"stored"`
			Known    int    `json:"stored_before"`
			Refused  int    `json:"refused"`
			Errors   string `json:"errors_file,omitempty"`
		}{complete, sum.Events, sum.Stored, sum.Known, sum.Refused, ""}
		if sum.Refused > 0 {
			row.Errors = s.errorsFile
		}
		return json.NewEncoder(s.env.out).Encode(row)
	}
	if !complete && sum.Refused == 0 {
		return nil
	}
	_, err := fmt.Fprintf(s.env.out, "%s: %d stored, %d stored before, %d refused\n", j17.Count(sum.Events, "event"), sum.Stored, sum.Known, sum.Refused)
	return err
}
