package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/custody/proof"
)

func auditCheckpointCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "Print the signed checkpoint of an environment's log", Args: noArgs,
		Long: `Print the signed checkpoint of the log of an environment, as 'j17 audit verify' takes it: how many events it has, their root, and a signature. Keep it.
It takes an API key, or where there is none the login of an operator with the right audit.`,
		Example: "  j17 audit checkpoint --env prod > january.txt",
	}
	r := remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		text, err := c.Checkpoint(cmd.Context())
		if err != nil {
			return c.explained(cmd.Context(), err)
		}
		_, err = io.WriteString(e.out, text)
		return err
	}
	return cmd
}

func auditProofCommand(e *env) *cobra.Command {
	return group("proof", "Proofs about the log of an environment, checked here", auditInclusionCommand(e), auditConsistencyCommand(e))
}

// numbersGiven returns the parameters of the flags, by their names, that were given.
func numbersGiven(cmd *cobra.Command, flags map[string]*uint64) url.Values {
	q := url.Values{}
	for name, v := range flags {
		if cmd.Flags().Changed(name) {
			q.Set(name, strconv.FormatUint(*v, 10))
		}
	}
	return q
}

func auditInclusionCommand(e *env) *cobra.Command {
	var asJSON bool
	var index, size uint64
	cmd := &cobra.Command{
		Use: "inclusion [STREAM_ID]", Short: "Prove that the log of an environment has an event",
		Long: `Ask for the proof that the log of an environment has an event, named by its stream_id or with --index by its number, and check it here. --size says in
which tree: give that of a checkpoint that you have, and compare the root with its own. It takes an API key, or where there is none the login of an
operator with the right audit.

Exit code 6: the log has no such event; 7: the proof does not hold.`,
		Example: "  j17 audit proof inclusion 1706789012345-0 --size 1000\n  j17 audit proof inclusion --index 0",
		Args: func(cmd *cobra.Command, args []string) error {
			if numbered := cmd.Flags().Changed("index"); numbered == (len(args) > 0) {
				return usageError{errors.New("name the event: by its STREAM_ID, or by its number with --index")}
			}
			return exactly([]string{"STREAM_ID"}[:min(1, len(args))]...)(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	r := remoteFlags(cmd)
	cmd.Flags().Uint64Var(&index, "index", 0, "the `number` of the event, counted from 0")
	cmd.Flags().Uint64Var(&size, "size", 0, "`number` of events in the tree (default all there are)")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// The server's proof.
		q := numbersGiven(cmd, map[string]*uint64{"index": &index, "size": &size})
		if len(args) > 0 {
			q.Set("stream_id", args[0])
		}
		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		var p wire.InclusionProof
		if err := c.Audit(cmd.Context(), []string{"proof", "inclusion"}, q, &p); err != nil {
			return c.explained(cmd.Context(), err)
		}

		// It is checked here.
		hashes, err := hashesOf(append([]string{p.LeafHash, p.Root}, p.Proof...))
		if err != nil || !proof.CheckInclusion(p.Index, p.Size, hashes[0], hashes[2:], hashes[1]) {
			return doesNotHold()
		}
		if asJSON {
			return e.printJSON(p)
		}
		e.note("The proof holds: the event is in the tree with this root.\n")
		return e.printTable([]string{"what", "is"}, append([][]string{
			{"index", strconv.FormatUint(p.Index, 10)},
			{"size", strconv.FormatUint(p.Size, 10)},
			{"leaf", p.LeafHash},
			{"root", p.Root},
		}, nodesOf(p.Proof)...))
	}
	return cmd
}

func auditConsistencyCommand(e *env) *cobra.Command {
	var asJSON bool
	var from, to uint64
	cmd := &cobra.Command{
		Use: "consistency --from SIZE", Short: "Prove that the log of an environment has only grown", Args: noArgs,
		Long: `Ask for the proof that the log of an environment of --to events, by default all there are, begins with that of --from events, and check it here.
Compare the roots with those of checkpoints that you have. It takes an API key, or where there is none the login of an operator with the right audit.

Exit code 7: the proof does not hold.`,
		Example: "  j17 audit proof consistency --from 1000",
	}
	r := remoteFlags(cmd)
	cmd.Flags().Uint64Var(&from, "from", 0, "`number` of events in the smaller tree; required")
	cmd.Flags().Uint64Var(&to, "to", 0, "`number` of events in the larger tree (default all there are)")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if from == 0 {
			return usageError{errors.New("--from is missing: say how many events the smaller tree has, such as the size of a checkpoint that you have")}
		}
		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		var p wire.ConsistencyProof
		if err := c.Audit(cmd.Context(), []string{"proof", "consistency"}, numbersGiven(cmd, map[string]*uint64{
			"from": &from, "to": &to,
		}), &p); err != nil {
			return c.explained(cmd.Context(), err)
		}
		hashes, err := hashesOf(append([]string{p.FromRoot, p.ToRoot}, p.Proof...))
		if err != nil || !proof.CheckConsistency(p.From, p.To, hashes[2:], hashes[0], hashes[1]) {
			return doesNotHold()
		}
		if asJSON {
			return e.printJSON(p)
		}
		e.note("The proof holds: the larger tree begins with the smaller one.\n")
		return e.printTable([]string{"what", "is"}, append([][]string{
			{"from", strconv.FormatUint(p.From, 10)},
			{"from root", p.FromRoot},
			{"to", strconv.FormatUint(p.To, 10)},
			{"to root", p.ToRoot},
		}, nodesOf(p.Proof)...))
	}
	return cmd
}

// doesNotHold is the error of a proof that does not prove what it was asked for.
func doesNotHold() error {
	return j17.Errorf(j17.CodeCorruption, "The proof that the server sent does not hold")
}

// nodesOf are the hashes of a proof as rows of a table.
func nodesOf(hashes []string) [][]string {
	rows := make([][]string, len(hashes))
	for i, h := range hashes {
		rows[i] = []string{"proof", h}
	}
	return rows
}

// hashesOf reads hashes as people see them.
func hashesOf(texts []string) ([][sha256.Size]byte, error) {
	hashes := make([][sha256.Size]byte, len(texts))
	for i, text := range texts {
		raw, err := hex.DecodeString(text)
		if err != nil || len(raw) != sha256.Size {
			return nil, errors.New("it is no hash")
		}
		hashes[i] = [sha256.Size]byte(raw)
	}
	return hashes, nil
}
