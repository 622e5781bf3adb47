package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
)

func backupCreateCommand(e *env) *cobra.Command {
	var wholeServer, full, detach, asJSON bool
	cmd := &cobra.Command{
		Use: "create", Short: "Have a running server make a backup", Args: noArgs,
		Long: `Have a running server make a backup of an environment, or with --whole-server of all its data, which only platform admins may do. It goes
to the destination in the settings of the server.

The command waits until the backup is made and shows the progress; --detach does not wait. Interrupted, the server goes on by itself.`,
		Example: "  j17 backup create --env prod\n  j17 backup create --whole-server --full --detach",
	}
	r := opsFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&wholeServer, "whole-server", false, "of the whole server, and not of an environment")
	f.BoolVar(&full, "full", false, "read everything, and do not go on from the newest backup")
	f.BoolVar(&detach, "detach", false, "do not wait until it is made")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if wholeServer && (f.Changed("env") || f.Changed("instance")) {
			return usageError{errors.New("--whole-server is of all there is: leave --env and --instance out")}
		}
		var ask wire.NewBackup
		if full {
			ask.Kind = "full"
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path := []string{"backups"}
		if !wholeServer {
			if path, err = o.opsPath(cmd.Context(), path...); err != nil {
				return err
			}
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodPost, path, nil, ask, &raw); err != nil {
			return err
		}
		if !detach {
			if raw, err = o.awaitBackup(cmd.Context(), path, raw); err != nil {
				return err
			}
		}
		return showAnswer(e, raw, asJSON, func(m wire.BackupShown) string {
			b := &m.Backup
			return fmt.Sprintf(
				"%s  %s, %s in %s, %s", b.ID, b.Status, b.Kind, b.Storage,
				j17.Count(uint64(max(b.Bytes, 0)), "new byte"),
			)
		})
	}
	return cmd
}

// awaitBackup shows how far a backup is until it is made.
func (o *operating) awaitBackup(ctx context.Context, path []string, raw json.RawMessage) (json.RawMessage, error) {
	watch := watchBuild(o.env, "backing up")
	for {
		m, err := decoded[wire.BackupShown](raw)
		if err != nil {
			return nil, err
		}
		b := &m.Backup
		switch {
		case b.Error != nil:
			return nil, fmt.Errorf("the backup %s could not be made: %s", b.ID, plain(*b.Error))
		case b.Status != "running":
			watch.end()
			return raw, nil
		}
		if err := watch.pause(ctx, b.Progress.Done, b.Progress.Total); err != nil {
			o.env.note("The server goes on with the backup %s in the background.\n", b.ID)
			return nil, interrupted(ctx, err)
		}
		raw = nil
		if err := o.call(ctx, http.MethodGet, append(path, b.ID), nil, nil, &raw); err != nil {
			return nil, err
		}
	}
}
