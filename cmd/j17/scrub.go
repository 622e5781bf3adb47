package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
)

func scrubCommand(e *env) *cobra.Command {
	return group("scrub", "The server's search for damage in what it stores", scrubStatusCommand(e), scrubStartCommand(e))
}

func scrubStatusCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show the progress and the findings of the search for damage", Args: noArgs,
		Long: `Show the progress and the findings of the server's search for damage in its stored data. The exit code is 7 where something is
damaged, and otherwise 1 where a worker of a headnode did not report.`,
		Example: "  j17 scrub status --json",
	}
	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodGet, []string{"scrub"}, nil, nil, &raw); err != nil {
			return err
		}
		return showScrub(e, raw, asJSON)
	}
	return cmd
}

func scrubStartCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "start", Short: "Start a search for damage", Example: "  j17 scrub start", Args: noArgs,
		Long: "Start a search for damage on the server, unless one is running. It takes a while: 'j17 scrub status' shows the progress.",
	}
	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodPost, []string{"scrub"}, nil, nil, &raw); err != nil {
			return err
		}
		return showAnswer(e, raw, asJSON, func(wire.ScrubShown) string { return "The server looks for damage." })
	}
	return cmd
}

// showScrub prints how far the search is. It returns an error where something is damaged, or where a worker has not
// reported.
func showScrub(e *env, raw json.RawMessage, asJSON bool) error {
	answer, err := decoded[wire.ScrubShown](raw)
	if err != nil {
		return err
	}
	s := &answer.Scrub
	switch {
	case asJSON:
		err = e.printAnswer(raw)
	default:
		err = printScrub(e, s)
		for _, n := range answer.Nodes {
			err = errors.Join(err, printNodeScrub(e, &n))
		}
	}

	if err != nil {
		return err
	}

	// Of the server and of all of its workers.
	damaged, untold := len(s.Damaged), []string{}
	for _, n := range answer.Nodes {
		if n.Scrub != nil {
			damaged += len(n.Scrub.Damaged)
		} else {
			untold = append(untold, n.Node)
		}
	}
	switch {
	case damaged == 1:
		return j17.Errorf(j17.CodeCorruption, "1 place in what the server stores is damaged")
	case damaged > 1:
		return j17.Errorf(j17.CodeCorruption, "%d places in what the server stores are damaged", damaged)
	case len(untold) > 0:
		return j17.Errorf(j17.CodeUnavailable, "It is not known whether anything is damaged on %d of %s, which have not told: %s", len(untold), j17.Count(len(answer.Nodes), "worker"), strings.Join(untold, ", "))
	default:
		return nil
	}
}

// printNodeScrub prints how far a worker is.
func printNodeScrub(e *env, n *wire.NodeScrub) error {
	said := ""
	if n.Error != nil {
		said = " " + *n.Error
	}
	if _, err := fmt.Fprintf(e.out, "\n%s\n", printable("Worker "+n.Node+":"+said)); err != nil || n.Scrub == nil {
		return err
	}
	return printScrub(e, n.Scrub)
}

func printScrub(e *env, s *wire.Scrub) error {
	line := "No pass has come to its end yet."
	if s.Last != nil && s.Last.EndedAt != nil {
		line = fmt.Sprintf("Pass %d ended at %s: %s, %s of %s, %s.", s.Last.Number, when(*s.Last.EndedAt), j17.Count(s.Last.Tables, "table"), j17.Count(s.Last.Events, "event"),
			j17.Count(s.Last.Streams, "stream"), j17.Count(s.Last.Items, "item"))
	}
	if s.Phase != "idle" {
		line += fmt.Sprintf("\nPass %d is at %s", s.Pass.Number, s.Phase)
		if s.Environment != "" {
			line += " of " + s.Environment
		}
		line += fmt.Sprintf(", after %s and %s.", j17.Count(s.Pass.Events, "event"), j17.Count(s.Pass.Items, "item"))
	} else if s.NextAt != nil {
		line += "\nThe next one begins at " + when(*s.NextAt) + "."
	}
	if _, err := fmt.Fprintln(e.out, line); err != nil {
		return err
	}
	for _, d := range s.Damaged {
		if _, err := fmt.Fprintln(
			e.out, printable(fmt.Sprintf("damaged %s  %s  %s: %s", d.What, d.Environment, d.Where, d.Error)),
		); err != nil {
			return err
		}
	}
	return nil
}
