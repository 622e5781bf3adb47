package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
)

func projectionRebuildCommand(e *env) *cobra.Command {
	var w waiting
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rebuild NAME", Short: "Rebuild the indexes of a projection", Args: exactly("NAME"),
		Long: `Rebuild the indexes of a projection from the events. The present ones serve until the new ones have caught up. The command waits for that;
--detach does not.`,
		Example: "  j17 projection rebuild open_tickets --env staging",
	}
	r := opsFlags(cmd)
	w.flags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Start it, and wait for its end.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.projectionCall(cmd.Context(), http.MethodPost, []string{args[0], "rebuild"})
		if err != nil {
			return err
		}
		if raw, err = o.await(cmd.Context(), raw, &w); err != nil {
			return err
		}

		// What came of it.
		if asJSON {
			return e.printAnswer(raw)
		}
		p, err := decoded[wire.Projection](raw)
		if err != nil {
			return err
		}
		text := "Rebuilt the indexes of %s.\n"
		switch {
		case p.Build == nil:
			text = "The projection %s needs no index.\n"
		case p.Build.Status == "running":
			text = "The indexes of %s are being rebuilt; 'j17 projection list' shows the progress.\n"
		}
		_, err = fmt.Fprintf(e.out, text, plain(p.Name))
		return err
	}
	return cmd
}

func projectionCancelCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "cancel NAME", Short: "Cancel the index build of a projection", Args: exactly("NAME"),
		Long:    "Cancel the preparation of a definition, or the rebuild of a projection's indexes. The present indexes go on serving.",
		Example: "  j17 projection cancel open_tickets --env staging",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		if _, err := o.projectionCall(cmd.Context(), http.MethodDelete, []string{args[0], "build"}); err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(struct {
				Name     string `json:"name"`
				Canceled bool   `json:"canceled"`
			}{args[0], true})
		}
		_, err = fmt.Fprintf(e.out, "What was being built for %s was given up.\n", plain(args[0]))
		return err
	}
	return cmd
}

func projectionVerifyCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify NAME", Short: "Compare the indexes of a projection with the events", Args: exactly("NAME"),
		Long: `Recompute all rows of a projection from the events, and compare them with its indexes, both ways. Servers do the same by themselves every
few hours. A terminal shows the progress; so does 'verification' in 'j17 projection show --json' until it is over.

Exit code 7: they differ; the first difference is named. The index is then no longer read, and is rebuilt in the background: 'j17 projection show'
has the progress. Reads by id go on.`,
		Example: "  j17 projection verify open_tickets --env staging",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "projections", args[0])
		if err != nil {
			return err
		}
		raw, err := o.compare(cmd.Context(), path)
		if err != nil {
			return err
		}
		found, err := decoded[wire.VerifiedProjection](raw)
		if err != nil {
			return err
		}
		if asJSON {
			err = e.printAnswer(raw)
		} else if found.Verified {
			_, err = fmt.Fprintf(
				e.out, "%s is what the events say: %s, %s.\n", plain(found.Name), j17.Count(found.Rows, "row"),
				j17.Count(found.Entries, "entry"),
			)
		}
		if err != nil || found.Verified {
			return err
		}
		differs := j17.Errorf(j17.CodeCorruption, "The index of %s is not what the events say. The first difference is in row %s: %s. It is no longer read, and is being rebuilt.",
			plain(found.Name), plain(found.Difference.Row), plain(found.Difference.What))
		if found.Difference.Row == "" {
			differs = j17.Errorf(j17.CodeCorruption, "The index of %s is not what the events say: %s.", plain(found.Name), plain(found.Difference.What))
		}
		if asJSON {
			return silent{differs}
		}
		return differs
	}
	return cmd
}

// compare compares a projection's index, or all places, with the events, and returns the answer. The path is that of
// what is compared. A terminal shows the progress.
func (o *operating) compare(ctx context.Context, path []string) (answer json.RawMessage, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var over sync.WaitGroup
	if terminal(o.env.err) {
		over.Go(func() {
			watch := &buildWatch{o.env.bar(-1, "comparing")}
			defer watch.end()
			for at := (&wire.Verification{}); watch.pause(watching, at.Done, at.Total) == nil; {
				var of struct{ Verification *wire.Verification }
				if err := o.call(watching, http.MethodGet, path, nil, nil, &of); err == nil && of.Verification != nil {
					at = of.Verification // else the comparison reports itself what is wrong
				}
			}
		})
	}
	err = o.call(ctx, http.MethodPost, append(slices.Clip(path), "verify"), nil, nil, &answer)
	stop()
	over.Wait()
	return answer, err
}
