package main

import (
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func eventsTraceCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "trace STREAM_ID", Short: "Show what has caused an event, and what it has caused", Args: exactly("STREAM_ID"), ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Print the graph that an event belongs to, a line for each cause and what it has led to: events that imply others, scheduled events with what
has fired or cancelled them, sagas with what triggered them, what they wrote and what answered them, what was refused, and deliveries. It is the same
from whichever event of the graph it is asked. A graph has 500 nodes at most.`,
		Example: "  j17 events trace 1706789012345-0\n  j17 events trace 1706789012345-0 --env staging --json",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "trace", args[0])
		if err != nil {
			return err
		}
		var graph wire.Trace
		if err := o.call(cmd.Context(), http.MethodGet, path, nil, nil, &graph); err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(graph)
		}

		// Each node is a line of its own, with what has led to it.
		causes := map[string][]wire.TraceEdge{}
		for _, edge := range graph.Edges {
			causes[edge.To] = append(causes[edge.To], edge)
		}
		var cells [][]string
		for i := range graph.Nodes {
			n := &graph.Nodes[i]
			line := []string{n.At, n.Kind, n.ID, n.Key, n.Type, n.Status}
			if len(causes[n.ID]) == 0 {
				cells = append(cells, append(line, "", ""))
			}
			for _, edge := range causes[n.ID] {
				cells = append(cells, append(slices.Clip(line), edge.How, edge.From))
			}
		}
		if graph.Truncated {
			e.note("the graph has more than these nodes\n")
		}
		return e.printTable([]string{"at", "kind", "id", "key", "type", "status", "how", "by"}, cells)
	}
	return cmd
}
