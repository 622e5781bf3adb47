package main

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/core/command"
	"j17/internal/edge/client"
	"j17/internal/edge/client/send"
)

// eventsOnlineCommands returns the commands of "j17 events" that talk to a server.
func eventsOnlineCommands(e *env) []*cobra.Command {
	return []*cobra.Command{
		eventsPostCommand(e), eventsTransactionCommand(e), eventsListCommand(e), eventsTailCommand(e),
		eventsSendCommand(e),
		oldWordCommand(e, "import FILE", "'j17 events import' is an old word for 'j17 events send', which writes events that happen now. To store history, use 'j17 data import'.", eventsSendCommand(e)),
		oldWordCommand(e, "export", "'j17 events export' is an old word for 'j17 data export'.", dataExportCommand(e)),
	}
}

func eventsPostCommand(e *env) *cobra.Command {
	var actor, about, idempotencyKey, conditions string
	var previous uint64
	var skipOCC, dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "post KEY EVENT_TYPE [DATA|@FILE|-]",
		Short: "Write one event",
		Long: `Write one event. KEY names the aggregate as TYPE/ID or TYPE:ID; TYPE/_new is a new one, whose id the server chooses and returns. The
data is JSON: in the command line, in a file after @, or on standard input for -; without it, it is {}.

A lost connection does no harm: the write is repeated with the same idempotency key, and is stored once.

With --dry-run the server reports what the write would do, and nothing is stored: the event with all that it implies, the states
afterwards, or why it would be refused. The exit code is that of the write.`,
		Example: `  j17 events post counter/global was_raised '{"by": 0.1}' --actor user:global
  j17 events post order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 was_placed @order.json --actor clerk:global --previous-length 0`,
		Args: func(cmd *cobra.Command, args []string) error {
			return exactly([]string{"KEY", "EVENT_TYPE", "DATA"}[:min(max(len(args), 2), 3)]...)(cmd, args)
		},
		ValidArgsFunction: completeKeys(e, true),
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&actor, "actor", "", "who causes the event, `TYPE:ID`; required")
	f.StringVar(&about, "target", "", "whom or what it is about, `TYPE:ID`")
	f.Uint64Var(&previous, "previous-length", 0, "`number` of events that the aggregate must have; exit code 4 if it has not")
	f.BoolVar(&skipOCC, "skip-occ", false, "concurrent writes do not matter; the event type must allow it")
	f.StringVar(&idempotencyKey, "idempotency-key", "", "the same `key` with the same event writes once within 24 hours; one is made up if left out")
	f.StringVar(&conditions, "conditions", "", "what must not have happened: a JSON array, @FILE, or - for standard input; exit code 4 if it has")
	f.BoolVar(&dryRun, "dry-run", false, "tell what would happen, and write nothing")
	f.BoolVar(&asJSON, "json", false, "print JSON")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Mistakes in the command line are reported before anything is sent.
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		if actor == "" {
			return usageError{errors.New("--actor is missing: every event says who caused it, as in --actor user:global")}
		}
		if skipOCC && f.Changed("previous-length") {
			return usageError{errors.New("--previous-length and --skip-occ exclude each other: either the number of events counts, or it does not matter")}
		}

		// The key makes the write repeatable, whether it was given or not.
		o := client.WriteOptions{SkipOCC: skipOCC, IdempotencyKey: idempotencyKey}
		if o.Actor, err = parseAgent("actor", actor); err != nil {
			return err
		}
		if about != "" {
			target, err := parseAgent("target", about)
			if err != nil {
				return err
			}
			o.Target = &target
		}
		if f.Changed("previous-length") {
			o.PreviousLength = &previous
		}
		if o.IdempotencyKey == "" && !dryRun {
			o.IdempotencyKey = "cli-" + rand.Text()
		}

		if conditions == "-" && len(args) > 2 && args[2] == "-" {
			return usageError{errors.New("only one of DATA and --conditions can be standard input")}
		}
		if conditions != "" {
			if o.Conditions, err = jsonArgument(e, "--conditions", conditions); err != nil {
				return err
			}
		}
		ev := client.NewEvent{Type: args[1]}
		if len(args) > 2 {
			if ev.Data, err = jsonArgument(e, "DATA", args[2]); err != nil {
				return err
			}
		}

		if dryRun {
			return tryWrite(cmd.Context(), e, r, asJSON, func(c *client.Client) (json.RawMessage, error) {
				return c.TryEvent(cmd.Context(), key, ev, o)
			})
		}
		c, err := e.connectToWrite(r)
		if err != nil {
			return err
		}

		// From here on the event may have been stored, even if the command fails.
		e.startChange()
		receipt, err := c.PostEvent(cmd.Context(), key, ev, o)
		if err != nil {
			return interrupted(cmd.Context(), refusedEvent(explained(e, err)))
		}
		return printReceipt(e, key, receipt, asJSON)
	}
	return cmd
}

// jsonArgument returns the JSON that an argument holds or names; from is what the argument is called.
func jsonArgument(e *env, from, arg string) (json.RawMessage, error) {
	if name, ok := strings.CutPrefix(arg, "@"); ok || arg == "-" {
		raw, err := e.readText(name, command.MaxFileText, "No event can be that large.")
		if err != nil {
			return nil, err
		}
		arg, from = string(raw), name
	}
	if _, err := parsedJSON(e, from, arg); err != nil {
		return nil, err
	}
	return json.RawMessage(arg), nil
}

