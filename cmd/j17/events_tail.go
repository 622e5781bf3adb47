package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func eventsTailCommand(e *env) *cobra.Command {
	var filter client.FeedFilter
	var actor, about, after, types, tags string
	var since, before string
	var count uint64
	var there, asJSON bool
	cmd := &cobra.Command{
		Use: "tail", SuggestFor: []string{"logs", "follow", "watch"},
		Short: "Follow the events of an environment",
		Long: `Print the events of an environment as they are written, one a line, until Ctrl-C. With --after it begins after an event of the
past; --after 0 begins with the first one. When the connection breaks off, or the server restarts, it connects again and goes on
after the last event: nothing is left out and nothing comes twice.

With --no-follow it prints the events that exist, from the first one or from --after on, and ends. On standard error it prints the
position up to which it has read, which is the "after" of a condition ('j17 events post --conditions') that no such event was written since.

With --before it goes back in time: it prints the events before one of the past, the newest first, and ends. --before now begins with the newest
one of all. --count says how many are printed.

It takes an API key, or where there is none the login of an operator with the right read. All filters that are given must hold.`,
		Example: `  j17 events tail
  j17 events tail --type order --event was_placed --json
  j17 events tail --types 'booking.*,course.was_defined' --tags course:maths --no-follow
  j17 events tail --before now --count 20
  j17 events tail --since 10m --correlation 7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05
  j17 events tail --target customer:0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10 --after 0`,
		Args: noArgs,
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&filter.Type, "type", "", "only events of this aggregate `type`")
	f.StringVar(&filter.Event, "event", "", "only events of this `type`")
	f.StringVar(&actor, "actor", "", "only events that this actor has caused, `TYPE:ID`")
	f.StringVar(&about, "target", "", "only events about this target, `TYPE:ID`")
	f.StringVar(&types, "types", "", "only events of one of these types, `TYPE.EVENT,TYPE.*`")
	f.StringVar(&tags, "tags", "", "only events that have all of these tags, `NAME:VALUE,…`; in a tag \\, is a comma and \\\\ a backslash")
	f.StringVar(&filter.Correlation, "correlation", "", "only events with this correlation id, a `UUID`")
	f.StringVar(&after, "after", "", "begin after the event with this `stream_id`; 0 for the first one")
	f.StringVar(&since, "since", "", "begin at a `time`: 2026-01-31T12:00:00Z, 2026-01-31 (its beginning, UTC), 10m (so long ago), or Unix seconds")
	f.StringVar(&before, "before", "", "print the events before the one with this `stream_id`, newest first, and end; now for the newest of all")
	f.Uint64Var(&count, "count", 100, "with --before, how many events at most")
	f.BoolVar(&there, "no-follow", false, "print what is there, and up to where that was looked for, and end")
	f.BoolVar(&filter.Stored, "stored", false, "events as they are stored, in the generation that they were written in")
	f.BoolVar(&asJSON, "json", false, "print events as the server sends them, one line of JSON each")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// What is asked for.
		for name, given := range map[string]string{"actor": actor, "target": about} {
			if given == "" {
				continue
			}
			agent, err := parseAgent(name, given)
			if err != nil {
				return err
			}
			if name == "actor" {
				filter.Actor = &agent
			} else {
				filter.Target = &agent
			}
		}
		if types != "" {
			filter.Types = wire.SplitList(types)
		}
		if tags != "" {
			filter.Tags = wire.SplitList(tags)
		}
		for _, other := range []string{"after", "since", "no-follow"} {
			if f.Changed(other) && f.Changed("before") {
				return usageError{fmt.Errorf("--before goes back in time, and --%s forward: give one of them", other)}
			}
		}
		switch {
		case f.Changed("after") && f.Changed("since"):
			return usageError{errors.New("--after and --since both say where to begin: give one of them")}
		case f.Changed("count") && !f.Changed("before"):
			return usageError{errors.New("--count says how many events --before prints, and is of no use without it")}
		case count == 0:
			return usageError{errors.New("--count must be 1 or more")}
		}
		if f.Changed("since") {
			seconds, err := parseTime(clock.System{}.Now(), "--since", since)
			if err != nil {
				return usageError{err}
			}
			filter.Since = strconv.FormatInt(seconds, 10)
		}
		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}

		// Each event is a line.
		if f.Changed("before") {
			return c.explained(
				cmd.Context(), byType(printBefore(cmd.Context(), e, c.Client, filter, before, count, asJSON)),
			)
		}
		if there {
			return c.explained(cmd.Context(), byType(printThere(cmd.Context(), e, c.Client, filter, after, asJSON)))
		}
		for ev, err := range c.Follow(cmd.Context(), filter, after) {
			if cmd.Context().Err() != nil {
				return nil // which is how it ends
			}
			if err == nil {
				err = printEvent(e, ev, asJSON)
			}
			if err != nil {
				return c.explained(cmd.Context(), byType(err))
			}
		}
		return nil
	}
	return cmd
}

// printThere prints the events after a position that exist already, and up to which position it has looked.
func printThere(
	ctx context.Context, e *env, c *client.Client, filter client.FeedFilter, after string, asJSON bool,
) error {
	const atOnce = 1000
	for {
		page, err := c.Feed(ctx, filter, after, atOnce)
		if err != nil {
			return err
		}
		for _, ev := range page.Events {
			if err := printEvent(e, ev, asJSON); err != nil {
				return err
			}
		}
		if page.Next == nil {
			e.note("up to %s\n", plain(page.Position))
			return nil
		}
		after = *page.Next
	}
}

// printBefore prints up to count events before a position, the newest first.
func printBefore(
	ctx context.Context, e *env, c *client.Client, filter client.FeedFilter, before string, count uint64, asJSON bool,
) error {
	const atOnce = 1000
	for left := count; left > 0; {
		page, err := c.FeedBefore(ctx, filter, before, min(left, atOnce))
		if err != nil {
			return err
		}
		for _, ev := range page.Events {
			if err := printEvent(e, ev, asJSON); err != nil {
				return err
			}
		}
		if page.Next == nil || *page.Next == before {
			return nil
		}
		left -= min(uint64(len(page.Events)), left)
		before = *page.Next
	}
	return nil
}

// printEvent prints an event on a line.
func printEvent(e *env, ev json.RawMessage, asJSON bool) error {
	line := string(ev)
	if !asJSON {
		var err error
		if line, err = eventLine(ev); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(e.out, line)
	return err
}

// eventLine shows an event to a person.
func eventLine(raw json.RawMessage) (string, error) {
	var ev struct {
		StreamID string          `json:"stream_id"`
		Key      string          `json:"key"`
		Type     string          `json:"type"`
		Data     json.RawMessage `json:"data"`
		Metadata struct {
			Actor struct{ Type, ID string } `json:"actor"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		return "", fmt.Errorf("the server sent an event that cannot be read: %w", err)
	}
	return printable(fmt.Sprintf(
		"%s  %s  %s  %s  by %s:%s", ev.StreamID, ev.Key, ev.Type, ev.Data, ev.Metadata.Actor.Type, ev.Metadata.Actor.ID,
	)), nil
}
