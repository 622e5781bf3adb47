package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func eventsTailCommand(e *env) *cobra.Command {
	var filter client.FeedFilter
	var actor, about, after, types, tags string
	var there, asJSON bool
	cmd := &cobra.Command{
		Use: "tail", SuggestFor: []string{"logs", "follow", "watch"},
		Short: "Follow the events of an environment",
		Long: `Print the events of an environment as they are written, one a line, until Ctrl-C. With --after it begins after an event of the
past; --after 0 begins with the first one. When the connection breaks off, or the server restarts, it connects again and goes on
after the last event: nothing is left out and nothing comes twice.

With --no-follow it prints the events that exist, from the first one or from --after on, and ends. On standard error it prints the
position up to which it has read, which is the "after" of a condition ('j17 events post --conditions') that no such event was written since.

All filters that are given must hold.`,
		Example: `  j17 events tail
  j17 events tail --type order --event was_placed --json
  j17 events tail --types 'booking.*,course.was_defined' --tags course:maths --no-follow
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
	f.BoolVar(&there, "no-follow", false, "print what is there, and up to where that was looked for, and end")
	f.BoolVar(&asJSON, "json", false, "print events as they are stored, one line of JSON each")

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
		c, err := e.connect(r)
		if err != nil {
			return err
		}

		// Each event is a line.
		if there {
			return interrupted(cmd.Context(), byType(printThere(cmd.Context(), e, c, filter, after, asJSON)))
		}
		for ev, err := range c.Follow(cmd.Context(), filter, after) {
			if cmd.Context().Err() != nil {
				return nil // which is how it ends
			}
			if err == nil {
				err = printEvent(e, ev, asJSON)
			}
			if err != nil {
				return byType(err)
			}
		}
		return nil
	}
	return cmd
}

// printThere prints the events that are there after a position, and up to where that was looked for.
func printThere(ctx context.Context, e *env, c *client.Client, filter client.FeedFilter, after string, asJSON bool) error {
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

// printEvent prints a line.
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
	return printable(fmt.Sprintf("%s  %s  %s  %s  by %s:%s", ev.StreamID, ev.Key, ev.Type, ev.Data, ev.Metadata.Actor.Type, ev.Metadata.Actor.ID)), nil
}