// refusedEvent marks the error of an event that is itself at fault. An unknown type, and a conflict with another write,
// have exit codes of their own.
func refusedEvent(err error) error {
	code := j17.CodeOf(err)
	if code == j17.CodeForbidden || code == j17.CodeUnknownType || code == j17.CodeUnknownEventType ||
		!send.AboutEvents(code) {
		return err
	}
	return eventError{err}
}

// explained lists the findings of a refusal, and its details where they say more than the error itself, on the error
// stream.
func explained(e *env, err error) error {
	if refused, ok := errors.AsType[*client.Error](err); ok && !e.machine {
		for _, f := range refused.Problem.Errors {
			e.note("%s: %s\n", f.Pointer, f.Message)
		}
		if more := detailed(refused.Problem.Code, refused.Problem.Details); more != "" {
			e.note("%s\n", more)
		}
	}
	return err
}

// detailed says what the details of a refusal by the spec add to its message, "" for nothing.
func detailed(code j17.Code, details any) string {
	var d struct {
		Holder  string
		Pointer string
		Cause   j17.Code
	}
	raw, err := json.Marshal(details)
	if err != nil || json.Unmarshal(raw, &d) != nil {
		return ""
	}
	switch {
	case code == j17.CodeNotUnique && d.Holder != "":
		return plain(d.Holder) + " holds the value"
	case code == j17.CodeRequirementFailed && d.Cause == j17.CodeInvalidOperand:
		return "the guard at " + plain(d.Pointer) + " cannot be evaluated: something that it calculates with is missing, or is of another kind"
	}
	return ""
}

func printReceipt(e *env, key j17.Key, r client.Receipt, asJSON bool) error {
	e.reportChange("the event is stored as %s", strings.Join(r.StreamIDs, ", "))
	if asJSON {
		return json.NewEncoder(e.out).Encode(struct {
			StreamID     string `json:"stream_id"`
			Length       uint64 `json:"length"`
			ImpliedCount int    `json:"implied_count,omitempty"`
			ID           string `json:"id,omitempty"`
			Handle       string `json:"handle,omitempty"`
			PublicID     string `json:"public_id,omitempty"`
			Replayed     bool   `json:"replayed,omitempty"`
		}{strings.Join(r.StreamIDs, ","), r.Length, r.ImpliedCount, r.ID, r.Handle, r.PublicID, r.Replayed})
	}
	was := "stored"
	if r.Replayed {
		was = "had been stored before"
	}
	key.ID = cmp.Or(r.ID, key.ID)
	text := plain(key.String())
	if names := slices.DeleteFunc(
		[]string{r.Handle, r.PublicID}, func(s string) bool { return s == "" },
	); len(names) > 0 {
		text += " (" + plain(strings.Join(names, ", ")) + ")"
	}
	text += fmt.Sprintf(" %s as %s; length %d", was, strings.Join(r.StreamIDs, ", "), r.Length)
	if r.ImpliedCount > 0 {
		text += "; implied " + j17.Count(r.ImpliedCount, "event")
	}
	_, err := fmt.Fprintln(e.out, text)
	return err
}

func eventsListCommand(e *env) *cobra.Command {
	var o client.EventsOptions
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "list TYPE/ID",
		Short: "Print the events of an aggregate",
		Long: `Print the events of an aggregate, oldest first, one line of JSON each, in the newest generation of their types. With --stored the
lines are exactly the bytes that are stored and hashed. The lines are what "j17 events send" reads.`,
		Example: `  j17 events list order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 --all > order.jsonl`,
		Args:    exactly("TYPE/ID"), ValidArgsFunction: completeKeys(e, false),
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Start, "start", "", "only events after the one with this `stream_id`")
	f.Uint64Var(&o.Count, "count", 100, "how many at most")
	f.BoolVar(&all, "all", false, "all of them, however many")
	f.BoolVar(&o.Stored, "stored", false, "events as they are stored, in the generation that they were written in")
	f.BoolVar(&asJSON, "json", false, "print one JSON array")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		// How many: 0 stands for all of them.
		switch {
		case all && f.Changed("count"):
			return usageError{errors.New("--all and --count exclude each other")}
		case all:
			o.Count = 0
		case o.Count == 0:
			return usageError{errors.New("--count must be 1 or more; --all prints all events")}
		}

		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(e.out)
		err = c.explained(cmd.Context(), writeEvents(out, c.Events(cmd.Context(), key, o), asJSON))
		return errors.Join(err, out.Flush())
	}
	return cmd
}

// writeEvents writes events as lines or as one array. An array is closed only if nothing is missing.
func writeEvents(out io.Writer, events func(func(json.RawMessage, error) bool), asArray bool) error {
	before, after := "", "\n"
	if asArray {
		before, after = "[", ""
	}
	for ev, err := range events {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s%s%s", before, ev, after); err != nil {
			return err
		}
		if asArray {
			before = ",\n"
		}
	}
	if !asArray {
		return nil
	}
	if before == "[" {
		before = "[]\n"
	} else {
		before = "]\n"
	}
	_, err := io.WriteString(out, before)
	return err
}
